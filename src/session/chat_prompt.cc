#include "session/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/quote.h"
#include "session/call_arguments.h"
#include "text/chat_messages.h"

namespace subbyte {
namespace {

using json::Value;

constexpr std::string_view kThinking = "enable_thinking";
constexpr std::string_view kOlderThinking = "thinking";
constexpr std::string_view kEffort = "reasoning_effort";
constexpr std::array<std::string_view, 3> kHarmonyEfforts = {"low", "medium", "high"};

Error no_option(std::string_view problem) {
  return {"chat.option", std::string(problem)};
}

Status check_by_template(const ChatTemplate& own, const Request& request) {
  if (!request.tools.is_null() && !own.reads("tools")) {
    return no_option("tools: the model's chat template has no place for them");
  }
  if (request.thinking && !own.reads(kThinking) && !own.reads(kOlderThinking)) {
    return no_option(fmt::format("{}: the model's chat template does not read it{}", kThinking,
                                 own.reads(kEffort) ? "; it has reasoning_effort" : ""));
  }
  if (request.effort && !own.reads(kEffort)) {
    return no_option(fmt::format("{}: the model's chat template does not read it", kEffort));
  }
  for (const auto& [name, value] : request.template_variables.items()) {
    if (!value.is_null() && !own.reads(name)) {
      return no_option(
          fmt::format("{}: the model's chat template does not read it", quote_name(name)));
    }
  }
  return {};
}

/// What is said of thinking, by either name.
std::optional<bool> thinking_of(const Request& request) {
  const Value& variables = request.template_variables;
  const auto found = variables.find(kThinking);
  const bool is_said = found != nullptr && found->is_boolean();
  return is_said ? found->get<bool>() : request.thinking;
}

Status check_by_format(const TextSetup& text, const Request& request) {
  if (text.format == ChatFormat::kNone) {
    return Error{"chat.no_template",
                 "the model has no chat template, and its family no built-in format for chats"};
  }
  if (!request.tools.is_null()) {
    return no_option("tools: the model has no chat template, and the built-in formats no tools");
  }
  if (!request.add_generation_prompt || request.continue_final_message) {
    return no_option(fmt::format(
        "{}: the model has no chat template, which it is for",
        request.continue_final_message ? "continue_final_message" : "add_generation_prompt"));
  }
  for (const auto& [name, value] : request.template_variables.items()) {
    if (!value.is_null() && name != kThinking) {
      return no_option(
          fmt::format("{}: the model has no chat template that could read it", quote_name(name)));
    }
  }
  const bool is_harmony = text.format == ChatFormat::kHarmony;
  const bool has_marks = text.tokenizer.find("<think>") && text.tokenizer.find("</think>");
  if (!thinking_of(request).value_or(true) && (is_harmony || !has_marks)) {
    return no_option(fmt::format("{}: {}", kThinking,
                                 is_harmony ? "the model always reasons; it has reasoning_effort"
                                            : "the model's tokenizer has no <think>"));
  }
  if (!request.effort) return {};
  if (!is_harmony) return no_option(fmt::format("{}: the model has no such setting", kEffort));
  if (std::ranges::find(kHarmonyEfforts, *request.effort) != kHarmonyEfforts.end()) return {};
  return no_option(
      fmt::format("{}: expected low, medium or high, found {}", kEffort, quote(*request.effort)));
}

/// Whether the template shows what a developer says.
bool knows_developers(const ChatTemplate& own) {
  constexpr const char* kSaid = "7f3c said by a developer";
  TemplateInput probe;
  probe.messages = {{{"role", "developer"}, {"content", kSaid}},
                    {{"role", "user"}, {"content", "a"}}};
  const auto text = own.render(probe);
  return text.ok() && text->bytes().find(kSaid) != std::string::npos;
}

Value with_system(Value messages, const ChatTemplate& own) {
  const auto is_developer = [](const Value& message) { return message.at("role") == "developer"; };
  if (!std::ranges::any_of(messages, is_developer) || knows_developers(own)) return messages;
  for (Value& message : messages) {
    if (is_developer(message)) message["role"] = "system";
  }
  return messages;
}

/// Whether the template looks into a content that is a list, and shows its texts one after the
/// other: others print the list, or nothing. Results of tools are texts for all that we know of.
bool shows_parts(const ChatTemplate& own, const std::string& role) {
  constexpr std::string_view kFirst = "7f3c the first";
  constexpr std::string_view kSecond = "7f3c the second";
  if (role == "tool") return false;
  const Value part = {
      {"role", role},
      {"content", {{{"type", "text"}, {"text", kFirst}}, {{"type", "text"}, {"text", kSecond}}}}};
  const Value user = {{"role", "user"}, {"content", "a"}};
  TemplateInput probe;
  if (role == "assistant") probe.messages.push_back(user);
  probe.messages.push_back(part);
  if (role != "user") probe.messages.push_back(user);
  const auto text = own.render(probe);
  if (!text.ok()) return false;
  const std::string_view bytes = text->bytes();
  const std::size_t first = bytes.find(kFirst);
  const std::size_t second = bytes.find(kSecond);
  if (first == bytes.npos || second == bytes.npos || first > second) return false;
  return bytes.substr(first, second - first).find("type") == bytes.npos;
}

/// Lists of parts become texts, but for roles whose lists the template looks into.
void join_parts(const ChatTemplate& own, Value& messages) {
  std::map<std::string, bool> shown;  // by role
  for (Value& message : messages) {
    if (!message.is_object()) continue;
    const auto content = message.find("content");
    if (content == nullptr || !content->is_array()) continue;
    const Value role = message.at("role");
    const auto name = role.is_string() ? role.get<std::string>() : std::string();
    const auto [found, is_new] = shown.try_emplace(name, false);
    if (is_new) found->second = shows_parts(own, name);
    if (!found->second) *content = text_of_content(*content);
  }
}

/// The variables by the names that templates have for request.
Value variables_of(const ChatTemplate& own, const Request& request) {
  Value variables = Value::object();
  const auto set = [&](std::string_view name, Value value) {
    if (own.reads(name)) variables[std::string(name)] = std::move(value);
  };
  if (request.thinking) {
    set(kThinking, *request.thinking);
    set(kOlderThinking, *request.thinking);
  }
  if (request.effort) set(kEffort, *request.effort);
  for (const auto& [name, value] : request.template_variables.items()) {
    if (!value.is_null()) variables[name] = value;
  }
  return variables;
}

Result<std::vector<TokenId>> encode_by_template(const TextSetup& text, const ChatTemplate& own,
                                                const Request& request) {
  SUBBYTE_TRY(const TemplateInput input, template_input(own, request));
  SUBBYTE_TRY(const jinja::OriginText prompt, own.render(input));
  std::vector<ByteRange> written;
  std::size_t begin = 0;
  for (const jinja::OriginText::Run& run : prompt.runs()) {
    if (run.origin == jinja::Origin::kTemplate) written.push_back({begin, run.end});
    begin = run.end;
  }
  return encode(text.tokenizer, prompt.bytes(), written);
}

}  // namespace

Result<TemplateInput> template_input(const ChatTemplate& own, const Request& request) {
  SUBBYTE_CHECK(check_by_template(own, request));
  TemplateInput input;
  input.messages = with_system(to_json(request.messages), own);
  join_parts(own, input.messages);
  input.tools = request.tools;
  input.variables = variables_of(own, request);
  input.add_generation_prompt = request.add_generation_prompt;
  input.continue_final_message = request.continue_final_message;
  input.now = parse_time(request.date ? *request.date : time_now()).value_or(std::tm{});
  fit_arguments(own, input);
  return input;
}

Status check_chat_options(const TextSetup& text, const Request& request) {
  SUBBYTE_TRY(const auto own, text.template_of(request));
  return own == nullptr ? check_by_format(text, request) : check_by_template(*own, request);
}

Result<std::vector<TokenId>> encode_chat(const TextSetup& text, const Request& request) {
  SUBBYTE_TRY(const auto own, text.template_of(request));
  if (own != nullptr) return encode_by_template(text, *own, request);
  SUBBYTE_TRY(const auto segments, built_in_prompt(text, request));
  return encode_segments(text.tokenizer, segments);
}

Result<std::vector<PromptSegment>> built_in_prompt(const TextSetup& text, const Request& request) {
  SUBBYTE_CHECK(check_by_format(text, request));
  SUBBYTE_TRY(const std::vector<Message> plain, plain_messages(to_json(request.messages)));
  const Request told = {.thinking = thinking_of(request),
                        .effort = request.effort,
                        .date = request.date ? *request.date : time_now()};
  return render_chat(text.format, plain, told);
}

Status add_template_variables(const json::Object& object, Value& variables) {
  SUBBYTE_CHECK(object.boolean(kThinking));  // "false" would be true
  for (const auto& [name, value] : object.members()) {
    if (is_template_variable(name)) {
      return object.error("chat.option", name, "names that the conversation does not give");
    }
    variables[name] = value;
  }
  return {};
}

bool chats_name_the_day(const TextSetup& text) {
  if (!text.chat_template) {
    return text.format == ChatFormat::kHarmony || text.format == ChatFormat::kDatedHeaders;
  }
  return text.chat_template->ok() && text.chat_template->value().reads("strftime_now");
}

}  // namespace subbyte
