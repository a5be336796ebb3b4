#include "backends/backends.h"

#include <charconv>
#include <optional>

#include "backends/auto_device.h"
#include "backends/cpu_options.h"
#include "backends/divisions.h"
#include "backends/ranks.h"
#include "backends/stages.h"
#include "base/thread_pool.h"
#include "cpu_backend/cpu_backend.h"
#include "cuda_backend/cuda_backend.h"
#include "device/machines.h"

namespace subbyte {

namespace {

constexpr std::string_view kCuda = "cuda";

/// The index of "cuda" (0) or "cuda:N".
std::optional<int> gpu_index(std::string_view device) {
  if (device == kCuda) return 0;
  if (!device.starts_with("cuda:")) return std::nullopt;
  const std::string_view digits = device.substr(kCuda.size() + 1);
  int index = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || end != digits.data() + digits.size() || index < 0) {
    return std::nullopt;
  }
  return index;
}

Result<std::unique_ptr<Backend>> make_cpu(const DeviceOptions& options) {
  SUBBYTE_CHECK(check_ranks(options));
  SUBBYTE_CHECK(check_stages(options));
  if (divides_layers(options)) {
    return Error{"device.stages",
                 "layers on a GPU (--gpu-layers), and the device is the CPU alone"};
  }
  SUBBYTE_TRY(const ExecutionOptions own, cpu_options(options));
  if (options.pipeline_parallel_size > 1) {
    return make_cpu_stages(own, options.pipeline_parallel_size);
  }
  return options.tensor_parallel_size > 1 ? make_cpu_ranks(own, options.tensor_parallel_size)
                                          : make_cpu_backend(own);
}

Result<std::unique_ptr<Backend>> make_gpu(const DeviceOptions& options, int index) {
  const std::string unserved = unsupported_by_gpu(options);
  if (!unserved.empty()) return Error{"device.unsupported", unserved};
  SUBBYTE_CHECK(check_ranks(options));
  SUBBYTE_CHECK(check_stages(options));
  SUBBYTE_CHECK(check_num_threads(options.num_threads));
  SUBBYTE_CHECK(device::count_gpus());
  const bool is_bf16 =
      options.activations == Activations::kBF16 || options.activations == Activations::kWide;
  const CudaOptions own = {.index = index,
                           .is_bf16 = is_bf16,
                           .mxfp8_experts = options.activations == Activations::kMxfp8,
                           .fp8_activations = options.activations == Activations::kFp8,
                           .num_threads = options.num_threads,
                           .batch_invariant = options.batch_invariant,
                           .step_kernel_tokens = options.step_kernel_tokens,
                           .step_graphs = options.step_graphs};
  if (divides_layers(options)) {
    SUBBYTE_TRY(const ExecutionOptions cpu, cpu_options(options));
    return make_cpu_and_gpu(cpu, own, options.gpu_layers);
  }
  if (options.pipeline_parallel_size > 1) {
    return make_gpu_stages(own, options.pipeline_parallel_size);
  }
  return options.tensor_parallel_size > 1 ? make_gpu_ranks(own, options.tensor_parallel_size)
                                          : make_cuda_backend(own);
}

DeviceInfo info_of(const device::GpuInfo& gpu, bool measures) {
  DeviceInfo info = {"cuda:" + std::to_string(gpu.index), device::describe(gpu),
                     device::kernels_of(gpu), gpu.memory_bytes};
  if (!measures || !device::is_usable(gpu)) return info;
  const auto used = device::Gpu::use(gpu.index, nullptr);
  if (used.ok()) info.read_bandwidth = device::measure_read_bandwidth(*used);
  return info;
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const DeviceOptions& options) {
  const std::optional<int> index = gpu_index(options.device);
  if (!index && options.device != "cpu" && options.device != "auto") {
    return Error{"device.unknown", "no device " + quote_name(options.device) +
                                       "; there are auto, cpu, cuda and cuda:N"};
  }
  if (options.gpu_layers == 0) {
    DeviceOptions cpu = options;
    cpu.device = "cpu";
    cpu.gpu_layers = -1;
    return make_backend(cpu);
  }
  if (options.device == "cpu") return make_cpu(options);
  return index ? make_gpu(options, *index) : choose_machine(options, {});
}

Status fit_to_layers(DeviceOptions& options, int64_t layers) {
  if (options.gpu_layers > layers) options.gpu_layers = -1;
  if (options.pipeline_parallel_size <= layers) return {};
  return Error{"device.stages",
               "a pipeline of " + std::to_string(options.pipeline_parallel_size) +
                   " stages, which have a layer each at least, and the model has " +
                   std::to_string(layers) + " layers"};
}

bool has_gpu() {
  const auto gpus = device::list_gpus();
  return gpus.ok() && !gpus->empty();
}

Result<int> first_usable_gpu() {
  return device::first_usable_gpu();
}

std::string unsupported_by_gpu(const DeviceOptions& options) {
  if (options.activations == Activations::kInt8) {
    return "activations on the GPU are f16 or bf16 (and mxfp8 for experts, fp8 beside weights in "
           "FP8), not int8";
  }
  if (options.activations == Activations::kFp8 && options.batch_invariant) {
    return "activations in fp8 are those of many tokens alone, so results are not batch-invariant";
  }
  if (options.threads != nullptr) return "the GPU takes no executor";
  if (options.pin_threads) return "pinned threads are for models on the CPU";
  return {};
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

Result<DeviceList> list_devices(const DeviceOptions& options, bool measures) {
  DeviceList list;
  SUBBYTE_TRY(const auto cpu, make_cpu(options));
  list.devices.push_back({.device = "cpu", .description = cpu->description(), .kernels = {}});
  if (measures) list.devices.back().read_bandwidth = device::measure_read_bandwidth(cpu->host());
  const auto gpus = device::list_gpus();
  if (!gpus.ok()) {
    list.no_gpu = gpus.error().message;
    return list;
  }
  for (const device::GpuInfo& gpu : *gpus) {
    list.devices.push_back(info_of(gpu, measures));
  }
  return list;
}

SUBBYTE_END_NAMESPACE
