#pragma once
// What a public Cpu holds.

#include <memory>

#include "cpp_interface/threads.h"
#include "cpu_backend/execution.h"
#include "subbyte/products.h"

namespace subbyte::wrapped {

struct Cpu::State {
  std::shared_ptr<Executor> threads;  // of the caller, if there are some
  std::unique_ptr<Execution> execution;
};

}  // namespace subbyte::wrapped
