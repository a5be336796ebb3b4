#pragma once
// A public executor as one of the library's own.

#include <memory>

#include "devices/devices.h"
#include "subbyte/device.h"

namespace subbyte::wrapped {

/// The threads of an executor of the caller's, or own ones where there is none.
inline std::shared_ptr<Executor> threads_or_own(std::shared_ptr<Executor> given) {
  return given != nullptr ? given : make_threads();
}

/// DeviceOptions whose names and threads stay those of `given`.
subbyte::DeviceOptions to_own(const DeviceOptions& given);

}  // namespace subbyte::wrapped
