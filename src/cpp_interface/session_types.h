#pragma once
// Requests and answers of a session, from the public types and to them.

#include <map>
#include <string_view>
#include <vector>

#include "session/session.h"
#include "subbyte/session.h"

namespace subbyte::wrapped {

/// Code: session.prompt (not one of prompt, tokens and messages).
Result<SessionRequest> to_own(const Request& request, const TextSetup& text);

Delta to_public(subbyte::Delta delta);

/// Adds what a step gave to the sample of a completion.
void append(const Delta& delta, Completion& completion);

}  // namespace subbyte::wrapped
