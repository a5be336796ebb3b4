#pragma once
// An answer that comes in parts, as the chunks of OpenAI's streams. Put together, the texts of the
// chunks are the answer that is not streamed:
//
//   {"delta": {"role": "assistant", "content": ""}}     of each choice the first
//   {"delta": {"content": "He"}}, {"delta": {"content": "llo"}}, ...
//   {"delta": {}, "finish_reason": "stop"}              of each choice the last
//   {"choices": [], "usage": {...}}                     where it is wanted

#include <cstdint>
#include <string>
#include <vector>

#include "completions/answer.h"

namespace subbyte {

/// Names an answer in each of its chunks.
struct AnswerHead {
  std::string id;  // "chatcmpl-0123"
  int64_t created = 0;
  std::string model;
  std::string fingerprint;  // of the server: "system_fingerprint"
  uint64_t seed = 0;        // as in a whole answer
};

/// {"prompt_tokens": 3, "completion_tokens": 4, ...}
json::Value usage_as_json(const TokenCounts& counts);

class Chunks {
 public:
  struct Options {
    bool has_usage = false;         // a chunk with the usage comes after the last
    bool always_has_usage = false;  // each chunk has it
  };

  /// The tokenizer must outlive this. `request` is one of the requests of the answer: all are
  /// chats, or none.
  Chunks(const Request& request, const Tokenizer& tokenizer, const AnswerHead& head,
         const Options& options, int64_t num_choices);

  /// Events of a delta of a choice, perhaps none: "data: {...}\n\n". `echo` stands before the text
  /// of a choice that has no chunk yet; `counts` are those of the answer until now.
  std::string take(int64_t index, Delta delta, const Echo& echo, const TokenCounts& counts);
  /// The events after the last one.
  std::string finish(const TokenCounts& counts) const;

 private:
  struct State {
    bool has_begun = false;
    int64_t num_calls = 0;
    std::size_t num_characters = 0;  // of its tokens until now
  };

  std::string event(json::Value choices, json::Value usage) const;
  std::string choice_event(int64_t index, json::Value content, json::Value logprobs,
                           json::Value finish_reason, const TokenCounts& counts) const;
  json::Value content_of(json::Value& whole, State& state) const;

  Request request_;
  const Tokenizer& tokenizer_;
  AnswerHead head_;
  Options options_;
  std::vector<State> states_;
};

}  // namespace subbyte
