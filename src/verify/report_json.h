#pragma once
// Inspections and reports as JSON, for the program, C and Python alike.

#include <cstdint>

#include "json/strict_json.h"
#include "ops/cache_layout.h"
#include "verify/inspect.h"
#include "verify/verify.h"

namespace subbyte {

/// The object that `subbyte inspect --json` prints.
json::Value to_json(const Inspection& inspection);

/// The object that `subbyte verify --json` prints.
json::Value to_json(const VerifyReport& report);

/// Bits of the files for each parameter; 0 without parameters.
double bits_per_weight(const Inspection& inspection);

/// Says whether the number of parameters is known: without a config that is understood nobody says
/// what is packed into integers.
bool knows_weights(const Inspection& inspection);

/// Counts what a run keeps of sequences; nothing of a config that no step can be recorded of.
CacheLayout cache_of(const ModelConfig& model);

/// Bytes that a run takes with a full context.
uint64_t full_context_bytes(const Inspection& inspection, const ModelConfig& model);

}  // namespace subbyte
