#include "json/strict_json.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "base/mapped_file.h"
#include "base/model_file.h"
#include "base/quote.h"
#include "base/small_letters.h"
#include "base/utf8.h"
#include "json/events.h"
#include "json/shown_json.h"

namespace subbyte::json {
namespace {

// The parser collects a string twice, in buffers that double: three times its size in the one that
// grows, twice in the other.
constexpr std::size_t kParserStrings = 5;

std::string too_deep() {
  return "nested deeper than " + std::to_string(kMaxDepth) + " levels";
}

std::string appears_twice(std::string_view key) {
  return "the key " + quote(key) + " appears twice in one object";
}

/// Builds a value from the parser's events. Finished values wait on one stack until their array or
/// object ends.
///
/// What is built is counted: a text of two bytes an element ("[0,0,0") would become 40 times as
/// large.
class Builder final : public Events {
 public:
  Builder(std::size_t max_memory, std::span<const Stream> streams)
      : memory_left_(max_memory), streams_(streams) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string& text) override {
    if (text.find_first_not_of("-0123456789") != std::string::npos) return add(value);
    return spend(kStringBytes + 2 * text.size()) && add(JsonMaker::long_integer(text));
  }
  bool string(std::string& value) override {
    return spend(kStringBytes + 2 * value.size()) && add(std::move(value));
  }

  bool start_object() override { return open(true); }
  bool start_array() override { return open(false); }
  bool key(std::string& name) override {
    if (!spend(kKeyBytes + 2 * name.size())) return false;
    keys_.push_back(std::move(name));
    return true;
  }

  bool end_array() override {
    const std::size_t first = close();
    std::vector<Value> elements(
        std::make_move_iterator(values_.begin() + static_cast<std::ptrdiff_t>(first)),
        std::make_move_iterator(values_.end()));
    values_.resize(first);
    return add(std::move(elements));
  }

  bool end_object() override {
    const std::size_t first = close();
    const std::size_t count = values_.size() - first;
    const std::size_t first_key = keys_.size() - count;
    if (has_duplicate(first_key)) return false;
    std::vector<Value::Member> members;
    members.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      members.emplace_back(std::move(keys_[first_key + i]), std::move(values_[first + i]));
    }
    values_.resize(first);
    keys_.resize(first_key);
    return add(JsonMaker::object(std::move(members)));
  }

  void syntax_error(std::string_view problem) override {
    fail("json.syntax", std::string(problem));
  }

  bool failed() const { return !code_.empty(); }
  Error error(std::string_view where) const {
    return {code_, std::string(where).append(": ").append(problem_)};
  }
  Value take() { return std::move(values_.front()); }

 private:
  // At their largest: a vector that grows holds its elements three times over for a moment. A
  // finished container holds them once more, and those of its children that wait are gone by then.
  static constexpr std::size_t kValueBytes = 4 * sizeof(Value);
  static constexpr std::size_t kKeyBytes = 4 * sizeof(std::string);
  static constexpr std::size_t kStringBytes = 2 * sizeof(std::string);  // and the block's head

  struct Container {
    std::size_t first_value;  // in values_
    std::size_t key;          // its own, in keys_; nothing of the kind in an array and of the root
    bool is_object;
  };

  bool spend(std::size_t bytes) {
    if (bytes > memory_left_) {
      fail("json.memory", "its elements would take more memory than its size allows");
      return false;
    }
    memory_left_ -= bytes;
    return true;
  }

  bool add(Value value) {
    if (stream_ != nullptr && containers_.size() == stream_depth_) {
      hand_over(value);
      return true;
    }
    if (!spend(kValueBytes)) return false;
    values_.push_back(std::move(value));
    return true;
  }

  bool open(bool is_object) {
    if (containers_.size() == kMaxDepth) {
      fail("json.depth", too_deep());
      return false;
    }
    const Stream* found = stream_ == nullptr ? find_stream() : nullptr;
    containers_.push_back({values_.size(), keys_.size() - 1, is_object});
    if (found == nullptr) return true;
    stream_ = found;
    stream_depth_ = containers_.size();
    memory_before_ = memory_left_;
    return true;
  }

  std::size_t close() {
    if (stream_ != nullptr && containers_.size() == stream_depth_) stream_ = nullptr;
    const std::size_t first = containers_.back().first_value;
    containers_.pop_back();
    return first;
  }

  /// The one that wants the container which is about to be opened.
  const Stream* find_stream() const {
    const auto wants = [&](const Stream& stream) {
      const std::size_t depth = stream.path.size();
      if (depth == 0 || depth != containers_.size()) return false;
      for (std::size_t i = 0; i < depth; ++i) {
        if (!containers_[i].is_object) return false;
        const std::size_t key = i + 1 < depth ? containers_[i + 1].key : keys_.size() - 1;
        if (keys_[key] != stream.path[i]) return false;
      }
      return true;
    };
    const auto found = std::ranges::find_if(streams_, wants);
    return found == streams_.end() ? nullptr : &*found;
  }

  /// What an element took is free again after it.
  void hand_over(const Value& element) {
    if (containers_.back().is_object) {
      stream_->take(&keys_.back(), element);
      keys_.pop_back();
    } else {
      stream_->take(nullptr, element);
    }
    memory_left_ = memory_before_;
  }

  bool has_duplicate(std::size_t first_key) {
    sorted_.resize(keys_.size() - first_key);
    std::iota(sorted_.begin(), sorted_.end(), first_key);
    const auto key_of = [&](std::size_t i) -> const std::string& { return keys_[i]; };
    std::ranges::sort(sorted_, {}, key_of);
    const auto twin = std::ranges::adjacent_find(sorted_, {}, key_of);
    if (twin == sorted_.end()) return false;
    fail("json.duplicate_key", appears_twice(keys_[*twin]));
    return true;
  }

  void fail(std::string_view code, std::string problem) {
    code_ = code;
    problem_ = std::move(problem);
  }

  std::size_t memory_left_;
  std::vector<Value> values_;
  std::vector<std::string> keys_;
  std::vector<Container> containers_;  // those that are open
  std::vector<std::size_t> sorted_;
  std::span<const Stream> streams_;
  const Stream* stream_ = nullptr;  // that of the container at depth stream_depth_
  std::size_t stream_depth_ = 0;
  std::size_t memory_before_ = 0;
  std::string_view code_;
  std::string problem_;
};

/// Bytes between the quotes. Of text that is no JSON any number will do.
std::size_t longest_string(std::string_view text) {
  std::size_t longest = 0;
  for (std::size_t at = text.find('"'); at != std::string_view::npos; at = text.find('"', at)) {
    const std::size_t begin = ++at;
    while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
    longest = std::max(longest, at - begin);
    ++at;
  }
  return longest;
}

std::string format(double number) {
  return to_text(Value(number));
}

/// Whether `value` is a whole number that int64_t holds; 3.0 is one, as writers differ there.
std::optional<int64_t> whole_number(const Value& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  const auto number = value.get<double>();
  if (std::trunc(number) != number || std::abs(number) > 0x1p53) return std::nullopt;
  return static_cast<int64_t>(number);
}

Status check_text(std::string_view text, std::string_view where) {
  const auto bad = find_invalid_utf8(text);
  if (!bad) return {};
  return Error{"json.utf8", std::string(where).append(": a text is not UTF-8 at its byte ") +
                                std::to_string(*bad)};
}

/// `depth` containers are around the value.
Status check_value(const Value& value, std::string_view where, int depth) {
  const auto error = [&](std::string_view code, const std::string& problem) {
    return Error{code, std::string(where).append(": ").append(problem)};
  };
  if (value.is_string()) return check_text(value.string(), where);
  if (!value.is_array() && !value.is_object()) return {};
  if (depth == kMaxDepth) return error("json.depth", too_deep());
  for (const Value& element : value) SUBBYTE_CHECK(check_value(element, where, depth + 1));
  std::set<std::string_view> keys;
  for (const auto& [key, member] : value.items()) {
    SUBBYTE_CHECK(check_text(key, where));
    if (!keys.insert(key).second) return error("json.duplicate_key", appears_twice(key));
    SUBBYTE_CHECK(check_value(member, where, depth + 1));
  }
  return {};
}

}  // namespace

Result<Value> parse(std::string_view text, std::string_view where, std::span<const Stream> streams,
                    std::size_t memory_factor) {
  const auto error = [&](std::string_view code, const std::string& problem) {
    return Error{code, std::string(where).append(": ").append(problem)};
  };
  if (text.starts_with("\xEF\xBB\xBF")) {
    return error("json.syntax", "begins with a byte order mark; save it as UTF-8 without one");
  }
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    return error("json.utf8", "begins as UTF-16 does; save it as UTF-8");
  }
  if (const auto bad = find_invalid_utf8(text)) {
    return error("json.utf8", "not UTF-8 at byte " + std::to_string(*bad));
  }
  // The parser takes a NUL for the end of the text and would not see what follows.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    return error("json.syntax", "a NUL byte at byte " + std::to_string(nul));
  }
  const std::size_t max_memory = std::max(kFreeMemory, memory_factor * text.size());
  const std::size_t string_bytes = kParserStrings * longest_string(text);
  if (string_bytes > max_memory) {
    return error("json.memory", "one string would take more memory than its size allows");
  }
  Builder builder(max_memory - string_bytes, streams);
  read_events(text, builder);
  if (builder.failed()) return builder.error(where);
  return builder.take();
}

Status check_value(const Value& value, std::string_view where) {
  return check_value(value, where, 0);
}

std::optional<std::string> long_digits(const Value& value) {
  if (value.kind() == Value::Kind::kLongInteger) return value.string();
  if (!value.is_number_unsigned() || whole_number(value)) return std::nullopt;
  return std::to_string(value.get<uint64_t>());
}

bool is_integer(const Value& value, int64_t min, int64_t max) {
  if (!value.is_number_integer()) return false;
  const std::optional<int64_t> number = whole_number(value);
  return number && *number >= min && *number <= max;
}

std::string describe(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNull:
      return "null";
    case Value::Kind::kObject:
      return "an object";
    case Value::Kind::kArray:
      return "an array";
    case Value::Kind::kString:
      return quote(value.string());
    default: {  // a number, whose digits have no end, or a boolean
      constexpr std::size_t kMaxDigits = 100;
      const std::string text = to_text(value);
      return text.size() > kMaxDigits ? text.substr(0, kMaxDigits) + "..." : text;
    }
  }
}

Result<MappedFile> open_file(const std::string& path, uint64_t max_bytes) {
  Result<MappedFile> file = open_model_file(path, max_bytes);
  if (file.ok() || file.error().code != "file.too_large") return file;
  return Error{"json.too_large", file.error().message};
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

Result<Value> parse_file(const std::string& path, uint64_t max_bytes,
                         std::span<const Stream> streams, std::size_t memory_factor) {
  SUBBYTE_TRY(const MappedFile file, open_file(path, max_bytes));
  return parse(text_of(file), path, streams, memory_factor);
}

Result<Object> Object::of(const Value& value, std::string_view where) {
  if (!value.is_object()) {
    return Error{"json.type",
                 std::string(where).append(": expected an object, found ") + describe(value)};
  }
  return Object(&value, std::string(where));
}

const Value* Object::find(std::string_view key) const {
  return value_->find(key);
}

bool Object::has(std::string_view key) const {
  const Value* value = find(key);
  return value != nullptr && !value->is_null();
}

Error Object::error(std::string_view code, std::string_view key, std::string_view expected) const {
  const Value* value = find(key);
  std::string message = where_;
  // "config.json: rope_scaling.factor": a colon after the file, dots between keys.
  message.append(where_.find(": ") == std::string::npos ? ": " : ".").append(key);
  message.append(": expected ").append(expected).append(", found ");
  message.append(value != nullptr ? describe(*value) : "nothing");
  return {code, std::move(message)};
}

Result<std::optional<int64_t>> Object::integer(std::string_view key, int64_t min,
                                               int64_t max) const {
  const Value* value = find(key);
  if (value == nullptr || value->is_null()) return std::optional<int64_t>();
  const bool huge = long_digits(*value).has_value();
  if (!value->is_number() && !huge) return error("json.type", key, "a whole number");
  const std::optional<int64_t> number = huge ? std::nullopt : whole_number(*value);
  if (!number && !huge) return error("json.type", key, "a whole number");
  if (huge || *number < min || *number > max) {
    return error("json.range", key,
                 "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return number;
}

Result<std::optional<double>> Object::number(std::string_view key, double min, double max) const {
  const Value* value = find(key);
  if (value == nullptr || value->is_null()) return std::optional<double>();
  const bool is_long = value->kind() == Value::Kind::kLongInteger;
  if (!value->is_number() && !is_long) return error("json.type", key, "a number");
  const double number = is_long ? std::stod(value->string()) : value->get<double>();
  if (!(number >= min && number <= max)) {
    return error("json.range", key, "a number from " + format(min) + " to " + format(max));
  }
  return std::optional<double>(number);
}

Result<std::optional<bool>> Object::boolean(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr || value->is_null()) return std::optional<bool>();
  if (!value->is_boolean()) return error("json.type", key, "true or false");
  return std::optional<bool>(value->get<bool>());
}

Result<std::optional<std::string>> Object::string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr || value->is_null()) return std::optional<std::string>();
  if (!value->is_string()) return error("json.type", key, "a string");
  return std::optional<std::string>(value->string());
}

Result<std::optional<std::string>> Object::word(std::string_view key) const {
  SUBBYTE_TRY(std::optional<std::string> value, string(key));
  if (value) *value = small_letters(*value);
  return value;
}

Result<std::optional<Object>> Object::object(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr || value->is_null()) return std::optional<Object>();
  if (!value->is_object()) return error("json.type", key, "an object");
  const bool root = where_.find(": ") == std::string::npos;
  return std::optional<Object>(Object(value, where_ + (root ? ": " : ".") + std::string(key)));
}

Result<int64_t> Object::required_integer(std::string_view key, int64_t min, int64_t max) const {
  SUBBYTE_TRY(const std::optional<int64_t> value, integer(key, min, max));
  if (!value) return error("json.missing", key, "a whole number");
  return *value;
}

Result<std::string> Object::required_string(std::string_view key) const {
  SUBBYTE_TRY(std::optional<std::string> value, string(key));
  if (!value) return error("json.missing", key, "a string");
  return *std::move(value);
}

Result<std::string> Object::required_word(std::string_view key) const {
  SUBBYTE_TRY(const std::string value, required_string(key));
  return small_letters(value);
}

}  // namespace subbyte::json
