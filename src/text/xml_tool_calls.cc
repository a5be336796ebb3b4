// Calls of tools as Qwen3-Coder and Qwen3.5 write them, which cannot quote a mark in a value:
//
//   <function=NAME>
//   <parameter=NAME>
//   value, the line breaks beside it are not of it
//   </parameter>
//   </function>
//
// A value ends at the first </parameter> before another parameter or the end of its function.
// MiniMax writes <invoke name="NAME">, <parameter name="NAME"> and </invoke>. GLM writes a name,
// then an <arg_key> and an <arg_value> for each argument.

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "json/strict_json.h"
#include "text/python_literal.h"
#include "text/tool_calls.h"

namespace subbyte {
namespace {

using json::Value;
using Kind = CallText::Kind;

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kParameterEnd = "</parameter>";

struct XmlMarks {
  std::string_view function, function_end, parameter, name_end;
};
constexpr XmlMarks kFunctions = {"<function=", "</function>", "<parameter=", ">"};
constexpr XmlMarks kInvokes = {"<invoke name=\"", "</invoke>", "<parameter name=\"", "\">"};

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
    const std::size_t begin = std::min(value.find_first_not_of(kSpace), value.size());
    const std::size_t end = value.find_last_not_of(kSpace) + 1;
    const std::string_view word = value.substr(begin, std::max(end, begin) - begin);
    if (is_value(word)) return std::string(word);
    const auto literal = python_literal_as_json(word);
    if (literal && is_value(*literal)) return *literal;
  }
  return json::to_text(Value(std::string(value)));
}

class Reader {
 public:
  Reader(std::string_view text, const XmlMarks& marks, const Value& tools)
      : text_(text), marks_(marks), tools_(tools) {}

  CallText read() {
    CallText result = {Kind::kCalls};
    for (skip_space(); !text_.empty(); skip_space()) {
      const Kind kind = read_function(result.calls);
      if (kind != Kind::kCalls) return {kind};
    }
    return result.calls.empty() ? CallText{} : result;
  }

 private:
  void skip_space() {
    text_.remove_prefix(std::min(text_.find_first_not_of(kSpace), text_.size()));
  }

  bool take(std::string_view mark) {
    if (!text_.starts_with(mark)) return false;
    text_.remove_prefix(mark.size());
    return true;
  }

  /// The name in a mark.
  std::optional<std::string> read_name(std::string_view mark) {
    if (!take(mark)) return std::nullopt;
    const std::size_t end = std::min(text_.find_first_of("<>\n"), text_.find(marks_.name_end));
    if (end == std::string_view::npos || end == 0) return std::nullopt;
    std::string name(text_.substr(0, end));
    text_.remove_prefix(end);
    return take(marks_.name_end) ? std::optional(std::move(name)) : std::nullopt;
  }

  Kind read_function(std::vector<ToolCall>& calls) {
    auto name = read_name(marks_.function);
    if (!name) return Kind::kNone;
    const Value* const function = find_function(tools_, *name);
    std::set<std::string> seen;
    std::string arguments;
    for (skip_space(); text_.starts_with(marks_.parameter); skip_space()) {
      auto parameter = read_name(marks_.parameter);
      if (!parameter || !seen.insert(*parameter).second) return Kind::kNone;
      const auto value = read_value();
      if (!value) return Kind::kOpen;
      if (!arguments.empty()) arguments += ", ";
      arguments +=
          json::to_text(Value(*parameter)) + ": " + json_of(*value, types_of(function, *parameter));
    }
    // The end of the call is that of its function, too.
    if (!take(marks_.function_end) && !text_.empty()) return Kind::kNone;
    calls.push_back({*std::move(name), "{" + arguments + "}"});
    return Kind::kCalls;
  }

  std::optional<std::string_view> read_value() {
    for (std::size_t end = text_.find(kParameterEnd); end != std::string_view::npos;
         end = text_.find(kParameterEnd, end + 1)) {
      std::string_view rest = text_.substr(end + kParameterEnd.size());
      rest.remove_prefix(std::min(rest.find_first_not_of(kSpace), rest.size()));
      const bool is_end = rest.empty() || rest.starts_with(marks_.parameter) ||
                          rest.starts_with(marks_.function_end);
      if (!is_end) continue;
      std::string_view value = text_.substr(0, end);
      text_ = rest;
      if (value.starts_with('\n')) value.remove_prefix(1);
      if (value.ends_with('\n')) value.remove_suffix(1);
      return value;
    }
    return std::nullopt;
  }

  std::string_view text_;
  const XmlMarks& marks_;
  const Value& tools_;
};

}  // namespace

CallText parse_keyed_calls(std::string_view text, const Value& tools) {
  const auto trimmed = [](std::string_view part) {
    const std::size_t begin = std::min(part.find_first_not_of(kSpace), part.size());
    return part.substr(begin, std::max(part.find_last_not_of(kSpace) + 1, begin) - begin);
  };
  // What stands before a mark, which is taken, too; nullopt where it does not come.
  const auto before = [&](std::string_view mark) -> std::optional<std::string_view> {
    const std::size_t end = text.find(mark);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(end + mark.size());
    return part;
  };
  auto next = before("<arg_key>");
  ToolCall call = {std::string(trimmed(next.value_or(text))), {}};
  if (call.name.empty() || call.name.find_first_of("<>\n") != std::string::npos) return {};
  const Value* const function = find_function(tools, call.name);
  std::set<std::string> seen;
  while (next) {
    const auto key = before("</arg_key>");
    const auto between = before("<arg_value>");
    if (!key || !between || !trimmed(*between).empty()) return {};
    const auto value = before("</arg_value>");
    if (!value) return {Kind::kOpen};
    const std::string name(trimmed(*key));
    if (name.empty() || !seen.insert(name).second) return {};
    if (!call.arguments.empty()) call.arguments += ", ";
    call.arguments += json::to_text(Value(name)) + ": " + json_of(*value, types_of(function, name));
    next = before("<arg_key>");
    if (!trimmed(next.value_or(text)).empty()) return {};
  }
  call.arguments = "{" + call.arguments + "}";
  CallText result = {Kind::kCalls};
  result.calls.push_back(std::move(call));
  return result;
}

CallText parse_xml_calls(std::string_view text, ToolCallStyle style, const Value& tools) {
  return Reader(text, style == ToolCallStyle::kInvokes ? kInvokes : kFunctions, tools).read();
}

}  // namespace subbyte
