#include "backends/auto_device.h"

#include <utility>

#include "backends/divisions.h"
#include "backends/processes.h"

namespace subbyte {
namespace {

void tell(const AutoDevice& device, const std::string& choice) {
  if (device.on_choice) device.on_choice(choice);
}

/// These options on a GPU that has them, or why there is none.
Result<DeviceOptions> on_gpu(const DeviceOptions& options, const AutoDevice& device) {
  const std::string unserved = unsupported_by_gpu(options);
  if (!unserved.empty()) return Error{"device.unsupported", unserved};
  SUBBYTE_TRY(const int index, device.find_gpu());
  DeviceOptions gpu = options;
  gpu.device = "cuda:" + std::to_string(index);
  return gpu;
}

/// The CPU with a GPU that has the layers that fit.
Result<std::unique_ptr<Backend>> make_both(const DeviceOptions& options, const AutoDevice& device) {
  if (options.device != "auto") return device.make(options);
  SUBBYTE_TRY(const DeviceOptions gpu, on_gpu(options, device));
  return device.make(gpu);
}

Result<std::unique_ptr<Backend>> make_cpu(DeviceOptions options, const AutoDevice& device,
                                          const Error& reason) {
  tell(device, "takes the CPU: " + reason.message);
  options.device = "cpu";
  options.gpu_layers = -1;
  return device.make(options);
}

}  // namespace

AutoDevice with_wide_activations(AutoDevice device) {
  device.make = [make = std::move(device.make)](const DeviceOptions& options) {
    DeviceOptions wide = options;
    if (options.activations == Activations::kF32) wide.activations = Activations::kWide;
    return make(wide);
  };
  return device;
}

Result<std::unique_ptr<Backend>> choose_machine(const DeviceOptions& given,
                                                const AutoDevice& device) {
  SUBBYTE_CHECK(check_divisions(given));  // before the CPU is taken instead
  DeviceOptions options = given;
  const bool is_auto = given.device == "auto";
  if (is_auto && given.gpu_layers == 0) options.device = "cpu";        // which was asked for
  if (given.gpu_layers == kGpuLayersThatFit) options.gpu_layers = -1;  // until not all of them fit
  if (options.device != "auto") return device.make(options);
  const auto is_refusal = [](const Error& error) {
    return is_refusal_of_gpu(error) || error.code == "device.unsupported";
  };
  const Result<DeviceOptions> found = on_gpu(options, device);
  if (!found.ok() && !is_refusal(found.error())) return found.error();
  if (!found.ok()) return make_cpu(options, device, found.error());
  auto gpu = device.make(*found);
  // Processes that have met to be one model on GPUs do not meet again.
  if (gpu.ok() || !is_refusal(gpu.error()) || is_one_of_several(options)) return gpu;
  return make_cpu(options, device, gpu.error());
}

bool is_refusal_of_gpu(const Error& error) {
  if (error.code == "cuda.peer_access") return false;  // several GPUs were asked for by number
  return error.code == "memory.device" || error.code == "linear.unsupported" ||
         error.code == "kv.unsupported" || error.code == "kv.memory" ||
         error.code.starts_with("recast.") || error.code.starts_with("cuda.");
}

Status load_on_machine(const DeviceOptions& options, const AutoDevice& device,
                       std::unique_ptr<Backend>& machine, const std::function<Status()>& load) {
  Status loaded = load();
  if (machine->memory() == nullptr || exchange_of(*machine) != nullptr) return loaded;
  const bool may_be_less = options.gpu_layers == kGpuLayersThatFit;
  if (!loaded.ok() && may_be_less && loaded.error().code == "memory.device") {
    machine.reset();  // which has the GPU
    SUBBYTE_TRY(machine, make_both(options, device));
    loaded = load();
  }
  if (options.device != "auto") return loaded;
  if (loaded.ok()) {
    tell(device, "takes " + machine->description());
    return loaded;
  }
  if (!is_refusal_of_gpu(loaded.error())) return loaded;
  machine.reset();
  SUBBYTE_TRY(machine, make_cpu(options, device, loaded.error()));
  return load();
}

}  // namespace subbyte
