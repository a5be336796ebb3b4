#include "cpp_interface/session_types.h"

#include <array>
#include <iterator>
#include <utility>

#include "text/chat_messages.h"

namespace subbyte::wrapped {
namespace {

static_assert(static_cast<int>(Role::kSystem) == static_cast<int>(ChatRole::kSystem));
static_assert(static_cast<int>(Role::kUser) == static_cast<int>(ChatRole::kUser));
static_assert(static_cast<int>(Role::kAssistant) == static_cast<int>(ChatRole::kAssistant));
static_assert(static_cast<int>(Channel::kReasoning) == static_cast<int>(OutputChannel::kAnalysis));
static_assert(static_cast<int>(Channel::kCommentary) ==
              static_cast<int>(OutputChannel::kCommentary));
static_assert(static_cast<int>(Channel::kToolCall) == static_cast<int>(OutputChannel::kToolCall));
static_assert(static_cast<int>(Channel::kAnswer) == static_cast<int>(OutputChannel::kFinal));
static_assert(static_cast<int>(StopReason::kStopToken) ==
              static_cast<int>(subbyte::StopReason::kStopToken));
static_assert(static_cast<int>(StopReason::kLength) ==
              static_cast<int>(subbyte::StopReason::kLength));
static_assert(static_cast<int>(StopReason::kContextFull) ==
              static_cast<int>(subbyte::StopReason::kContextFull));
static_assert(static_cast<int>(StopReason::kStopString) ==
              static_cast<int>(subbyte::StopReason::kStopString));
static_assert(static_cast<int>(StopReason::kCaller) ==
              static_cast<int>(subbyte::StopReason::kCaller));

SamplingOptions to_own(const Sampling& given, const SamplingDefaults& defaults) {
  SamplingWishes wishes;
  wishes.temperature = given.temperature;
  wishes.top_k = given.top_k;
  wishes.top_p = given.top_p;
  wishes.min_p = given.min_p;
  wishes.repetition_penalty = given.repetition_penalty;
  wishes.frequency_penalty = given.frequency_penalty;
  wishes.presence_penalty = given.presence_penalty;
  SamplingOptions options = defaults.with(wishes);
  options.seed = given.seed.value_or(0);
  options.biases = given.biases;
  return options;
}

TokenLogprob to_public(const subbyte::TokenLogprob& logprob) {
  return {logprob.token, logprob.logprob};
}

std::vector<Logprobs> to_public(const std::vector<subbyte::Logprobs>& given) {
  std::vector<Logprobs> all;
  for (const subbyte::Logprobs& of_token : given) {
    Logprobs& logprobs = all.emplace_back();
    logprobs.chosen = to_public(of_token.chosen);
    for (const auto& other : of_token.top) logprobs.top.push_back(to_public(other));
  }
  return all;
}

SampleEnd to_public(const subbyte::SampleEnd& end) {
  return {.reason = static_cast<StopReason>(end.stats.reason),
          .stop_token = end.stop_token,
          .stop = end.stop,
          .num_tool_calls = end.num_tool_calls,
          .prompt_tokens = end.stats.prompt_tokens,
          .generated_tokens = end.stats.generated_tokens,
          .prefill_seconds = end.stats.prefill_seconds,
          .decode_seconds = end.stats.decode_seconds};
}

json::Value to_json(const std::vector<Message>& messages) {
  std::vector<ChatMessage> own;
  for (const Message& message : messages) {
    own.push_back({static_cast<ChatRole>(message.role), message.content, message.reasoning});
  }
  return subbyte::to_json(own);
}

/// As templates have it.
std::string word_of(ReasoningEffort effort) {
  constexpr std::array kWords = {"low", "medium", "high"};
  return kWords[static_cast<std::size_t>(effort)];
}

template <typename T>
void append_all(const std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

Result<SessionRequest> to_own(const Request& request, const TextSetup& text) {
  const int prompts = int{!request.prompt.empty()} + int{!request.prompt_tokens.empty()} +
                      int{!request.messages.empty()};
  if (prompts > 1) {
    return Error{"session.prompt", "expected one of prompt, prompt_tokens and messages, found " +
                                       std::to_string(prompts)};
  }
  SessionRequest own = text.request();
  own.is_chat = !request.messages.empty();
  own.prompt = request.prompt;
  own.prompt_tokens = request.prompt_tokens;
  own.messages = to_json(request.messages);
  own.special = static_cast<subbyte::SpecialTokens>(request.special);
  if (request.thinking) own.chat.thinking = *request.thinking;
  if (request.effort) own.chat.effort = word_of(*request.effort);
  if (request.date) own.chat.date = *request.date;
  own.sampling = to_own(request.sampling, text.sampling);
  own.max_tokens = request.max_tokens;
  own.min_tokens = request.min_tokens;
  own.num_samples = request.num_samples;
  own.stops = request.stops;
  own.stop_token_ids = request.stop_token_ids;
  own.ignore_eos = request.ignore_eos;
  own.num_top_logprobs = request.num_top_logprobs;
  own.scores_prompt = request.scores_prompt;
  own.is_turn = request.is_turn;
  return own;
}

Delta to_public(subbyte::Delta given) {
  Delta delta;
  delta.request = given.request;
  delta.sample = given.sample;
  delta.tokens = std::move(given.tokens);
  delta.logprobs = to_public(given.logprobs);
  for (OutputPiece& piece : given.pieces) {
    delta.pieces.push_back({static_cast<Channel>(piece.channel), std::move(piece.recipient),
                            std::move(piece.text), piece.begins_message, std::move(piece.call_id)});
  }
  delta.prompt_logprobs = to_public(given.prompt_logprobs);
  if (given.end) delta.end = to_public(*given.end);
  delta.error = std::move(given.error);
  return delta;
}

void append(const Delta& delta, Completion& completion) {
  completion.text += delta.text();
  completion.reasoning += delta.reasoning();
  completion.commentary += delta.text_of(Channel::kCommentary);
  for (const Piece& piece : delta.pieces) {
    if (piece.channel == Channel::kToolCall) completion.tool_calls.push_back(piece);
  }
  append_all(delta.tokens, completion.tokens);
  append_all(delta.logprobs, completion.logprobs);
  append_all(delta.prompt_logprobs, completion.prompt_logprobs);
  if (delta.end) completion.end = *delta.end;
}

std::string Delta::text_of(Channel channel) const {
  std::string text;
  for (const Piece& piece : pieces) {
    if (piece.channel == channel) text += piece.text;
  }
  return text;
}

}  // namespace subbyte::wrapped
