#pragma once
// One answer as the JSON that a line of `run --prompts` has as its body, with what the program says
// beside it: how the tokens were chosen, and how fast.

#include <span>
#include <string>

#include "app/command.h"
#include "app/interrupt.h"
#include "completions/answer.h"
#include "engine/generate.h"
#include "json/strict_json.h"

namespace subbyte::app {

struct JsonQuestion {
  CompletionRequest request;  // a text or messages; how long, which stops
  std::string model;          // as the user named it
  ChatFormat format = ChatFormat::kChatMl;
  std::span<const TokenId> prompt;  // what the request is as tokens
  GenerateOptions generation;
};

/// Generates the answer. `ctrl_c` ends it: its finish_reason is "abort" then. Codes: those of
/// generate().
Result<json::Value> answer_as_json(const LoadedModel& loaded, const Tokenizer& tokenizer,
                                   const JsonQuestion& question, Sequence& sequence,
                                   const Interruptible& ctrl_c);

}  // namespace subbyte::app
