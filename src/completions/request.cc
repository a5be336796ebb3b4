#include "completions/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/quote.h"

namespace subbyte {
namespace {

using json::Object;
using json::Value;

/// What requests have that is read below.
constexpr std::array<std::string_view, 17> kFields = {"prompt",
                                                      "messages",
                                                      "max_tokens",
                                                      "max_completion_tokens",
                                                      "n",
                                                      "temperature",
                                                      "top_k",
                                                      "top_p",
                                                      "min_p",
                                                      "seed",
                                                      "stop",
                                                      "repetition_penalty",
                                                      "ignore_eos",
                                                      "logprobs",
                                                      "top_logprobs",
                                                      "reasoning_effort",
                                                      "chat_template_kwargs"};

/// What says who asks, or what asks for nothing where it is null, false, 0 or empty.
constexpr std::array<std::string_view, 4> kIgnored = {"model", "user", "metadata", "store"};
constexpr std::array<std::string_view, 12> kNeutral = {"stream",
                                                       "stream_options",
                                                       "presence_penalty",
                                                       "frequency_penalty",
                                                       "logit_bias",
                                                       "suffix",
                                                       "tools",
                                                       "echo",
                                                       "min_tokens",
                                                       "response_format",
                                                       "stop_token_ids",
                                                       "use_beam_search"};

bool is_neutral(const Value& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_number() && value.get<double>() == 0) ||
         (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}

template <typename Names>
bool contains(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

Status check_fields(const Object& body, std::span<const std::string_view> others) {
  for (const auto& [name, value] : body.members()) {
    if (contains(kIgnored, name) || contains(others, name)) continue;
    if (contains(kNeutral, name)) {
      if (is_neutral(value)) continue;
      return body.error("completion.field", name, "nothing, as it is not supported");
    }
    if (!contains(kFields, name)) {
      return Error{"completion.field",
                   fmt::format("{}: the field {} is not known", body.where(), quote(name))};
    }
  }
  return {};
}

Status read_sampling(const Object& body, SamplingOptions& sampling, bool& has_seed) {
  SUBBYTE_TRY(const auto temperature, body.number("temperature", 0, 100));
  SUBBYTE_TRY(const auto top_k, body.integer("top_k", -1, 1'000'000'000));
  SUBBYTE_TRY(const auto top_p, body.number("top_p", 1e-6, 1));
  SUBBYTE_TRY(const auto min_p, body.number("min_p", 0, 1));
  SUBBYTE_TRY(const auto penalty, body.number("repetition_penalty", 0.01, 100));
  SUBBYTE_TRY(const auto seed, body.integer("seed", 0, std::numeric_limits<int64_t>::max()));
  sampling.temperature = temperature.value_or(sampling.temperature);
  sampling.top_k = std::max<int64_t>(top_k.value_or(sampling.top_k), 0);  // -1: all, as vLLM's
  sampling.top_p = top_p.value_or(sampling.top_p);
  sampling.min_p = min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = penalty.value_or(sampling.repetition_penalty);
  if (seed) sampling.seed = static_cast<uint64_t>(*seed);
  has_seed = seed.has_value();
  return {};
}

Status read_stops(const Object& body, std::vector<std::string>& stops) {
  const Value* value = body.find("stop");
  if (value == nullptr || value->is_null()) return {};
  const Value list = value->is_array() ? *value : Value::array({*value});
  const auto is_text = [](const Value& stop) {
    return stop.is_string() && !stop.get_ref<const std::string&>().empty();
  };
  if (!std::ranges::all_of(list, is_text) || std::ssize(list) > kMostStops) {
    return body.error("json.type", "stop",
                      fmt::format("a text that is not empty or at most {} of them", kMostStops));
  }
  stops.clear();
  for (const Value& stop : list) stops.push_back(stop.get<std::string>());
  return {};
}

/// A number for texts, true or false with a number beside it for chats.
Status read_logprobs(const Object& body, CompletionRequest& request) {
  if (!request.is_chat) {
    SUBBYTE_TRY(request.num_top_logprobs, body.integer("logprobs", 0, kMostTopLogprobs));
    if (!body.has("top_logprobs")) return {};
    return body.error("completion.field", "top_logprobs", "nothing: \"logprobs\" is the number");
  }
  SUBBYTE_TRY(const auto wanted, body.boolean("logprobs"));
  SUBBYTE_TRY(const auto top, body.integer("top_logprobs", 0, kMostTopLogprobs));
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
  const auto is_token = [](const Value& token) {
    return token.is_number_unsigned() &&
           token.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<TokenId>::max());
  };
  if (!prompt.is_array() || prompt.empty() || !std::ranges::all_of(prompt, is_token)) {
    return body.error("json.type", "prompt", "a text, or a list of token ids");
  }
  for (const Value& token : prompt) request.prompt_tokens.push_back(token.get<TokenId>());
  return {};
}

/// A text, or a list of parts that are texts.
Result<std::string> read_content(const Object& message) {
  const Value* content = message.find("content");
  if (content == nullptr || !content->is_array()) return message.required_string("content");
  std::string text;
  for (const Value& value : *content) {
    SUBBYTE_TRY(const Object part, Object::of(value, message.where() + ".content"));
    SUBBYTE_TRY(const std::string type, part.required_string("type"));
    if (type != "text") return part.error("completion.field", "type", "\"text\"");
    SUBBYTE_TRY(const std::string piece, part.required_string("text"));
    text += piece;
  }
  return text;
}

Status read_messages(const Object& body, const Value& messages, CompletionRequest& request) {
  if (!messages.is_array() || messages.empty()) {
    return body.error("json.type", "messages", "a list of at least one message");
  }
  for (const Value& value : messages) {
    const bool root = body.where().find(": ") == std::string::npos;
    const std::string where =
        fmt::format("{}{}messages[{}]", body.where(), root ? ": " : ".", request.messages.size());
    SUBBYTE_TRY(const Object message, Object::of(value, where));
    SUBBYTE_TRY(const std::string role, message.required_string("role"));
    SUBBYTE_TRY(std::string content, read_content(message));
    const bool is_system = role == "system" || role == "developer";
    if (!is_system && role != "user" && role != "assistant") {
      return message.error("completion.role", "role", "system, developer, user or assistant");
    }
    request.messages.push_back({is_system        ? ChatRole::kSystem
                                : role == "user" ? ChatRole::kUser
                                                 : ChatRole::kAssistant,
                                std::move(content)});
  }
  return {};
}

Status read_chat_options(const Object& body, ChatOptions& chat) {
  SUBBYTE_TRY(const auto effort, body.string("reasoning_effort"));
  if (effort && *effort != "low" && *effort != "medium" && *effort != "high") {
    return body.error("json.range", "reasoning_effort", "low, medium or high");
  }
  if (effort) {
    chat.effort = *effort == "low"    ? ReasoningEffort::kLow
                  : *effort == "high" ? ReasoningEffort::kHigh
                                      : ReasoningEffort::kMedium;
  }
  SUBBYTE_TRY(const auto arguments, body.object("chat_template_kwargs"));
  if (!arguments) return {};
  SUBBYTE_TRY(const auto thinking, arguments->boolean("enable_thinking"));
  chat.thinking = thinking.value_or(chat.thinking);
  for (const auto& [name, value] : arguments->members()) {
    if (name == "enable_thinking") continue;
    return arguments->error("completion.field", name, "enable_thinking alone");
  }
  return {};
}

}  // namespace

Result<CompletionRequest> read_completion(const Object& body, const CompletionDefaults& defaults,
                                          std::span<const std::string_view> others) {
  CompletionRequest request;
  request.is_chat = body.has("messages");
  if (body.has("prompt") == request.is_chat) {
    return Error{"completion.prompt",
                 fmt::format("{}: expected either \"prompt\" or \"messages\", found {}",
                             body.where(), request.is_chat ? "both" : "neither")};
  }
  SUBBYTE_CHECK(check_fields(body, others));
  request.sampling = defaults.sampling;
  request.chat = defaults.chat;
  request.stops = defaults.stops;
  SUBBYTE_CHECK(request.is_chat ? read_messages(body, *body.find("messages"), request)
                                : read_prompt(body, *body.find("prompt"), request));
  SUBBYTE_CHECK(read_chat_options(body, request.chat));
  SUBBYTE_CHECK(read_sampling(body, request.sampling, request.has_seed));
  SUBBYTE_CHECK(read_stops(body, request.stops));
  SUBBYTE_CHECK(read_logprobs(body, request));
  constexpr int64_t kMostTokens = int64_t{1} << 40;
  SUBBYTE_TRY(const auto max_tokens, body.integer("max_tokens", 1, kMostTokens));
  SUBBYTE_TRY(const auto newer, body.integer("max_completion_tokens", 1, kMostTokens));
  SUBBYTE_TRY(const auto ignore_eos, body.boolean("ignore_eos"));
  SUBBYTE_TRY(const auto samples, body.integer("n", 1, kMostSamples));
  request.max_tokens = newer.value_or(max_tokens.value_or(defaults.max_tokens));
  request.ignore_eos = ignore_eos.value_or(defaults.ignore_eos);
  request.num_samples = samples.value_or(1);
  return request;
}

Result<std::vector<TokenId>> encode_prompt(const CompletionRequest& request,
                                           const Tokenizer& tokenizer, ChatFormat format,
                                           SpecialTokens special) {
  if (request.is_chat) {
    return encode_segments(tokenizer, render_chat(format, request.messages, request.chat));
  }
  if (!request.prompt_tokens.empty()) return request.prompt_tokens;
  return tokenizer.encode(request.prompt, special);
}

std::vector<TokenId> stop_tokens_of(const CompletionRequest& request, const Tokenizer& tokenizer,
                                    ChatFormat format, std::span<const TokenId> eos_tokens) {
  std::vector<TokenId> ids;
  if (!request.ignore_eos) {
    if (request.is_chat) ids = stop_tokens(format, tokenizer);
    ids.insert(ids.end(), eos_tokens.begin(), eos_tokens.end());
  }
  for (const std::string& stop : request.stops) {
    const auto id = tokenizer.find(stop);
    if (id && tokenizer.is_special(*id)) ids.push_back(*id);
  }
  return ids;
}

}  // namespace subbyte
