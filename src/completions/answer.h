#pragma once
// What comes of a request as the JSON of OpenAI's (chat) completions.

#include <optional>
#include <string>
#include <vector>

#include "json/strict_json.h"
#include "session/session_request.h"
#include "text/tokenizer.h"

namespace subbyte {

/// The prompt of a request that wants it before each of its answers.
struct Echo {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;  // of the tokens after the first, where they are wanted
};

/// A call of a tool as an element of "tool_calls".
json::Value call_as_json(const OutputPiece& call);

/// The "finish_reason" of an answer: "tool_calls" where it has calls and came to its end.
std::string_view finish_reason(StopReason reason, bool has_calls);

/// All deltas of one sample together.
class Choice {
 public:
  /// Both must outlive this.
  Choice(const SessionRequest& request, const Tokenizer& tokenizer)
      : request_(request), tokenizer_(tokenizer) {}

  void take(Delta delta);

  const std::vector<TokenId>& tokens() const { return tokens_; }
  /// An element of "choices". Once, after the last delta.
  json::Value take_json(int64_t index, const Echo& echo);

 private:
  json::Value chat_logprobs() const;
  json::Value text_logprobs(const Echo& echo) const;
  json::Value describe(const TokenLogprob& token) const;
  std::string text_of(TokenId token) const;

  const SessionRequest& request_;
  const Tokenizer& tokenizer_;
  std::string text_;
  std::string reasoning_;
  json::Value tool_calls_ = json::Value::array();
  std::vector<TokenId> tokens_;
  std::vector<Logprobs> logprobs_;
  StopReason reason_ = StopReason::kLength;
};

struct TokenCounts {
  int64_t prompt = 0;
  int64_t generated = 0;
};

/// The body of a response. `digest`, of the request, makes its id, and "created" is 0: the same
/// request has the same answer at any time.
json::Value response_body(const SessionRequest& request, std::string_view digest,
                          std::string_view model, json::Value choices, const TokenCounts& counts);

}  // namespace subbyte
