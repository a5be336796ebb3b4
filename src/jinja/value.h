#pragma once
// Values as Python has them: what a template computes with.
//
// Lists, tuples and dictionaries never change once they are made, as the sandbox of the reference
// refuses whatever would change them; namespaces alone do. What may be part of itself that way
// (namespaces, macros, loops) is an Object, which the heap owns and values point to.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/origin_text.h"

namespace subbyte::jinja {

class Object;
struct Sequence;
struct Dictionary;
struct Iterator;

/// The value of what is not there; using it says why.
struct Undefined {
  std::shared_ptr<const std::string> why;
  /// The sandbox hides it.
  bool is_unsafe = false;
};
struct None {};
struct String {
  std::shared_ptr<const OriginText> text;
  bool is_markup = false;  // of the filters safe and escape

  const std::string& bytes() const { return text->bytes(); }
};

class Value {
 public:
  using State =
      std::variant<Undefined, None, bool, int64_t, double, String, std::shared_ptr<const Sequence>,
                   std::shared_ptr<const Dictionary>, std::shared_ptr<Iterator>, Object*>;

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
  const Sequence* sequence() const;
  const Dictionary* dictionary() const;
  Iterator* iterator() const;
  Object* object() const;
  /// Gives the number of booleans and integers; false for all else.
  bool integer(int64_t& number) const;

  const State& state() const { return state_; }

 private:
  State state_;
};

/// The type of a sequence in Python; each is printed in its own way.
enum class SequenceKind : uint8_t { kList, kTuple, kGroup, kRange, kKeys, kValues, kItems };

struct Sequence {
  std::vector<Value> items;
  SequenceKind kind;
  int depth;          // of nesting, 1 without any
  std::string label;  // of a range: how it is printed
};

struct Dictionary {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string_view, std::size_t> texts;  // entries by keys that are strings
  int depth;
};

/// Items that can be walked over once.
struct Iterator {
  std::vector<Value> items;
  std::size_t next = 0;
  int depth;
};

inline const Sequence* Value::sequence() const {
  const auto* const held = as<std::shared_ptr<const Sequence>>();
  return held == nullptr ? nullptr : held->get();
}
inline const Dictionary* Value::dictionary() const {
  const auto* const held = as<std::shared_ptr<const Dictionary>>();
  return held == nullptr ? nullptr : held->get();
}
inline Iterator* Value::iterator() const {
  const auto* const held = as<std::shared_ptr<Iterator>>();
  return held == nullptr ? nullptr : held->get();
}
inline Object* Value::object() const {
  const auto* const held = as<Object*>();
  return held == nullptr ? nullptr : *held;
}
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
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Evaluator;

/// A namespace, a macro, a loop, a function or a method that is bound to its value.
class Object {
 public:
  virtual ~Object() = default;
  /// How Python's type is called in messages.
  virtual std::string_view type() const = 0;
  /// nullptr where there is none of that name.
  virtual const Value* attribute(Evaluator&, std::string_view) { return nullptr; }
  virtual bool is_callable() const { return false; }
  virtual Value call(Evaluator& evaluator, const Arguments& arguments);
};

}  // namespace subbyte::jinja
