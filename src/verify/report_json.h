#pragma once
// What was found in a checkpoint as JSON: what --json of `inspect` and `verify` prints.

#include "json/strict_json.h"
#include "verify/inspect.h"
#include "verify/verify.h"

namespace subbyte {

json::Value to_json(const Inspection& inspection);

json::Value to_json(const VerifyReport& report);

}  // namespace subbyte
