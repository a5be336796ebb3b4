#include "completions/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "base/quote.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "session/chat_prompt.h"

namespace subbyte {
namespace {

using json::Object;
using json::Value;

using json::KeyRule;
using json::KeyUse;

constexpr std::array kRequestRules = {
#define SUBBYTE_KEY(key, use, neutral, note) KeyRule{key, KeyUse::use, neutral},
#include "completions/request_keys.def"
};
constexpr std::array kMessageRules = {
#include "completions/message_keys.def"
#undef SUBBYTE_KEY
};

/// Every field that asks for something has a rule and does not ask for what is not computed.
Status check_fields(const Object& object, std::span<const KeyRule> rules,
                    std::span<const std::string_view> others = {}) {
  for (const auto& [name, value] : object.members()) {
    if (value.is_null() || json::find_rule(rules, name)) continue;
    if (std::ranges::find(others, name) != others.end()) continue;
    return Error{"completion.field",
                 fmt::format("{}: the field {} is not known", object.where(), quote(name))};
  }
  return json::check_keys(object, rules, "completion.field");
}

/// {"1234": -100, "5": 2.5}: a bias for each token.
Status read_biases(const Object& body, std::vector<LogitBias>& biases) {
  SUBBYTE_TRY(const auto section, body.object("logit_bias"));
  if (!section) return {};
  for (const auto& [key, value] : section->members()) {
    LogitBias bias{};
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), bias.token);
    const bool is_id = error == std::errc() && end == key.data() + key.size() && bias.token >= 0;
    if (!is_id) return section->error("json.range", key, "a token id as the name of a bias");
    SUBBYTE_TRY(const auto number, section->number(key, -100, 100));
    if (!number) continue;
    bias.bias = static_cast<float>(*number);
    biases.push_back(bias);
  }
  std::ranges::sort(biases, {}, &LogitBias::token);
  const auto twin = std::ranges::adjacent_find(biases, {}, &LogitBias::token);
  if (twin == biases.end()) return {};
  return Error{"json.duplicate_key",
               fmt::format("{}: token {} is there twice", section->where(), twin->token)};
}

Status read_sampling(const Object& body, Sampling& sampling) {
  Sampling said;
  SUBBYTE_TRY(said.temperature, body.number("temperature", 0, 100));
  SUBBYTE_TRY(said.top_k, body.integer("top_k", -1, 1'000'000'000));
  SUBBYTE_TRY(said.top_p, body.number("top_p", 1e-6, 1));
  SUBBYTE_TRY(said.min_p, body.number("min_p", 0, 1));
  SUBBYTE_TRY(said.repetition_penalty, body.number("repetition_penalty", 0.01, 100));
  SUBBYTE_TRY(said.frequency_penalty, body.number("frequency_penalty", -2, 2));
  SUBBYTE_TRY(said.presence_penalty, body.number("presence_penalty", -2, 2));
  SUBBYTE_TRY(const auto seed, body.integer("seed", 0, std::numeric_limits<int64_t>::max()));
  if (seed) said.seed = static_cast<uint64_t>(*seed);
  SUBBYTE_CHECK(read_biases(body, said.biases));
  sampling = or_else(said, sampling);
  return check_sampling(resolve(sampling, {}));
}

/// A list of token ids, perhaps absent.
Status read_tokens(const Object& body, std::string_view key, std::vector<TokenId>& tokens) {
  const Value* list = body.find(key);
  if (list == nullptr || list->is_null()) return {};
  const auto is_token = [](const Value& token) {
    return token.is_number_unsigned() &&
           token.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<TokenId>::max());
  };
  if (!list->is_array() || !std::ranges::all_of(*list, is_token)) {
    return body.error("json.type", key, "a list of token ids");
  }
  for (const Value& token : *list) tokens.push_back(token.get<TokenId>());
  return {};
}

Status read_stops(const Object& body, std::vector<std::string>& stops) {
  const Value* value = body.find("stop");
  if (value == nullptr || value->is_null()) return {};
  bool has_own = false;
  const Value list = value->is_array() ? *value : Value::array({*value});
  if (!std::ranges::all_of(list, &Value::is_string) || std::ssize(list) > kMaxStops) {
    return body.error("json.type", "stop", fmt::format("a text or at most {} of them", kMaxStops));
  }
  for (const Value& stop : list) {  // an empty text asks for nothing
    if (stop.string().empty()) continue;
    if (std::exchange(has_own, true) == false) stops.clear();
    stops.push_back(stop.get<std::string>());
  }
  return {};
}

/// Whether it asks for a chat.
bool has_messages(const Object& body) {
  return body.has("messages");
}

/// A number for texts, true or false with a number beside it for chats.
Status read_logprobs(const Object& body, CompletionRequest& request) {
  if (!has_messages(body)) {
    SUBBYTE_TRY(const auto beside, body.integer("top_logprobs", 0, kMaxTopLogprobs));
    if (beside.value_or(0) != 0) {
      return body.error("completion.field", "top_logprobs", "0: \"logprobs\" is the number");
    }
    const Value* const number = body.find("logprobs");
    if (number != nullptr && *number == false) return {};
    SUBBYTE_TRY(request.num_top_logprobs, body.integer("logprobs", 0, kMaxTopLogprobs));
    return {};
  }
  SUBBYTE_TRY(const auto wanted, body.boolean("logprobs"));
  SUBBYTE_TRY(const auto top, body.integer("top_logprobs", 0, kMaxTopLogprobs));
  if (wanted.value_or(false)) request.num_top_logprobs = top.value_or(0);
  if (wanted.value_or(false) || top.value_or(0) == 0) return {};
  return body.error("completion.field", "top_logprobs", "\"logprobs\": true with it");
}

Status read_prompt(const Object& body, const Value& prompt, CompletionRequest& request) {
  if (prompt.is_string()) {
    request.prompt = prompt.get<std::string>();
    if (request.prompt.empty()) return body.error("json.type", "prompt", "a text with characters");
    return {};
  }
  const bool is_list = prompt.is_array() && !prompt.empty();
  if (is_list && (prompt[0].is_string() || prompt[0].is_array())) {
    return body.error("json.type", "prompt", "one prompt, as each has a line of its own");
  }
  if (!is_list || !read_tokens(body, "prompt", request.prompt_tokens).ok()) {
    return body.error("json.type", "prompt", "a text, or a list of token ids");
  }
  return {};
}

/// A text, or a list of parts that are texts: the template decides what it makes of several. What a
/// caller says of caching changes no answer.
Result<Value> read_content(const Object& message) {
  const Value* content = message.find("content");
  if (content == nullptr || !content->is_array()) {
    SUBBYTE_TRY(const std::string text, message.required_string("content"));
    return Value(text);
  }
  Value parts = Value::array();
  for (const Value& value : *content) {
    SUBBYTE_TRY(const Object part, Object::of(value, message.where() + ".content"));
    SUBBYTE_TRY(const std::string type, part.required_string("type"));
    if (type != "text") return part.error("completion.field", "type", "\"text\"");
    for (const auto& [name, field] : part.members()) {
      if (name == "type" || name == "text" || name == "cache_control" || field.is_null()) continue;
      return Error{"completion.field",
                   fmt::format("{}: the field {} is not known", part.where(), quote(name))};
    }
    SUBBYTE_TRY(const std::string text, part.required_string("text"));
    parts.push_back({{"type", "text"}, {"text", text}});
  }
  if (parts.size() > 1) return parts;
  return Value(parts.empty() ? std::string() : parts[0]["text"].get<std::string>());
}

bool is_list_of_objects(const Value& value) {
  return value.is_array() && std::ranges::all_of(value, &Value::is_object);
}

/// A field that asks for something; nullptr without one.
const Value* find_asked(const Object& object, std::string_view key) {
  const Value* const value = object.find(key);
  const bool is_nothing =
      value == nullptr || value->is_null() || (value->is_array() && value->empty());
  return is_nothing ? nullptr : value;
}

/// A call of a function. Its arguments may be anything: the template decides which form they have
/// (session/call_arguments.h).
Status check_call(const Value& call, const std::string& where) {
  SUBBYTE_TRY(const Object object, Object::of(call, where));
  SUBBYTE_TRY(const auto type, object.string("type"));
  if (type.value_or("function") != "function") {
    return object.error("completion.field", "type", "\"function\"");
  }
  SUBBYTE_CHECK(object.string("id"));
  SUBBYTE_TRY(const auto function, object.object("function"));
  if (!function) return object.error("json.missing", "function", "an object");
  SUBBYTE_CHECK(function->required_string("name"));
  return {};
}

/// What only one role has.
Status check_role_fields(const Object& message, std::string_view role) {
  constexpr std::array<std::string_view, 3> kOfAssistant = {"reasoning_content", "reasoning",
                                                            "tool_calls"};
  for (const std::string_view key : kOfAssistant) {
    const Value* const value = find_asked(message, key);
    if (value == nullptr || *value == "" || role == "assistant") continue;
    return message.error("completion.field", key,
                         "nothing, as an assistant's message alone has it");
  }
  for (const char* const key : {"reasoning_content", "reasoning", "name", "tool_call_id"}) {
    SUBBYTE_CHECK(message.string(key));
  }
  const Value* const older = find_asked(message, "reasoning_content");
  const Value* const newer = find_asked(message, "reasoning");
  if (older == nullptr || newer == nullptr || *older == *newer) return {};
  return message.error("completion.field", "reasoning", "the same text as \"reasoning_content\"");
}

/// A message with the fields that a template may see.
Result<Value> read_message(const Value& value, const std::string& where) {
  constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                      "tool"};
  SUBBYTE_TRY(const Object message, Object::of(value, where));
  SUBBYTE_TRY(const std::string role, message.required_string("role"));
  if (std::ranges::find(kRoles, role) == kRoles.end()) {
    return message.error("completion.role", "role", "system, developer, user, assistant or tool");
  }
  SUBBYTE_CHECK(check_fields(message, kMessageRules));
  SUBBYTE_CHECK(check_role_fields(message, role));
  Value result = Value::object();
  for (const auto& [key, field] : message.members()) {
    const KeyRule* const rule = json::find_rule(kMessageRules, key);
    const bool is_seen = rule != nullptr && rule->use == KeyUse::kComputed;
    if (is_seen && find_asked(message, key) != nullptr) result[key] = field;
  }
  const bool has_calls = result.contains("tool_calls");
  // Beside calls, and where an assistant has only thought, there may be none: the reference leaves
  // it out.
  const bool is_null = role == "assistant" && message.find("content") && !message.has("content");
  if (!is_null && (!has_calls || message.has("content"))) {
    SUBBYTE_TRY(result["content"], read_content(message));
  }
  if (!has_calls) return result;
  const Value& list = result["tool_calls"];
  if (!is_list_of_objects(list)) {
    return message.error("json.type", "tool_calls", "a list of objects");
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    SUBBYTE_CHECK(check_call(list[i], fmt::format("{}.tool_calls[{}]", where, i)));
  }
  return result;
}

Status check_tool_choice(const Object& body) {
  SUBBYTE_TRY(const auto choice, body.string("tool_choice"));
  if (!choice || *choice == "auto" || *choice == "none") return {};
  return body.error("completion.field", "tool_choice", "\"auto\" or \"none\"");
}

/// Functions that the model is told of.
Status read_tools(const Object& body, Request& request) {
  const Value* const tools = find_asked(body, "tools");
  if (tools == nullptr) return {};
  if (!is_list_of_objects(*tools)) return body.error("json.type", "tools", "a list of objects");
  for (const Value& value : *tools) {
    SUBBYTE_TRY(const Object tool, Object::of(value, body.where() + ": tools"));
    SUBBYTE_TRY(const auto type, tool.string("type"));
    if (type.value_or("function") != "function")
      return tool.error("completion.field", "type", "\"function\"");
  }
  const Value* const choice = body.find("tool_choice");
  if (choice == nullptr || *choice != "none") request.tools = *tools;
  return {};
}

Status read_effort(const Object& body, Request& request) {
  constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium",
                                                        "high", "xhigh",   "max"};
  SUBBYTE_TRY(const auto effort, body.string("reasoning_effort"));
  if (!effort) return {};
  if (std::ranges::find(kEfforts, *effort) == kEfforts.end()) {
    return body.error("json.range", "reasoning_effort",
                      "none, minimal, low, medium, high, xhigh or max");
  }
  request.effort = effort;
  return {};
}

/// Where the prompt ends.
Status read_prompt_end(const Object& body, Request& request) {
  SUBBYTE_TRY(const auto begins, body.boolean("add_generation_prompt"));
  SUBBYTE_TRY(const auto goes_on, body.boolean("continue_final_message"));
  request.continue_final_message = goes_on.value_or(false);
  request.add_generation_prompt = begins.value_or(!request.continue_final_message);
  if (!request.continue_final_message || !request.add_generation_prompt) return {};
  return body.error("completion.field", "add_generation_prompt",
                    "false with \"continue_final_message\"");
}

Status read_chat_options(const Object& body, Request& request) {
  SUBBYTE_CHECK(check_tool_choice(body));
  SUBBYTE_CHECK(read_effort(body, request));
  SUBBYTE_CHECK(read_prompt_end(body, request));
  SUBBYTE_TRY(const auto own, body.string("chat_template"));
  request.chat_template = own.value_or("");
  Value variables = request.template_variables;
  if (const Value* const documents = find_asked(body, "documents")) {
    if (!is_list_of_objects(*documents)) {
      return body.error("json.type", "documents", "a list of objects");
    }
    variables["documents"] = *documents;
  }
  SUBBYTE_TRY(const auto arguments, body.object("chat_template_kwargs"));
  if (arguments) SUBBYTE_CHECK(add_template_variables(*arguments, variables));
  request.template_variables = std::move(variables);
  return {};
}

/// Fields that are for messages ask for nothing beside a prompt.
Status check_no_chat(const Object& body) {
  constexpr std::array kOfChats = {
      KeyRule{"tools", KeyUse::kRefused, "[]"},
      KeyRule{"documents", KeyUse::kRefused, "[]"},
      KeyRule{"reasoning_effort", KeyUse::kRefused, ""},
      KeyRule{"chat_template", KeyUse::kRefused, "\"\""},
      KeyRule{"chat_template_kwargs", KeyUse::kRefused, "{}"},
      KeyRule{"add_generation_prompt", KeyUse::kRefused, "true"},
      KeyRule{"continue_final_message", KeyUse::kRefused, "false"},
  };
  for (const auto& [key, value] : body.members()) {
    const KeyRule* const rule = json::find_rule(kOfChats, key);
    if (rule == nullptr || json::asks_for_nothing(*rule, value)) continue;
    return body.error("completion.field", key, "nothing, as a prompt is no chat");
  }
  return {};
}

/// What tokenizer.json puts around a prompt; of a chat its template has it.
Status read_added_tokens(const Object& body, CompletionRequest& request) {
  SUBBYTE_TRY(const auto adds, body.boolean("add_special_tokens"));
  const bool is_chat = has_messages(body);
  if (!is_chat) request.adds_tokens = adds.value_or(true);
  if (!is_chat || !adds.value_or(false)) return {};
  return body.error("completion.field", "add_special_tokens",
                    "false, as the template of a chat has them");
}

/// How long the answer may be, and what ends it.
Status read_ends(const Object& body, const Request& defaults, CompletionRequest& request) {
  constexpr int64_t kMaxTokens = int64_t{1} << 40;
  const int64_t least = request.echo ? 0 : 1;
  SUBBYTE_TRY(const auto max_tokens, body.integer("max_tokens", least, kMaxTokens));
  SUBBYTE_TRY(const auto newer, body.integer("max_completion_tokens", least, kMaxTokens));
  SUBBYTE_TRY(const auto min_tokens, body.integer("min_tokens", 0, kMaxTokens));
  SUBBYTE_TRY(const auto ignore_eos, body.boolean("ignore_eos"));
  if (max_tokens && newer && *max_tokens != *newer) {
    return body.error("completion.field", "max_completion_tokens",
                      fmt::format("the same number as \"max_tokens\" ({})", *max_tokens));
  }
  request.max_tokens = newer.value_or(max_tokens.value_or(defaults.max_tokens));
  request.min_tokens = min_tokens.value_or(0);
  request.ignore_eos = ignore_eos.value_or(defaults.ignore_eos);
  if (request.max_tokens >= 0 && request.min_tokens > request.max_tokens) {
    return body.error("json.range", "min_tokens",
                      fmt::format("at most max_tokens ({})", request.max_tokens));
  }
  SUBBYTE_CHECK(read_stops(body, request.stops));
  return read_tokens(body, "stop_token_ids", request.stop_token_ids);
}

/// Whom it comes before, and with whom it shares.
Status read_place(const Object& body, CompletionRequest& request) {
  constexpr int64_t kMaxPriority = 1'000'000;
  constexpr std::size_t kMaxSaltBytes = 256;  // it is kept as long as what it is of
  SUBBYTE_TRY(const auto priority, body.integer("priority", -kMaxPriority, kMaxPriority));
  SUBBYTE_TRY(const auto salt, body.string("cache_salt"));
  if (salt && salt->size() > kMaxSaltBytes) {
    return Error{"json.range", fmt::format("{}: cache_salt: expected at most {} bytes, found {}",
                                           body.where(), kMaxSaltBytes, salt->size())};
  }
  request.priority = priority.value_or(0);
  request.cache_salt = salt.value_or("");
  return {};
}

/// Checks that a body has either messages or a prompt.
Status check_prompt(const Object& body) {
  if (body.has("prompt") != has_messages(body)) return {};
  return Error{"completion.prompt",
               fmt::format("{}: expected either \"prompt\" or \"messages\", found {}", body.where(),
                           has_messages(body) ? "both" : "neither")};
}

Status read_echo(const Object& body, CompletionRequest& request) {
  SUBBYTE_TRY(const auto echo, body.boolean("echo"));
  request.echo = echo.value_or(false);
  if (!request.echo || !has_messages(body)) return {};
  return body.error("completion.field", "echo", "false, as messages are no text to go on with");
}

}  // namespace

Status read_conversation(const Object& body, CompletionRequest& request) {
  if (!has_messages(body)) return {};
  SUBBYTE_CHECK(read_tools(body, request));
  const Value& messages = *body.find("messages");
  if (!messages.is_array()) return body.error("json.type", "messages", "a list of messages");
  if (messages.empty()) {
    return Error{"json.type", body.where() + ": messages: expected at least one, found none"};
  }
  for (const Value& value : messages) {
    const bool root = body.where().find(": ") == std::string::npos;
    SUBBYTE_TRY(Value message,
                read_message(value, fmt::format("{}{}messages[{}]", body.where(), root ? ": " : ".",
                                                request.messages.size())));
    request.messages.push_back({.json = std::move(message)});
  }
  return {};
}

Result<CompletionRequest> read_chat(const Object& body) {
  CompletionRequest request;
  SUBBYTE_CHECK(check_prompt(body));
  if (!has_messages(body)) return body.error("json.missing", "messages", "a list of messages");
  SUBBYTE_CHECK(check_fields(body, kRequestRules));
  SUBBYTE_CHECK(read_conversation(body, request));
  SUBBYTE_CHECK(read_chat_options(body, request));
  return request;
}

std::span<const KeyRule> request_rules() {
  return kRequestRules;
}

std::span<const KeyRule> message_rules() {
  return kMessageRules;
}

Result<CompletionRequest> read_completion(const Object& body, const Request& defaults,
                                          std::span<const std::string_view> others) {
  SUBBYTE_TRY(CompletionRequest request, read_fields(body, defaults, others));
  SUBBYTE_CHECK(read_conversation(body, request));
  return request;
}

Result<CompletionRequest> read_fields(const Object& body, const Request& defaults,
                                      std::span<const std::string_view> others) {
  CompletionRequest request;
  SUBBYTE_CHECK(check_prompt(body));
  SUBBYTE_CHECK(check_fields(body, kRequestRules, others));
  static_cast<Request&>(request) = defaults;
  if (!has_messages(body)) SUBBYTE_CHECK(read_prompt(body, *body.find("prompt"), request));
  SUBBYTE_CHECK(read_chat_options(body, request));
  if (!has_messages(body)) SUBBYTE_CHECK(check_no_chat(body));
  SUBBYTE_CHECK(read_sampling(body, request.sampling));
  SUBBYTE_CHECK(read_echo(body, request));
  SUBBYTE_CHECK(read_added_tokens(body, request));
  SUBBYTE_CHECK(read_ends(body, defaults, request));
  SUBBYTE_CHECK(read_place(body, request));
  SUBBYTE_CHECK(read_logprobs(body, request));
  SUBBYTE_TRY(const auto parallel, body.boolean("parallel_tool_calls"));
  request.parallel_tool_calls = parallel.value_or(true);
  SUBBYTE_TRY(const auto samples, body.integer("n", 1, kMaxSamples));
  request.num_samples = samples.value_or(1);
  request.scores_prompt = request.echo && request.num_top_logprobs;
  return request;
}

}  // namespace subbyte
