#pragma once
// Values as Python has them: what a template computes with.
//
// Lists, tuples and dictionaries never change once they are made, as the sandbox of the reference
// refuses whatever would change them; namespaces alone do. What may be part of itself that way
// (namespaces, macros, loops) is an Object, which the heap owns and values point to.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "jinja/meter.h"
#include "jinja/text.h"

namespace subbyte::jinja {

class Heap;
class Object;
class Sequence;
class Dictionary;
class Iterator;

/// The value of what is not there; using it says why.
struct Undefined {
  std::shared_ptr<const Bytes> why;
  /// The sandbox hides it.
  bool is_unsafe = false;
};
struct None {};
struct String {
  std::shared_ptr<const Text> text;
  bool is_markup = false;  // of the filters safe and escape

  const Text* operator->() const { return text.get(); }
  const Text& operator*() const { return *text; }
  std::string_view bytes(Meter& meter) const { return text->bytes(meter); }
  std::string_view letters(Meter& meter) const { return text->letters(meter); }
  std::string_view scan(Meter& meter) const { return text->scan(meter); }
};
/// An integer of more than 64 bits: printed and compared, and refused by what computes.
struct LongInteger {
  std::shared_ptr<const Text> digits;  // after a sign, if it is negative
};

class Value {
 public:
  using State = std::variant<Undefined, None, bool, int64_t, double, LongInteger, String,
                             std::shared_ptr<const Sequence>, std::shared_ptr<const Dictionary>,
                             std::shared_ptr<Iterator>, Object*>;

  Value() = default;
  template <typename T>
  explicit Value(T state) : state_(std::move(state)) {}

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(state_);
  }
  /// nullptr where it is something else.
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&state_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  const String* string() const { return as<String>(); }
  const Sequence* sequence() const { return held<std::shared_ptr<const Sequence>>(); }
  const Dictionary* dictionary() const { return held<std::shared_ptr<const Dictionary>>(); }
  Iterator* iterator() const { return held<std::shared_ptr<Iterator>>(); }
  Object* object() const {
    const auto* const object = as<Object*>();
    return object == nullptr ? nullptr : *object;
  }
  /// Gives the number of booleans and integers; false for all else.
  bool integer(int64_t& number) const;

  const State& state() const { return state_; }

 private:
  template <typename Pointer>
  typename Pointer::element_type* held() const {
    const auto* const pointer = as<Pointer>();
    return pointer == nullptr ? nullptr : pointer->get();
  }

  State state_;
};

using Values = List<Value>;

/// The type of a sequence in Python; each is printed in its own way.
enum class SequenceKind : uint8_t { kList, kTuple, kGroup, kRange, kKeys, kValues, kItems };

class Sequence {
 public:
  Sequence(Values items, SequenceKind kind, int depth, bool is_hashable, Bytes label)
      : items_(std::move(items)),
        label_(std::move(label)),
        kind_(kind),
        is_hashable_(is_hashable),
        depth_(depth) {}

  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  /// Charges a look at all of them, or at one.
  std::span<const Value> items(Meter& meter) const {
    meter.step(items_.size());
    return items_;
  }
  const Value& at(Meter& meter, std::size_t index) const {
    meter.step();
    return items_[index];
  }

  SequenceKind kind() const { return kind_; }
  bool is_tuple() const { return kind_ == SequenceKind::kTuple || kind_ == SequenceKind::kGroup; }
  bool is_hashable() const { return is_hashable_; }  // with all that is in it
  int depth() const { return depth_; }               // of nesting, 1 without any
  std::string_view label() const { return label_; }  // of a range: how it is printed

 private:
  Values items_;
  Bytes label_;
  SequenceKind kind_;
  bool is_hashable_;
  int depth_;
};

class Dictionary {
 public:
  using Entry = std::pair<Value, Value>;

  /// Later values of a key replace earlier ones, in the place of the first.
  Dictionary(Meter& meter, List<Entry> entries, int depth);

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  /// Charges a look at all of them.
  std::span<const Entry> entries(Meter& meter) const {
    meter.step(entries_.size());
    return entries_;
  }
  /// The value of a key; nullptr without one. Code jinja.type for keys that cannot be hashed.
  const Value* find(Meter& meter, const Value& key) const;
  const Value* find(Meter& meter, std::string_view key) const;
  int depth() const { return depth_; }

 private:
  template <typename OrderOfKey>
  const Value* search(const OrderOfKey& order) const;

  List<Entry> entries_;
  List<uint32_t> sorted_;  // entries in the order of their keys
  int depth_;
};

using Entries = List<Dictionary::Entry>;

/// Items that can be walked over once.
class Iterator {
 public:
  Iterator(Values items, int depth) : items_(std::move(items)), depth_(depth) {}

  /// nullptr at the end.
  const Value* next(Meter& meter) {
    meter.step();
    return next_ < items_.size() ? &items_[next_++] : nullptr;
  }
  /// All that are left, which are none then.
  Values take(Meter& meter) {
    meter.step(items_.size() - next_);
    Values rest(items_.begin() + static_cast<std::ptrdiff_t>(next_), items_.end(), meter);
    next_ = items_.size();
    return rest;
  }
  int depth() const { return depth_; }

 private:
  Values items_;
  std::size_t next_ = 0;
  int depth_;
};

inline bool Value::integer(int64_t& number) const {
  if (const auto* const whole = as<int64_t>()) {
    number = *whole;
    return true;
  }
  const auto* const truth = as<bool>();
  if (truth != nullptr) number = *truth ? 1 : 0;
  return truth != nullptr;
}

/// Arguments of a call, a filter or a test.
struct Arguments {
  explicit Arguments(Meter& meter) : positional(meter), named(meter) {}
  Arguments(Meter& meter, Value first) : Arguments(meter) {
    positional.push_back(std::move(first));
  }

  Values positional;
  List<std::pair<Bytes, Value>> named;
};

class Evaluator;

/// A namespace, a macro, a loop, a function or a method that is bound to its value.
class Object {
 public:
  virtual ~Object() = default;
  /// How Python's type is called in messages.
  virtual std::string_view type() const = 0;
  /// Nothing where there is none of that name.
  virtual std::optional<Value> attribute(Evaluator&, std::string_view) { return std::nullopt; }
  virtual bool is_callable() const { return false; }
  virtual Value call(Evaluator& evaluator, const Arguments& arguments);
  /// A dict of what is printed of it; nothing where it has no text.
  virtual std::optional<Value> shown(Heap&) const { return std::nullopt; }
};

}  // namespace subbyte::jinja
