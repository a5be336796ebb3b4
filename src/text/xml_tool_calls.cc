// Functions with parameters between marks, which cannot quote a mark in a value:
//
//   NAME>
//   <parameter=NAME>
//   value, a line break on each side is not of it
//   </parameter>
//
// A value ends at the first </parameter> before another parameter or the end of its function.
// MiniMax writes "NAME", <parameter name="NAME">, and all between the marks is of the value. GLM
// writes a name, then an <arg_key> and an <arg_value> for each argument.

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "json/strict_json.h"
#include "text/call_text.h"
#include "text/python_literal.h"
#include "text/tool_calls.h"

namespace subbyte {
namespace {

using json::Value;
using Kind = CallText::Kind;

constexpr std::string_view kParameterEnd = "</parameter>";

/// What a value is followed by and ends with; whether a line break beside it is not of it.
struct ValueMarks {
  std::string_view next, end;
  bool has_breaks;
};
constexpr ValueMarks kFunctionValues = {"<parameter=", kParameterEnd, true};
constexpr ValueMarks kInvokeValues = {"<parameter name=", kParameterEnd, false};
constexpr ValueMarks kKeyedValues = {"<arg_key>", "</arg_value>", false};

const Value* member(const Value* object, std::string_view key) {
  return object == nullptr ? nullptr : object->find(key);
}

/// Integers of more than 64 bits keep their digits (json::parse).
bool is_integer(const Value& value) {
  return value.is_number_integer() || json::long_digits(value).has_value();
}

std::string_view type_of(const Value& value) {
  if (is_integer(value)) return "integer";
  if (value.is_number()) return "number";
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (value.is_array()) return "array";
  return value.is_object() ? "object" : "null";
}

/// The types that a schema allows, by its own words alone.
class SchemaTypes {
 public:
  /// `root` has the definitions that "$ref" names.
  explicit SchemaTypes(const Value* root) : root_(root) {}

  void add(const Value* schema, int depth = 0) {
    constexpr int kMaxDepth = 8;  // a definition may name itself
    if (schema == nullptr || !schema->is_object() || depth > kMaxDepth) return;
    if (!seen_.insert(schema).second) return;
    if (const Value* const type = member(schema, "type")) {
      add_names(*type);
    } else if (member(schema, "properties") != nullptr) {
      types.insert("object");
    } else if (member(schema, "items") != nullptr) {
      types.insert("array");
    }
    if (const Value* const value = member(schema, "const")) types.emplace(type_of(*value));
    if (const Value* const values = member(schema, "enum"); values && values->is_array()) {
      for (const Value& value : *values) types.emplace(type_of(value));
    }
    for (const char* const key : {"anyOf", "oneOf", "allOf"}) {
      const Value* const several = member(schema, key);
      if (several == nullptr || !several->is_array()) continue;
      for (const Value& one : *several) add(&one, depth + 1);
    }
    add(definition(member(schema, "$ref")), depth + 1);
  }

  std::set<std::string> types;  // none where nothing is said

 private:
  void add_names(const Value& type) {
    if (type.is_string()) types.insert(type.get<std::string>());
    if (!type.is_array()) return;
    for (const Value& name : type) {
      if (name.is_string()) types.insert(name.get<std::string>());
    }
  }

  /// What "#/$defs/NAME" or "#/definitions/NAME" names.
  const Value* definition(const Value* reference) const {
    if (reference == nullptr || !reference->is_string()) return nullptr;
    const std::string_view path = reference->string();
    for (const std::string_view section : {"$defs", "definitions"}) {
      const std::string front = "#/" + std::string(section) + "/";
      if (path.starts_with(front)) {
        return member(member(root_, section), path.substr(front.size()));
      }
    }
    return nullptr;
  }

  const Value* root_;
  std::set<const Value*> seen_;  // each schema once, whatever names it
};

/// The types of a parameter by the description of its function.
std::set<std::string> types_of(const Value* function, std::string_view parameter) {
  const Value* const parameters = member(function, "parameters");
  SchemaTypes found(parameters);
  found.add(member(member(parameters, "properties"), parameter));
  return std::move(found.types);
}

bool is_of(const Value& value, const std::set<std::string>& types) {
  return (value.is_boolean() && types.contains("boolean")) ||
         (is_integer(value) && types.contains("integer")) ||
         ((value.is_number() || is_integer(value)) && types.contains("number")) ||
         (value.is_object() && types.contains("object")) ||
         (value.is_array() && types.contains("array")) ||
         (value.is_null() && (types.contains("null") || !types.contains("string")));
}

/// A value in JSON. Templates print earlier calls as Python writes values, and models copy them.
std::string json_of(std::string_view value, const std::set<std::string>& types) {
  const bool is_text = types.empty() || (types.size() == 1 && types.contains("string"));
  const auto is_value = [&](std::string_view text) {
    const auto parsed = json::parse(text, "parameter", {}, json::kTextMemoryFactor);
    return parsed.ok() && is_of(*parsed, types);
  };
  if (!is_text) {
    const std::size_t begin = std::min(value.find_first_not_of(kCallSpace), value.size());
    const std::size_t end = value.find_last_not_of(kCallSpace) + 1;
    const std::string_view word = value.substr(begin, std::max(end, begin) - begin);
    if (is_value(word)) return std::string(word);
    const auto literal = python_literal_as_json(word);
    if (literal && is_value(*literal)) return *literal;
  }
  return json::to_text(Value(std::string(value)));
}

class Reader {
 public:
  Reader(std::string_view text, const ValueMarks& marks, const Value& tools)
      : text_(text), marks_(marks), tools_(tools) {}

  /// A name up to ">", then parameters, which have their names in such a mark.
  CallText read_function() {
    auto name = read_name();
    if (!name) return {};
    begin(*std::move(name));
    for (skip_space(); take(marks_.next); skip_space()) {
      const auto parameter = read_name();
      if (!parameter) return {};
      const Kind kind = read_value(*parameter);
      if (kind != Kind::kCalls) return {kind};
    }
    return finish();
  }

  /// A name, then keys and values.
  CallText read_keyed() {
    const std::size_t name_end = std::min(text_.find(marks_.next), text_.size());
    const std::string name(trimmed_call(text_.substr(0, name_end)));
    if (name.empty() || name.find_first_of("<>\n") != std::string::npos) return {};
    text_.remove_prefix(name_end);
    begin(name);
    for (; take(marks_.next); skip_space()) {
      const auto key = before("</arg_key>");
      const auto between = before("<arg_value>");
      if (!key || !between || !trimmed_call(*between).empty()) return {};
      const Kind kind = read_value(std::string(trimmed_call(*key)));
      if (kind != Kind::kCalls) return {kind};
    }
    return finish();
  }

 private:
  void skip_space() {
    text_.remove_prefix(std::min(text_.find_first_not_of(kCallSpace), text_.size()));
  }

  bool take(std::string_view mark) {
    if (!text_.starts_with(mark)) return false;
    text_.remove_prefix(mark.size());
    return true;
  }

  /// What stands before a mark, which is taken, too; nullopt where it does not come.
  std::optional<std::string_view> before(std::string_view mark) {
    const std::size_t end = text_.find(mark);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view part = text_.substr(0, end);
    text_.remove_prefix(end + mark.size());
    return part;
  }

  /// Up to ">", with quotes or without.
  std::optional<std::string> read_name() {
    const auto name = before(">");
    if (!name) return std::nullopt;
    std::string_view inner = *name;
    if (inner.size() > 1 && inner.starts_with('"') && inner.ends_with('"')) {
      inner = inner.substr(1, inner.size() - 2);
    }
    if (inner.empty() || inner.find_first_of("<\"\n") != std::string_view::npos)
      return std::nullopt;
    return std::string(inner);
  }

  void begin(std::string name) {
    function_ = find_function(tools_, name);
    call_.name = std::move(name);
  }

  Kind read_value(const std::string& name) {
    if (name.empty() || !seen_.insert(name).second) return Kind::kNone;
    const auto value = find_value();
    if (!value) return Kind::kOpen;
    if (!call_.arguments.empty()) call_.arguments += ", ";
    call_.arguments +=
        json::to_text(Value(name)) + ": " + json_of(*value, types_of(function_, name));
    return Kind::kCalls;
  }

  std::optional<std::string_view> find_value() {
    for (std::size_t end = text_.find(marks_.end); end != std::string_view::npos;
         end = text_.find(marks_.end, end + 1)) {
      const std::string_view rest = text_.substr(end + marks_.end.size());
      const std::string_view next = trimmed_call(rest);
      if (!next.empty() && !next.starts_with(marks_.next)) continue;
      std::string_view value = text_.substr(0, end);
      text_ = rest;
      skip_space();
      if (marks_.has_breaks && value.starts_with('\n')) value.remove_prefix(1);
      if (marks_.has_breaks && value.ends_with('\n')) value.remove_suffix(1);
      return value;
    }
    return std::nullopt;
  }

  CallText finish() {
    if (!text_.empty()) return {};
    call_.arguments = "{" + call_.arguments + "}";
    CallText result = {Kind::kCalls};
    result.calls.push_back(std::move(call_));
    return result;
  }

  std::string_view text_;
  const ValueMarks& marks_;
  const Value& tools_;
  const Value* function_ = nullptr;
  ToolCall call_;
  std::set<std::string> seen_;
};

}  // namespace

CallText parse_function(std::string_view text, const Value& tools) {
  return Reader(text, kFunctionValues, tools).read_function();
}

CallText parse_invoke(std::string_view text, const Value& tools) {
  return Reader(text, kInvokeValues, tools).read_function();
}

CallText parse_keyed_call(std::string_view text, const Value& tools) {
  return Reader(text, kKeyedValues, tools).read_keyed();
}

}  // namespace subbyte
