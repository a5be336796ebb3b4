#include "completions/chunks.h"

#include <utility>

namespace subbyte {
namespace {

using json::Value;

/// Characters that tokens stand for.
std::size_t characters_of(const Request& request, const Tokenizer& tokenizer,
                          const std::vector<TokenId>& tokens) {
  Choice choice(request, tokenizer);
  Delta delta;
  delta.tokens = tokens;
  choice.take(std::move(delta));
  return choice.num_characters();
}

/// Says whether there is a token in the log probabilities of a choice.
bool has_tokens(const Value& logprobs) {
  return !logprobs["content"].empty() || !logprobs["tokens"].empty();
}

}  // namespace

Value usage_as_json(const TokenCounts& counts) {
  return {{"prompt_tokens", counts.prompt},
          {"completion_tokens", counts.generated},
          {"total_tokens", counts.prompt + counts.generated},
          {"prompt_tokens_details", {{"cached_tokens", counts.cached}}}};
}

Chunks::Chunks(const Request& request, const Tokenizer& tokenizer, const AnswerHead& head,
               const Options& options, int64_t num_choices)
    : tokenizer_(tokenizer),
      head_(head),
      options_(options),
      states_(static_cast<std::size_t>(num_choices)) {
  // What a choice is written by: whether it is a chat, and which log probabilities are wanted.
  if (request.is_chat()) request_.messages.emplace_back();
  request_.num_top_logprobs = request.num_top_logprobs;
}

std::string Chunks::event(Value choices, Value usage) const {
  Value chunk = {{"id", head_.id},
                 {"object", request_.is_chat() ? "chat.completion.chunk" : "text_completion"},
                 {"created", head_.created},
                 {"model", head_.model},
                 {"system_fingerprint", head_.fingerprint},
                 {"seed", head_.seed},
                 {"choices", std::move(choices)}};
  if (options_.has_usage || options_.always_has_usage) chunk["usage"] = std::move(usage);
  return "data: " + json::to_text(chunk) + "\n\n";
}

/// `content`: a delta of a chat, else a text.
std::string Chunks::choice_event(int64_t index, Value content, Value logprobs, Value finish_reason,
                                 const TokenCounts& counts) const {
  Value choice = {{"index", index}};
  choice[request_.is_chat() ? "delta" : "text"] = std::move(content);
  choice["logprobs"] = std::move(logprobs);
  choice["finish_reason"] = std::move(finish_reason);
  Value choices = Value::array();
  choices.push_back(std::move(choice));
  Value usage = options_.always_has_usage ? usage_as_json(counts) : Value();
  if (usage.is_object()) usage.erase("prompt_tokens_details");  // known at the end
  return event(std::move(choices), std::move(usage));
}

/// Takes what is new out of a choice that is a part.
Value Chunks::content_of(Value& whole, State& state) const {
  if (!request_.is_chat()) return std::move(whole["text"]);
  Value& message = whole["message"];
  Value delta = Value::object();
  if (!message["content"].string().empty()) delta["content"] = std::move(message["content"]);
  if (message.contains("reasoning_content")) {
    delta["reasoning_content"] = message["reasoning_content"];
    delta["reasoning"] = std::move(message["reasoning_content"]);
  }
  if (message.contains("tool_calls")) {
    Value calls = std::move(message["tool_calls"]);
    for (std::size_t i = 0; i < calls.size(); ++i) calls[i]["index"] = state.num_calls++;
    delta["tool_calls"] = std::move(calls);
  }
  return delta;
}

std::string Chunks::take(int64_t index, Delta delta, const Echo& echo, const TokenCounts& counts) {
  State& state = states_[static_cast<std::size_t>(index)];
  std::string events;
  const bool says_nothing = delta.tokens.empty() && delta.pieces.empty() && !delta.is_last();
  if (says_nothing) return events;  // scores of a prompt that is not read to its end
  const bool is_first = !std::exchange(state.has_begun, true);
  if (is_first && request_.is_chat()) {
    events +=
        choice_event(index, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr, counts);
  }
  const bool is_last = delta.end.has_value();
  const StopReason reason = is_last ? delta.end->reason : StopReason::kLength;
  const bool has_echo = is_first && !echo.tokens.empty();
  Choice part(request_, tokenizer_);
  part.set_offset(state.num_characters);
  part.take(std::move(delta));
  state.num_characters += part.num_characters();
  if (has_echo) state.num_characters += characters_of(request_, tokenizer_, echo.tokens);
  Value whole = part.take_json(index, has_echo ? echo : Echo{});
  Value content = content_of(whole, state);
  const bool is_text = content.is_string();
  const bool has_content = is_text ? !content.string().empty() : !content.empty();
  const bool has_logprobs = has_tokens(whole["logprobs"]);
  if (has_content || has_logprobs) {
    if (!is_text && !has_content) content["content"] = "";
    events += choice_event(index, std::move(content),
                           has_logprobs ? std::move(whole["logprobs"]) : Value(), nullptr, counts);
  }
  if (is_last) {
    events += choice_event(index, request_.is_chat() ? Value::object() : Value(""), nullptr,
                           finish_reason(reason, state.num_calls > 0), counts);
  }
  return events;
}

std::string Chunks::finish(const TokenCounts& counts) const {
  std::string events;
  if (options_.has_usage) events = event(Value::array(), usage_as_json(counts));
  return events + "data: [DONE]\n\n";
}

}  // namespace subbyte
