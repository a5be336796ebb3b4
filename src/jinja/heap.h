#pragma once
// Makes the values of one rendering.

#include <ctime>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "jinja/meter.h"
#include "jinja/refusal.h"
#include "jinja/value.h"

namespace subbyte::jinja {

class Heap : public Meter {
 public:
  explicit Heap(const Limits& limits) : Meter(limits), objects_(*this) {}

  Value text(TextBuilder& builder, bool is_markup = false) {
    return Value(String{builder.finish(), is_markup});
  }
  Value text(std::string_view bytes, Origin origin = Origin::kTemplate, bool is_markup = false);
  /// A part of `from`, whose bytes keep their origin.
  Value part(const String& from, std::size_t begin, std::size_t end);
  Value long_integer(std::string_view digits);
  Value list(Values items, SequenceKind kind = SequenceKind::kList, std::string_view label = {});
  Value tuple(Values items) { return list(std::move(items), SequenceKind::kTuple); }
  Value tuple(std::initializer_list<Value> items) { return tuple(Values(items, *this)); }
  /// Later values of a key replace earlier ones, in the place of the first. Code jinja.type for
  /// keys that cannot be hashed.
  Value dictionary(Entries entries);
  Value iterator(Values items);
  Value undefined(std::string_view why, bool is_unsafe = false);
  /// It lives as long as the heap.
  template <typename T, typename... Inputs>
  T* object(Inputs&&... inputs) {
    auto made = std::allocate_shared<T>(Allocator<T>(*this), std::forward<Inputs>(inputs)...);
    T* const pointer = made.get();
    objects_.push_back(std::move(made));
    return pointer;
  }

 private:
  static int nested(int depth);

  List<std::shared_ptr<Object>> objects_;
};

}  // namespace subbyte::jinja
