#pragma once
// JSON from untrusted files. Stricter than the parser underneath: duplicate keys
// (compared after unescaping), a byte order mark, nesting deeper than kMaxDepth and anything
// after the value are refused. Nothing recurses.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "subbyte/json.h"

SUBBYTE_BEGIN_NAMESPACE

/// Makes values of parts that nobody compares: names that come once, more digits than fit in 64
/// bits.
struct JsonMaker {
  static Json object(std::vector<Json::Member> members);
  static Json long_integer(std::string digits);
};

SUBBYTE_END_NAMESPACE

namespace subbyte::json {

using Value = Json;

inline constexpr int kMaxDepth = 64;

/// Memory that a value may take while it is made: so many times its text, or kFreeMemory if that is
/// more. Five times the longest string is set aside first: so much of it the parser holds.
inline constexpr std::size_t kMemoryFactor = 4;
inline constexpr std::size_t kFreeMemory = std::size_t{16} << 20;
/// For conversations and requests, which may be one long string.
inline constexpr std::size_t kTextMemoryFactor = 8;

/// A container that is not kept, as a vocabulary of a million members would take many times its
/// text: `take` gets one element after the other, and what is parsed has an empty container there.
/// Whether a key comes twice is for `take` to see; an error is for it to keep.
struct Stream {
  std::vector<std::string_view> path;  // keys from the root: {"model", "vocab"}
  /// `key` is nullptr in an array.
  std::function<void(const std::string* key, const Value& element)> take;
};

/// Parses one value. `where` (a file name) begins the message.
/// Codes: json.syntax, json.utf8, json.duplicate_key, json.depth, json.memory.
Result<Value> parse(std::string_view text, std::string_view where,
                    std::span<const Stream> streams = {},
                    std::size_t memory_factor = kMemoryFactor);

/// Refuses values that parse() never gives, as callers may have made them. Codes: json.utf8,
/// json.duplicate_key, json.depth.
Status check_value(const Value& value, std::string_view where);

/// An integer that no int64_t holds by its digits, after its sign; nullopt for all other values.
std::optional<std::string> long_digits(const Value& value);

/// Says whether `value` is an integer from `min` to `max`; 3.0 is none.
bool is_integer(const Value& value, int64_t min, int64_t max);

/// JSON of any value: strings that are not UTF-8, such as paths, get U+FFFD. `indent`: -1 is one
/// line.
std::string to_text(const Value& value, int indent = -1);

/// The value with the members of all objects in alphabetical order.
Value sorted(const Value& value);

/// Opens a file of a model, of at most `max_bytes`. Codes: those of open_model_file
/// (base/model_file.h), but json.too_large.
Result<MappedFile> open_file(const std::string& path, uint64_t max_bytes);
std::string_view text_of(const MappedFile& file);

/// Opens and parses.
Result<Value> parse_file(const std::string& path, uint64_t max_bytes,
                         std::span<const Stream> streams = {},
                         std::size_t memory_factor = kMemoryFactor);

/// A view of an object that knows where it is, for messages like
/// "config.json: rope_scaling.factor: expected a number, found \"32\"".
class Object {
 public:
  /// Code json.type when `value` is not an object. `value` must outlive this.
  static Result<Object> of(const Value& value, std::string_view where);

  bool has(std::string_view key) const;  // present and not null
  const Value* find(std::string_view key) const;
  /// Names and values in the order of the file.
  const std::vector<Value::Member>& members() const { return value_->items(); }
  const std::string& where() const { return where_; }

  /// Each returns nullopt when the key is absent or null, an error json.type or json.range when
  /// it is something else or outside [min, max].
  Result<std::optional<int64_t>> integer(std::string_view key, int64_t min, int64_t max) const;
  Result<std::optional<double>> number(std::string_view key, double min, double max) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string>> string(std::string_view key) const;
  /// A word of a tool in small letters, as tools write one word in cases of their own ("FP8",
  /// "fp8"). Messages have it as it stands.
  Result<std::optional<std::string>> word(std::string_view key) const;
  Result<std::optional<Object>> object(std::string_view key) const;

  /// The same for keys that must be there; code json.missing.
  Result<int64_t> required_integer(std::string_view key, int64_t min, int64_t max) const;
  Result<std::string> required_string(std::string_view key) const;
  Result<std::string> required_word(std::string_view key) const;

  /// The error that such a getter would give, for checks of the caller's own.
  Error error(std::string_view code, std::string_view key, std::string_view expected) const;

 private:
  Object(const Value* value, std::string where) : value_(value), where_(std::move(where)) {}

  const Value* value_;
  std::string where_;
};

}  // namespace subbyte::json
