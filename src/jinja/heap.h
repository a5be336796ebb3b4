#pragma once
// Makes the values of one rendering, and holds it to its limits: each step and each byte counts, so
// that no template takes more time or memory than they allow.

#include <cstdint>
#include <ctime>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/refusal.h"
#include "jinja/value.h"
#include "json/strict_json.h"

namespace subbyte::jinja {

struct Limits {
  int64_t steps = 20'000'000;                // operations, items and characters that are looked at
  int64_t bytes = int64_t{512} << 20;        // of all values that are made
  int64_t output_bytes = int64_t{64} << 20;  // of the result
  int depth = 400;                           // of calls and expressions inside each other
};

class Heap {
 public:
  explicit Heap(const Limits& limits) : limits_(limits) {}

  /// Refuses where the limit is reached. Code jinja.limit.
  void step(int64_t count = 1);
  void take_bytes(int64_t count);
  void check_output(std::size_t size) const;
  int max_depth() const { return limits_.depth; }

  Value text(OriginText text, bool is_markup = false);
  Value text(std::string_view bytes, Origin origin = Origin::kTemplate);
  /// A part of `from`, whose bytes keep their origin.
  Value part(const String& from, std::size_t begin, std::size_t end);
  Value list(std::vector<Value> items, SequenceKind kind = SequenceKind::kList,
             std::string label = {});
  Value tuple(std::vector<Value> items) { return list(std::move(items), SequenceKind::kTuple); }
  /// Later values of a key replace earlier ones, in the place of the first. Code jinja.type for
  /// keys that cannot be hashed.
  Value dictionary(std::vector<std::pair<Value, Value>> entries);
  Value iterator(std::vector<Value> items);
  Value undefined(std::string why, bool is_unsafe = false);
  template <typename T, typename... Inputs>
  T* object(Inputs&&... inputs) {
    take_bytes(sizeof(T) + kObjectBytes);
    auto made = std::make_unique<T>(std::forward<Inputs>(inputs)...);
    T* const pointer = made.get();
    objects_.push_back(std::move(made));
    return pointer;
  }

  /// A value of JSON. Texts are of `origin`, but those of the keys "role" among `roles`, which are
  /// of the template.
  Value from_json(const json::Value& value, Origin origin, std::span<const std::string_view> roles);

 private:
  static constexpr int64_t kObjectBytes = 64;

  int nested(int depth) const;

  Limits limits_;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  std::deque<std::unique_ptr<Object>> objects_;
};

/// The value of a key; nullptr without one. Code jinja.type for keys that cannot be hashed.
const Value* find(Heap& heap, const Dictionary& dictionary, const Value& key);
const Value* find(const Dictionary& dictionary, std::string_view key);

}  // namespace subbyte::jinja
