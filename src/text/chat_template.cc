#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "base/model_file.h"
#include "base/quote.h"
#include "text/tokenizer_config.h"
#include "unicode/unicode.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

using json::Value;

constexpr uint64_t kMaxFileBytes = 16 << 20;
constexpr std::string_view kConfig = "tokenizer_config.json";
constexpr std::string_view kDefault = "default";
constexpr std::string_view kForTools = "tool_use";
constexpr std::array<std::string_view, 4> kOwnVariables = {"messages", "tools", "documents",
                                                           "add_generation_prompt"};
/// Of them templates make control tokens ('<|' + message.role + '|>').
constexpr std::array<std::string_view, 10> kRoles = {
    "system", "user",    "assistant",   "tool",     "developer",
    "model",  "ipython", "observation", "function", "environment"};

/// The source of a template, and where it stands.
struct Source {
  std::string name;
  std::string text;
  std::string where;
};

Status read_file(const fs::path& path, std::string name, std::vector<Source>& sources) {
  SUBBYTE_TRY(const MappedFile file, open_model_file(path, kMaxFileBytes));
  sources.push_back({std::move(name), std::string(json::text_of(file)), path.string()});
  return {};
}

/// chat_template.jinja and those beside it.
Status read_files(const fs::path& directory, std::vector<Source>& sources) {
  const fs::path single = directory / "chat_template.jinja";
  if (is_there(single)) SUBBYTE_CHECK(read_file(single, std::string(kDefault), sources));
  std::error_code failure;
  std::vector<fs::path> paths;
  for (const auto& entry :
       fs::directory_iterator(directory / "additional_chat_templates", failure)) {
    if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  for (const fs::path& path : paths) {
    if (path.stem() == kDefault) {  // the only name that may be there before
      std::erase_if(sources, [](const Source& source) { return source.name == kDefault; });
    }
    SUBBYTE_CHECK(read_file(path, path.stem().string(), sources));
  }
  return {};
}

/// A text, a list of {"name": ..., "template": ...}, or {name: text}.
Status read_config(const Value& config, const std::string& where, std::vector<Source>& sources) {
  if (!config.is_object()) return {};
  SUBBYTE_TRY(const json::Object object, json::Object::of(config, where));
  const Value* const value = object.find("chat_template");
  if (value == nullptr || value->is_null()) return {};
  const std::string place = where + ": chat_template";
  const auto add = [&](const Value& name, const Value& text) {
    if (!name.is_string() || !text.is_string()) return false;
    const auto& known = name.string();
    sources.push_back({known, text.get<std::string>(), place + "." + known});
    return true;
  };
  bool is_read = value->is_object() || value->is_array() || value->is_string();
  if (value->is_string()) {
    sources.push_back({std::string(kDefault), value->get<std::string>(), place});
  } else if (value->is_object()) {
    for (const auto& [name, text] : value->items()) is_read = is_read && add(name, text);
  } else if (value->is_array()) {
    for (const Value& entry : *value) {
      is_read = is_read && add(entry.at("name"), entry.at("template"));
    }
  }
  if (is_read) return {};
  return object.error("json.type", "chat_template", "a text, or texts with names");
}

/// A special token is a text, or an object with its content.
void add_special_token(const std::string& name, const Value& value,
                       std::vector<jinja::Variable>& tokens) {
  const bool is_known = std::ranges::find(tokens, name, &jinja::Variable::name) != tokens.end();
  if (is_known || is_template_variable(name)) return;
  const bool is_object = value.is_object() && value.contains("content");
  const Value& content = is_object ? value["content"] : value;
  if (content.is_string()) tokens.push_back({name, content});
}

/// Those with names that the reference knows, that end in "_token", or that stand in a section.
/// `is_map`: of special_tokens_map.json, whose keys `map` has (read_tokenizer_config).
void add_special_tokens(const Value& config, const Value& map, bool is_map,
                        std::vector<jinja::Variable>& tokens) {
  if (!config.is_object()) return;
  for (const auto& [key, value] : config.items()) {
    if (!is_map && map.is_object() && map.contains(key)) continue;
    const bool is_token =
        value.is_string() || is_map || is_special_token_name(key) || is_written_token(value);
    if (key.ends_with("_token") && is_token) add_special_token(key, value, tokens);
  }
  for (const char* const section :
       {"additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"}) {
    const auto found = config.find(section);
    if (found == nullptr || !found->is_object()) continue;
    for (const auto& [key, value] : found->items()) add_special_token(key, value, tokens);
  }
}

/// What the reference's classes for Qwen have where neither file has a key. Those that it takes for
/// other families have nothing.
void add_tokens_of_class(const Value& config, const Value& map,
                         std::vector<jinja::Variable>& tokens) {
  const Value name = config.is_object() ? config.at("tokenizer_class") : Value();
  if (!name.is_string() || !name.string().starts_with("Qwen")) return;
  for (const char* const key : {"eos_token", "pad_token", "unk_token"}) {
    const bool is_said = config.contains(key) || (map.is_object() && map.contains(key));
    if (!is_said) add_special_token(key, "<|endoftext|>", tokens);
  }
}

Result<Value> read_json(const SideFiles& files, std::string_view name) {
  if (!files.has(name)) return Value();
  SUBBYTE_TRY(SideFile file, files.read(name));
  return std::move(file.value);
}

/// A message without what is null, as the reference hands it on, and with its reasoning under each
/// of the names that templates know.
Value normalized(const Value& message) {
  Value kept = Value::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  for (const char* const name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!kept.contains(name)) continue;
    const Value reasoning = kept[name];
    Value with_names = Value::object();
    if (!kept.contains("thinking")) with_names["thinking"] = reasoning;
    for (const auto& [key, value] : kept.items()) with_names[key] = value;
    with_names["reasoning_content"] = reasoning;
    return with_names;
  }
  return kept;
}

Result<Value> normalized_messages(const Value& messages) {
  if (!messages.is_array() || messages.empty()) {
    return Error{"template.messages", "messages: expected a list of at least one message"};
  }
  Value list = Value::array();
  for (const Value& message : messages) {
    if (!message.is_object()) {
      return Error{"template.messages",
                   fmt::format("messages[{}]: expected an object", list.size())};
    }
    list.push_back(normalized(message));
  }
  return list;
}

/// Stands after a message that is gone on with while it is rendered, as in the reference. A
/// template that takes white space off the ends of messages takes the space along.
constexpr std::string_view kMark = "CONTINUE_FINAL_MESSAGE_TAG ";

std::size_t end_without_space(std::string_view text) {
  while (!text.empty()) {
    const std::size_t last = utf8::last_character(text);
    if (!unicode::is_space(utf8::decode_one(text.substr(last)).value)) break;
    text = text.substr(0, last);
  }
  return text.size();
}

/// Puts the mark after the last text of a message. The text, without the space at its end.
Result<std::string> mark_end(Value& message) {
  Value* text = message.contains("content") ? &message["content"] : nullptr;
  if (text != nullptr && text->is_array()) {
    Value* last = nullptr;
    for (Value& part : *text) {
      if (Value* const found = part.find("text")) last = found;
    }
    text = last;
  }
  if (text == nullptr || !text->is_string()) {
    return Error{"template.continue",
                 "continue_final_message: expected a text as the content of the last message"};
  }
  std::string content = text->get<std::string>();
  *text = content + std::string(kMark);
  content.resize(end_without_space(content));
  return content;
}

/// What stands before the mark, which follows `content`.
Result<jinja::OriginText> cut_at_mark(const jinja::OriginText& text, const std::string& content) {
  const std::string_view bytes = text.bytes();
  const std::size_t end = bytes.rfind(kMark.substr(0, kMark.size() - 1));
  const std::size_t begin = content.find_first_not_of(" \t\r\n");
  const bool is_shown = begin == std::string::npos || bytes.find(content.substr(begin)) < end;
  if (end == std::string_view::npos || !is_shown) {
    return Error{"template.continue",
                 "continue_final_message: the template does not show the last message as it is"};
  }
  const bool keeps_space = bytes.substr(end).starts_with(kMark);
  return text.part(0, keeps_space ? end : end_without_space(bytes.substr(0, end)));
}

/// All templates of a model; `config` is its tokenizer_config.json.
Result<std::vector<Source>> read_sources(const SideFiles& files, const Value& config) {
  std::vector<Source> sources;
  if (!files.directory().empty()) SUBBYTE_CHECK(read_files(files.directory(), sources));
  if (sources.empty()) {
    SUBBYTE_CHECK(read_config(config, (files.directory() / kConfig).string(), sources));
  }
  if (sources.empty()) {
    constexpr std::string_view kOlder = "chat_template.json";
    SUBBYTE_TRY(const Value alone, read_json(files, kOlder));
    SUBBYTE_CHECK(read_config(alone, (files.directory() / kOlder).string(), sources));
  }
  return sources;
}

bool is_list_of_objects(const Value& value) {
  return value.is_array() && std::ranges::all_of(value, &Value::is_object);
}

}  // namespace

Result<std::optional<ChatTemplate>> ChatTemplate::read(const SideFiles& files) {
  SUBBYTE_TRY(const Value config, read_json(files, kConfig));
  SUBBYTE_TRY(const std::vector<Source> sources, read_sources(files, config));
  if (sources.empty()) return std::optional<ChatTemplate>();
  ChatTemplate result;
  for (const Source& source : sources) {
    if (source.name != kDefault && source.name != kForTools) continue;
    SUBBYTE_TRY(auto compiled, jinja::Template::compile(source.text, source.where));
    result.templates_.push_back({source.name, source.text, std::move(compiled)});
  }
  SUBBYTE_CHECK(result.read_special_tokens(config, files));
  return std::optional(std::move(result));
}

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, std::string_view where,
                                           const SideFiles& files) {
  SUBBYTE_TRY(auto compiled, jinja::Template::compile(source, where));
  ChatTemplate result;
  result.templates_.push_back({std::string(kDefault), std::string(source), std::move(compiled)});
  SUBBYTE_TRY(const Value config, read_json(files, kConfig));
  SUBBYTE_CHECK(result.read_special_tokens(config, files));
  return result;
}

Status ChatTemplate::read_special_tokens(const Value& config, const SideFiles& files) {
  Value map;
  if (!config.is_object() || !config.contains("added_tokens_decoder")) {
    SUBBYTE_TRY(map, read_json(files, "special_tokens_map.json"));
    add_special_tokens(map, map, true, special_tokens_);
  }
  add_special_tokens(config, map, false, special_tokens_);
  add_tokens_of_class(config, map, special_tokens_);
  return {};
}

Result<jinja::OriginText> ChatTemplate::render(const TemplateInput& input) const {
  const jinja::Template* chosen = input.tools.is_null() ? nullptr : find(kForTools);
  if (chosen == nullptr) chosen = find(kDefault);
  if (chosen == nullptr) {
    return Error{"template.name", "the model has named chat templates, and none is the default"};
  }
  SUBBYTE_TRY(Value messages, normalized_messages(input.messages));
  std::string last;
  if (input.continue_final_message) {
    SUBBYTE_TRY(last, mark_end(messages[messages.size() - 1]));
  }
  SUBBYTE_TRY(const auto variables, variables_of(input, std::move(messages)));
  SUBBYTE_TRY(jinja::OriginText text,
              chosen->render(variables, {.now = input.now, .roles = kRoles, .limits = {}}));
  return input.continue_final_message ? cut_at_mark(text, last) : std::move(text);
}

Result<std::vector<jinja::Variable>> ChatTemplate::variables_of(const TemplateInput& input,
                                                                Value messages) const {
  using jinja::Origin;
  if (!input.tools.is_null() && !is_list_of_objects(input.tools)) {
    return Error{"template.tools", "tools: expected a list of objects"};
  }
  std::vector<jinja::Variable> variables;
  const auto documents = input.variables.find("documents");
  const bool has_documents = documents != nullptr && !documents->is_null();
  if (has_documents && !is_list_of_objects(*documents)) {
    return Error{"template.variable", "documents: expected a list of objects"};
  }
  variables.push_back({"messages", std::move(messages), Origin::kInput});
  variables.push_back({"tools", input.tools, Origin::kInput});
  variables.push_back({"documents", has_documents ? *documents : Value(), Origin::kInput});
  variables.push_back(
      {"add_generation_prompt", input.add_generation_prompt && !input.continue_final_message});
  for (const auto& [name, value] : input.variables.items()) {
    if (name == "documents") continue;
    if (is_template_variable(name)) {
      return Error{"template.variable",
                   fmt::format("{} is given by the conversation and cannot be set", quote(name))};
    }
    variables.push_back({name, value, Origin::kInput});
  }
  for (const jinja::Variable& token : special_tokens_) {
    if (!input.variables.contains(token.name)) variables.push_back(token);
  }
  return variables;
}

bool ChatTemplate::reads(std::string_view variable) const {
  return std::ranges::any_of(templates_,
                             [&](const Named& named) { return named.compiled.reads(variable); });
}

bool ChatTemplate::contains(std::string_view text) const {
  return std::ranges::any_of(
      templates_, [&](const Named& named) { return named.source.find(text) != std::string::npos; });
}

const jinja::Template* ChatTemplate::find(std::string_view name) const {
  const auto found = std::ranges::find(templates_, name, &Named::name);
  return found == templates_.end() ? nullptr : &found->compiled;
}

Result<std::vector<std::string>> chat_template_texts(const SideFiles& files) {
  SUBBYTE_TRY(auto templates, named_chat_templates(files));
  std::vector<std::string> texts;
  for (auto& [name, text] : templates) texts.push_back(std::move(text));
  return texts;
}

Result<std::vector<std::pair<std::string, std::string>>> named_chat_templates(
    const SideFiles& files) {
  SUBBYTE_TRY(const Value config, read_json(files, kConfig));
  SUBBYTE_TRY(std::vector<Source> sources, read_sources(files, config));
  std::vector<std::pair<std::string, std::string>> templates;
  for (Source& source : sources) {
    templates.emplace_back(std::move(source.name), std::move(source.text));
  }
  return templates;
}

bool is_template_variable(std::string_view name) {
  return std::ranges::find(kOwnVariables, name) != kOwnVariables.end();
}

std::optional<std::tm> parse_time(std::string_view text) {
  std::tm time{};
  int end = 0;
  const std::string copy(text);
  const int fields =
      std::sscanf(copy.c_str(), "%4d-%2d-%2d%nT%2d:%2d:%2d%n", &time.tm_year, &time.tm_mon,
                  &time.tm_mday, &end, &time.tm_hour, &time.tm_min, &time.tm_sec, &end);
  const bool is_whole =
      (fields == 3 || fields == 6) && static_cast<std::size_t>(end) == text.size();
  if (!is_whole || time.tm_year < 1000 || time.tm_mon < 1 || time.tm_mon > 12 || time.tm_mday < 1 ||
      time.tm_mday > 31 || time.tm_hour > 23 || time.tm_min > 59 || time.tm_sec > 60) {
    return std::nullopt;
  }
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  const std::tm asked = time;
  timegm(&time);  // the day of the week and of the year
  return time.tm_mday == asked.tm_mday ? std::optional(time) : std::nullopt;
}

}  // namespace subbyte
