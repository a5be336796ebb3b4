#pragma once
// Whether options divide a model among machines, and whether they may: before any is made.

#include "base/status.h"
#include "subbyte/device.h"

namespace subbyte {

/// Says whether some layers, and not all, are to be on a GPU.
bool divides_layers(const DeviceOptions& options);

/// Refuses numbers of layers out of range, and more than one way to divide a model, which no
/// machine has. Code device.stages.
Status check_divisions(const DeviceOptions& options);

}  // namespace subbyte
