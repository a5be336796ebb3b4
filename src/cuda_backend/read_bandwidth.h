#pragma once
// What the memory of the GPU gives, measured beside a run.

#include "kernels/cuda/linear.h"

namespace subbyte {

class DeviceBytes;

/// Bytes per second of the best of some reads of `memory`; 0 when it does not exceed twice the
/// second-level cache, or when the GPU reports an error.
double measure_read_bandwidth(const DeviceBytes& memory, cuda::Stream stream);

}  // namespace subbyte
