#pragma once
// One answer as the JSON that a line of `run --prompts` has as its body, with what the program says
// beside it: how the tokens were chosen, and how fast.

#include <string>

#include "app/interrupt.h"
#include "app/one_answer.h"
#include "completions/answer.h"
#include "json/strict_json.h"

namespace subbyte::app {

/// Generates the answer of `model`, as the user named it. `ctrl_c` ends it: its finish_reason is
/// "abort" then. Codes: those of answer_one().
Result<json::Value> answer_as_json(const Invocation& invocation, Session& session,
                                   const Question& question, const std::string& model,
                                   const Interruptible& ctrl_c);

}  // namespace subbyte::app
