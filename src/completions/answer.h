#pragma once
// What comes of a request, token by token, and as the JSON of OpenAI's (chat) completions.

#include <optional>
#include <string>
#include <vector>

#include "completions/request.h"
#include "engine/stop_strings.h"
#include "text/chat_parser.h"

namespace subbyte {

/// The prompt of a request that wants it before each of its answers.
struct Echo {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;  // of the tokens after the first, where they are wanted
};

/// The text of one sample while it is generated.
class Choice {
 public:
  /// Both must outlive this.
  Choice(const CompletionRequest& request, const Tokenizer& tokenizer, ChatFormat format);

  void push(TokenId token, std::optional<Logprobs> logprobs);
  /// A stop string was found: nothing that comes later is wanted.
  bool stopped() const { return stops_.stopped(); }
  /// The end; `reason` is kCaller where a stop string was found.
  void finish(StopReason reason);

  int64_t num_tokens() const { return std::ssize(tokens_); }
  /// An element of "choices". Once, after finish().
  json::Value take_json(int64_t index, const Echo& echo);

 private:
  void show(const std::vector<OutputPiece>& pieces);
  void show(const std::string& text);
  void take_answer_back();
  json::Value chat_logprobs() const;
  json::Value text_logprobs(const Echo& echo) const;
  json::Value describe(const TokenLogprob& token) const;
  std::string text_of(TokenId token) const;

  const CompletionRequest& request_;
  const Tokenizer& tokenizer_;
  std::optional<ChatParser> chat_;  // of a chat
  StreamDecoder decoder_;           // of a text
  StopStrings stops_;
  std::string text_;
  std::string reasoning_;
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
json::Value response_body(const CompletionRequest& request, std::string_view digest,
                          std::string_view model, json::Value choices, const TokenCounts& counts);

}  // namespace subbyte
