#pragma once
// Device "auto": a GPU where one takes the model, else the CPU, whatever the GPU's reason is. Who
// loads models with it says one line of that:
//
//   choose_machine(options, device)                    the machine; says so where it is the CPU
//   load_on_machine(options, device, machine, load)    runs `load`; says which machine has taken
//                                                      the model where it began with a GPU

#include <functional>
#include <memory>
#include <string>

#include "backends/backends.h"

namespace subbyte {

/// How machines are found and made, and who is told what "auto" takes.
struct AutoDevice {
  std::function<Result<std::unique_ptr<Backend>>(const DeviceOptions&)> make = make_backend;
  /// Told once: "takes the CPU: " and why, or "takes " and the description of a GPU.
  std::function<void(const std::string& choice)> on_choice = nullptr;
  std::function<Result<int>()> find_gpu = first_usable_gpu;
};

/// The same, but for GPUs whose activations would be f16: they are bf16, and those of layers on the
/// CPU beside one stay f32. f16 ends at 65504, which squares pass from 256 on.
AutoDevice with_wide_activations(AutoDevice device);

/// The machine options.device; for "auto" a GPU, or the CPU where there is none, where it does not
/// have these options and where it cannot be made. Codes: those of make_backend.
Result<std::unique_ptr<Backend>> choose_machine(const DeviceOptions& options,
                                                const AutoDevice& device);

/// Tells whether an error of loading says that a machine with memory of its own does not take a
/// model or its cache, which the CPU may.
bool is_refusal_of_gpu(const Error& error);

/// Loads by `load`, which uses `machine` and leaves nothing that belongs to it when it fails. Where
/// options.device is "auto" and a GPU refuses, `machine` becomes the CPU and `load` runs again.
/// Codes: those of `load`, the second time those of the CPU.
Status load_on_machine(const DeviceOptions& options, const AutoDevice& device,
                       std::unique_ptr<Backend>& machine, const std::function<Status()>& load);

}  // namespace subbyte
