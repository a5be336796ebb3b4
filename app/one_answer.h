#pragma once
// One request by itself, with Ctrl-C.

#include <functional>
#include <vector>

#include "app/command.h"

namespace subbyte::app {

struct Question {
  Request request;              // of one sample
  std::vector<TokenId> prompt;  // what it is as tokens
};

/// Says whether answer_one() has a bar to show while it computes the prompt: what is printed
/// meanwhile would be overwritten.
bool has_bar(const Invocation& invocation, const Session& session, const Question& question);

/// Answers a question, and nothing else meanwhile; a bar shows how much of a long prompt is
/// computed. `goes_on` is asked before each step, of a long prompt, too; false ends the answer,
/// with StopReason::kCaller. Codes: those of Session::add and Session::step, and of the sample.
Result<SampleEnd> answer_one(const Invocation& invocation, Session& session,
                             const Question& question,
                             const std::function<void(const Delta&)>& on_delta,
                             const std::function<bool()>& goes_on);

}  // namespace subbyte::app
