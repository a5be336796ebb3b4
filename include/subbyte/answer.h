#pragma once
// What comes of a request, step by step and as a whole.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "subbyte/sampling.h"
#include "subbyte/status.h"

SUBBYTE_BEGIN_NAMESPACE

using RequestId = uint64_t;

/// The logarithm of the probability of a token, before any penalty, temperature or cut.
struct TokenLogprob {
  TokenId token = 0;
  double logprob = 0;  // natural; -infinity where the logit is
};

struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the most likely first, the lower id first on ties
};

enum class StopReason : uint8_t { kStopToken, kLength, kContextFull, kStopString, kCaller };

/// How a sample ended, and how fast it went.
struct SampleEnd {
  StopReason reason = StopReason::kLength;
  std::optional<TokenId> stop_token = {};  // that ended it; of kStopString a text that is a token
  std::string stop = {};                   // the text that was found, with kStopString
  int64_t num_tool_calls = 0;              // that the answer has
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;     // of the prompt, that were known and not computed
  int64_t generated_tokens = 0;  // with the stop token
  double prefill_seconds = 0;    // from add() to the first token
  double decode_seconds = 0;     // of all later ones

  double prefill_tokens_per_second() const;  // of those that were computed
  double decode_tokens_per_second() const;   // 0 when nothing came after the first token
};

/// Parts of an answer; of what is no chat all is kAnswer. kCommentary is a message to a tool where
/// there is a recipient, else a remark on what the model is about to do. kToolCall is a whole call
/// of a function that the request told the model of.
enum class Channel : uint8_t { kReasoning, kCommentary, kAnswer, kToolCall };

/// Text of one channel.
struct Piece {
  Channel channel = Channel::kAnswer;
  std::string recipient = {};   // a tool, such as "functions.search", or the function; else empty
  std::string text = {};        // valid UTF-8, not empty; of a call its arguments, a JSON object
  bool begins_message = false;  // the first piece of its message
  std::string call_id = {};     // of a call: unlike those of other calls
  bool wants_break = false;     // is apart from text before it that the same reader has
};

/// The text and tokens that a step adds to one sample.
struct Delta {
  RequestId request = 0;
  int64_t sample = 0;
  std::vector<TokenId> tokens = {};     // without those that end it
  std::vector<Logprobs> logprobs = {};  // of these tokens, where they are wanted
  /// Text that became certain: whole characters, nothing of a stop string. It may be of tokens of
  /// steps before. Calls of tools come whole.
  std::vector<Piece> pieces = {};
  std::vector<Logprobs> prompt_logprobs = {};  // of the next tokens of the prompt, where wanted
  std::optional<SampleEnd> end = {};           // then nothing comes after it
  std::optional<Error> error = {};             // an end, too: that of this sample alone

  /// The text of the answer, and of the reasoning, among the pieces.
  std::string text() const { return text_of(Channel::kAnswer); }
  std::string reasoning() const { return text_of(Channel::kReasoning); }
  std::string text_of(Channel channel) const;

  bool is_last() const { return end.has_value() || error.has_value(); }
};

/// A whole sample.
struct Completion {
  std::string text = {};  // of the answer
  std::string reasoning = {};
  std::string commentary = {};
  std::vector<Piece> tool_calls = {};
  std::vector<TokenId> tokens = {};
  std::vector<Logprobs> logprobs = {};
  std::vector<Logprobs> prompt_logprobs = {};
  SampleEnd end = {};

  /// Adds what a step gave to the sample.
  void append(const Delta& delta);
};

struct Perplexity {
  double per_token = 0;
  double nats = 0;     // the sum of the negative log likelihoods
  int64_t scored = 0;  // tokens that were predicted
};

SUBBYTE_END_NAMESPACE
