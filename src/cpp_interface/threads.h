#pragma once
// Threads of the caller's, or own ones.

#include <memory>

#include "devices/devices.h"

namespace subbyte::wrapped {

inline std::shared_ptr<Executor> threads_or_own(std::shared_ptr<Executor> given) {
  return given != nullptr ? given : make_threads();
}

}  // namespace subbyte::wrapped
