#pragma once
// One request by itself, with Ctrl-C.

#include <functional>
#include <vector>

#include "session/session.h"

namespace subbyte::app {

struct Question {
  SessionRequest request;       // of one sample
  std::vector<TokenId> prompt;  // what it is as tokens
};

/// Answers a question, and nothing else meanwhile. `goes_on` is asked before each step, of a long
/// prompt, too; false ends the answer, with StopReason::kCaller. Codes: those of Session::add and
/// Session::step, and of the sample.
Result<SampleEnd> answer_one(Session& session, const Question& question,
                             const std::function<void(const Delta&)>& on_delta,
                             const std::function<bool()>& goes_on);

}  // namespace subbyte::app
