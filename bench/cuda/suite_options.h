#pragma once
// The commands of ./dev gpu-bench beside that of the kernels, and their options.

#include "app/arguments.h"

namespace subbyte::bench {

void add_suites(app::Program& program);

}  // namespace subbyte::bench
