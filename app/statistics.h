#pragma once
// The report after a generation.

#include "engine/generate.h"
#include "session/session.h"

namespace subbyte::app {

/// Lines with tokens per second of prefill and decode, bytes that a token reads, and what share of
/// the read bandwidth of this machine that is. The bandwidth is measured now, on the weights
/// themselves, when they are well beyond the caches; else it is left out, since it would be a
/// cache's.
std::string describe_statistics(const Session& session, const SampleEnd& stats);

/// A line for a generation that Ctrl-C ended.
std::string describe_stop(const SampleEnd& stats);

}  // namespace subbyte::app
