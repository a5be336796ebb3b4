#pragma once
// What to say when memory does not suffice.

#include "app/command.h"

namespace subbyte::app {

/// Names what was wanted, for what, what there is, and what helps. Code memory.
Error not_enough_memory(const LoadedModel& loaded, const LoadOptions& options);

}  // namespace subbyte::app
