#include "completions/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/utf8.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

using json::Value;

/// JSON has no infinity: what is less likely is -9999, as OpenAI and vLLM write it.
double finite(double logprob) {
  return std::max(logprob, -9999.0);
}

/// Bytes that do not go on with a character.
std::size_t characters_in(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; }));
}

/// The name of a token whose text does not tell it from others.
std::string name_by_id(TokenId token) {
  return fmt::format("token_id:{}", token);
}

}  // namespace

Value call_as_json(const Piece& call) {
  return {{"id", call.call_id},
          {"type", "function"},
          {"function", {{"name", call.recipient}, {"arguments", call.text}}}};
}

void append_text(const Piece& piece, std::string& content, std::string& reasoning) {
  const bool is_for_tool = !piece.recipient.empty();
  const bool is_remark = piece.channel == Channel::kCommentary && !is_for_tool;
  std::string& text = piece.channel == Channel::kAnswer || is_remark ? content : reasoning;
  if (piece.wants_break) text += "\n\n";
  if (is_for_tool && piece.begins_message) text += "to=" + piece.recipient + "\n";
  text += piece.text;
}

std::string_view finish_reason(StopReason reason, bool has_calls) {
  switch (reason) {
    case StopReason::kLength:
    case StopReason::kContextFull:
      return "length";
    case StopReason::kCaller:
      return "abort";
    case StopReason::kStopToken:
    case StopReason::kStopString:
      break;
  }
  return has_calls ? "tool_calls" : "stop";
}

void Choice::take(Delta delta) {
  tokens_.insert(tokens_.end(), delta.tokens.begin(), delta.tokens.end());
  std::ranges::move(delta.logprobs, std::back_inserter(logprobs_));
  for (const Piece& piece : delta.pieces) {
    if (piece.channel == Channel::kToolCall) {
      tool_calls_.push_back(call_as_json(piece));
    } else {
      append_text(piece, text_, reasoning_);
    }
  }
  if (delta.end) reason_ = delta.end->reason;
}

std::string_view Choice::bytes_of(TokenId token) const {
  return tokenizer_.token_bytes(token);  // none of ids beyond the tokenizer
}

std::size_t Choice::num_characters() const {
  std::size_t count = 0;
  for (const TokenId token : tokens_) count += characters_in(bytes_of(token));
  return count;
}

Value Choice::describe(const TokenLogprob& token) const {
  Value bytes = Value::array();
  for (const char byte : bytes_of(token.token)) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", utf8::replace_invalid(bytes_of(token.token))},
          {"logprob", finite(token.logprob)},
          {"bytes", std::move(bytes)}};
}

Value Choice::chat_logprobs() const {
  Value content = Value::array();
  for (const Logprobs& one : logprobs_) {
    Value entry = describe(one.chosen);
    Value top = Value::array();
    for (const TokenLogprob& alternative : one.top) top.push_back(describe(alternative));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

/// The text of a token, or as OpenAI writes it bytes that are a part of a character: "bytes:\\xe4".
std::string Choice::name_of(TokenId token) const {
  const std::string_view bytes = bytes_of(token);
  if (bytes.empty()) return name_by_id(token);
  if (!find_invalid_utf8(bytes)) return std::string(bytes);
  std::string name = "bytes:";
  for (const char byte : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return name;
}

/// By names that differ: of tokens with the same text the likeliest has it.
Value Choice::alternatives(const Logprobs& logprobs) const {
  Value top = Value::object();
  for (const TokenLogprob& one : logprobs.top) {
    std::string name = name_of(one.token);
    if (top.contains(name)) name = name_by_id(one.token);
    if (!top.contains(name)) top[name] = finite(one.logprob);
  }
  return top;
}

Value Choice::text_logprobs(const Echo& echo) const {
  Value tokens = Value::array();
  Value token_logprobs = Value::array();
  Value top_logprobs = Value::array();
  Value text_offset = Value::array();
  std::size_t offset = offset_;
  const auto add = [&](TokenId token, const Logprobs* logprobs) {
    tokens.push_back(name_of(token));
    text_offset.push_back(offset);
    offset += characters_in(bytes_of(token));
    token_logprobs.push_back(logprobs == nullptr ? Value()
                                                 : Value(finite(logprobs->chosen.logprob)));
    top_logprobs.push_back(logprobs == nullptr ? Value() : alternatives(*logprobs));
  };
  // Nothing comes before the first token of a prompt that could say how likely it is.
  for (std::size_t i = 0; i < echo.tokens.size(); ++i) {
    add(echo.tokens[i], i == 0 || i > echo.logprobs.size() ? nullptr : &echo.logprobs[i - 1]);
  }
  for (const Logprobs& one : logprobs_) add(one.chosen.token, &one);
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(token_logprobs)},
          {"top_logprobs", std::move(top_logprobs)},
          {"text_offset", std::move(text_offset)}};
}

Value Choice::take_json(int64_t index, const Echo& echo) {
  const bool has_calls = !tool_calls_.empty();
  const bool has_logprobs = request_.num_top_logprobs.has_value();
  Value choice = {{"index", index}};
  if (request_.is_chat()) {
    choice["message"] = {{"role", "assistant"}, {"content", nullptr}};
    if (!has_calls || !text_.empty()) choice["message"]["content"] = std::move(text_);
    if (!reasoning_.empty()) choice["message"]["reasoning_content"] = std::move(reasoning_);
    if (has_calls) choice["message"]["tool_calls"] = std::move(tool_calls_);
  } else {
    choice["text"] = echo.text + text_;
  }
  choice["logprobs"] = !has_logprobs        ? Value()
                       : request_.is_chat() ? chat_logprobs()
                                            : text_logprobs(echo);
  choice["finish_reason"] = finish_reason(reason_, has_calls);
  return choice;
}

Value response_body(const Request& request, std::string_view digest, std::string_view model,
                    Value choices, const TokenCounts& counts) {
  const std::string id =
      (request.is_chat() ? "chatcmpl-" : "cmpl-") + std::string(digest.substr(0, 32));
  return {{"id", id},
          {"object", request.is_chat() ? "chat.completion" : "text_completion"},
          {"created", 0},
          {"model", model},
          {"seed", request.sampling.seed.value_or(0)},
          {"choices", std::move(choices)},
          {"usage",
           {{"prompt_tokens", counts.prompt},
            {"completion_tokens", counts.generated},
            {"total_tokens", counts.prompt + counts.generated}}}};
}

}  // namespace subbyte
