#pragma once
// The report after a generation, on stderr.

#include "app/command.h"
#include "engine/generate.h"

namespace subbyte::app {

/// Tokens per second of prefill and decode, bytes that a token reads, and what share of the read
/// bandwidth of this machine that is. The bandwidth is measured now, on the weights themselves,
/// when they are well beyond the caches; else it is left out, since it would be a cache's.
void print_statistics(const LoadedModel& loaded, const KvPool& pool, const GenerateStats& stats);

}  // namespace subbyte::app
