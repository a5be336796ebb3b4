#pragma once
// What comes of a request as the JSON of OpenAI's (chat) completions.

#include <optional>
#include <string>
#include <vector>

#include "json/strict_json.h"
#include "subbyte/answer.h"
#include "subbyte/request.h"
#include "text/tokenizer.h"

namespace subbyte {

/// The prompt of a request that wants it before each of its answers.
struct Echo {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;  // of the tokens after the first, where they are wanted
};

/// A call of a tool as an element of "tool_calls".
json::Value call_as_json(const Piece& call);

/// Adds a piece that is no call to the content of an answer, or to its reasoning. A remark on what
/// the model is about to do is for who reads the answer; a message to a tool that is no call keeps
/// the name of the tool.
void append_text(const Piece& piece, std::string& content, std::string& reasoning);

/// The "finish_reason" of an answer: "tool_calls" where it has calls and came to its end.
std::string_view finish_reason(StopReason reason, bool has_calls);

/// All deltas of one sample together.
class Choice {
 public:
  /// Both must outlive this.
  Choice(const Request& request, const Tokenizer& tokenizer)
      : request_(request), tokenizer_(tokenizer) {}

  void take(Delta delta);

  const std::vector<TokenId>& tokens() const { return tokens_; }
  /// Characters that the tokens stand for.
  std::size_t num_characters() const;
  /// For a part of an answer: where it begins, in characters.
  void set_offset(std::size_t offset) { offset_ = offset; }
  /// An element of "choices". Once, after the last delta.
  json::Value take_json(int64_t index, const Echo& echo);

 private:
  json::Value chat_logprobs() const;
  json::Value text_logprobs(const Echo& echo) const;
  json::Value describe(const TokenLogprob& token) const;
  std::string_view bytes_of(TokenId token) const;
  std::string name_of(TokenId token) const;
  json::Value alternatives(const Logprobs& logprobs) const;

  const Request& request_;
  const Tokenizer& tokenizer_;
  std::string text_;
  std::string reasoning_;
  json::Value tool_calls_ = json::Value::array();
  std::vector<TokenId> tokens_;
  std::vector<Logprobs> logprobs_;
  StopReason reason_ = StopReason::kLength;
  std::size_t offset_ = 0;
};

struct TokenCounts {
  int64_t prompt = 0;
  int64_t cached = 0;  // of those
  int64_t generated = 0;
};

/// The body of a response, with the seed of the request. `digest`, of the request, makes its id,
/// and "created" is 0: the same request has the same answer at any time.
json::Value response_body(const Request& request, std::string_view digest, std::string_view model,
                          json::Value choices, const TokenCounts& counts);

}  // namespace subbyte
