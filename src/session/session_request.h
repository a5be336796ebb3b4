#pragma once
// What a session is asked for, and what comes of it step by step.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "engine/scheduler.h"
#include "text/chat.h"
#include "text/chat_output.h"

namespace subbyte {

/// A text, tokens or a chat to go on with, and how. TextSetup::request() has a model's defaults.
struct SessionRequest {
  bool is_chat = false;
  std::string prompt;                  // text, unless is_chat or there are tokens
  std::vector<TokenId> prompt_tokens;  // instead of a text
  /// The messages of a chat, at least one: objects as APIs and templates have them, with "role",
  /// "content" and what else there is (text/chat_messages.h).
  json::Value messages = json::Value::array();
  ChatOptions chat;
  SpecialTokens special = SpecialTokens::kAsText;  // in a prompt that is a text
  bool adds_tokens = true;          // those that tokenizer.json puts around a prompt that is a text
  bool parallel_tool_calls = true;  // false: of calls of tools the first alone is in the answer

  SamplingOptions sampling;  // sample i has the seed of sample 0 plus i
  int64_t max_tokens = -1;   // -1: until the context is full; 0: the prompt alone
  int64_t min_tokens = 0;    // before these neither tokens nor texts end the answer
  int64_t num_samples = 1;   // 1 to kMaxSamples
  int64_t max_length = 0;    // positions of a sample at most; 0: the context of the session
  /// Texts that end the answer and do not belong to it; in a chat they are not looked for in the
  /// reasoning and in calls of tools.
  std::vector<std::string> stops;
  std::vector<TokenId> stop_token_ids;  // beside those of the model
  bool ignore_eos = false;              // without those of the model
  /// Alternatives whose log probabilities are wanted, 0 and up, beside that of the token; nullopt:
  /// none at all.
  std::optional<int64_t> num_top_logprobs;
  /// The same for the tokens of the prompt after the first: deltas of sample 0 bring them.
  bool scores_prompt = false;
  /// Nobody reads the answer of a chat before its end: where a </think> that nothing opened may
  /// still make reasoning of its text, that is given out when it is known. Otherwise text is given
  /// out as it comes, and stays what it was given out as (text/think_parser.h).
  bool is_whole = false;
  /// The next turn of a conversation that the session keeps in its cache, or the first of another:
  /// what its prompt has in common with the turn before is not computed again. One sample in the
  /// whole context.
  bool is_turn = false;
};

/// How a sample ended.
struct SampleEnd {
  /// Why, and how fast it went: prefill_seconds count from add(), tokens of the prompt are those
  /// that were computed.
  GenerateStats stats;
  std::optional<TokenId> stop_token;  // that ended it; of kStopString a text that is one token
  std::string stop;                   // the text that was found, with kStopString
  int64_t num_tool_calls = 0;         // that the answer has
};

/// The text and tokens that a step adds to one sample.
struct Delta {
  RequestId request = 0;
  int64_t sample = 0;
  std::vector<TokenId> tokens;     // without those that end it
  std::vector<Logprobs> logprobs;  // of these tokens, where they are wanted
  /// Text that became certain: whole characters, nothing of a stop string. It may be of tokens of
  /// steps before. All that is no chat is kFinal. Calls of tools come whole (text/tool_calls.h).
  std::vector<OutputPiece> pieces;
  std::vector<Logprobs> prompt_logprobs;  // of the next tokens of the prompt, where wanted
  std::optional<SampleEnd> end;           // then nothing comes after it
  std::optional<Error> error;             // an end, too: that of this sample alone

  bool is_last() const { return end.has_value() || error.has_value(); }
  /// The text of the answer among the pieces.
  std::string text() const;
};

}  // namespace subbyte
