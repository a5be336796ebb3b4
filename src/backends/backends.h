#pragma once
// The machines that models run on, under one interface (ops/backend.h). Programs make a backend
// here and name no kernel and no thread pool.

#include <memory>
#include <string>
#include <string_view>

#include "ops/backend.h"
#include "subbyte/device.h"

namespace subbyte {

/// The threads of options.threads outlive the backend. Codes: isa.unknown, isa.unsupported;
/// execution.options when threads are given and asked for as well, or other numbers of them than 0
/// to 4096; device.unknown for another name, device.unsupported for options that a GPU does not
/// have, or ranks; cuda.device when there is no such GPU, cuda.memory.
Result<std::unique_ptr<Backend>> make_backend(const DeviceOptions& options = {});

/// Changes options for a model of so many layers: a GPU that has more of them than there are has
/// all of it. Code device.stages where there are more stages than layers.
Status fit_to_layers(DeviceOptions& options, int64_t layers);

/// Tells whether this machine has a GPU of NVIDIA, with a driver, that this build could ask for.
bool has_gpu();

/// The index of the first GPU that the kernels run on. Code cuda.device, which says why there is
/// none.
Result<int> first_usable_gpu();

/// The options that a GPU does not have, as a sentence; empty: none.
std::string unsupported_by_gpu(const DeviceOptions& options);

}  // namespace subbyte
