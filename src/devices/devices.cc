#include "devices/devices.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <new>
#include <optional>

#include "cpu_backend/cpu_backend.h"
#include "cpu_backend/thread_limit.h"
#include "cuda_backend/cuda_backend.h"
#include "devices/auto_device.h"
#include "devices/cpu_options.h"

namespace subbyte {

namespace {

constexpr std::string_view kCuda = "cuda";
constexpr int kLeastMajor = 8;  // compute capability that the kernels need
constexpr int kHopperMajor = 9;

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
  SUBBYTE_TRY(const ExecutionOptions own, cpu_options(options));
  return make_cpu_backend(own);
}

Result<std::unique_ptr<Backend>> make_gpu(const DeviceOptions& options, int index) {
  const std::string unserved = unsupported_by_gpu(options);
  if (!unserved.empty()) return Error{"device.unsupported", unserved};
  SUBBYTE_CHECK(check_num_threads(options.num_threads));
  return make_cuda_backend({.index = index,
                            .is_bf16 = options.activations == Activations::kBF16,
                            .mxfp8_experts = options.activations == Activations::kMxfp8,
                            .fp8_activations = options.activations == Activations::kFp8,
                            .num_threads = options.num_threads,
                            .batch_invariant = options.batch_invariant,
                            .step_kernel_tokens = options.step_kernel_tokens,
                            .step_graphs = options.step_graphs});
}

std::string describe(const Gpu& gpu) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  char memory[32];
  std::snprintf(memory, sizeof memory, "%.1f", static_cast<double>(gpu.memory_bytes) / kGiB);
  return gpu.name + ", " + memory + " GiB, compute capability " + std::to_string(gpu.major) + "." +
         std::to_string(gpu.minor);
}

/// Which kernels of docs/kernels/cuda.md run there.
std::string kernels_of(const Gpu& gpu) {
  if (gpu.major < kLeastMajor) return "none: they need compute capability 8.0";
  if (gpu.major == kHopperMajor) return "mma.sync and wgmma; steps of a few tokens as one kernel";
  return "mma.sync";
}

/// Of the bytes of a dense matrix. 0: the caches hold it; nothing: there is no room for it.
std::optional<double> measure_bandwidth(Backend& backend, int64_t rows) {
  constexpr int64_t kCols = 16384;
  const std::size_t size = static_cast<std::size_t>(rows * kCols) * sizeof(uint16_t);
  Matrix matrix;
  try {
    const std::shared_ptr<std::byte[]> bytes = allocate_bytes(size);
    std::fill_n(bytes.get(), size, std::byte{1});  // pages that were never written share one
    matrix.view.codes = {bytes.get(), size};
    matrix.owners.push_back(bytes);
  } catch (const std::bad_alloc&) {
    return {};
  }
  matrix.view.format = {Format::kF16};
  matrix.view.rows = rows;
  matrix.view.cols = kCols;
  const auto weight = backend.upload(std::move(matrix));
  if (!weight.ok()) return {};
  return backend.measure_read_bandwidth(*weight);
}

/// Of 256 MiB, or as much more as the caches of large machines need, up to 2 GiB.
double measure_bandwidth(Backend& backend) {
  for (int64_t rows = 8192; rows <= 65536; rows *= 2) {
    const std::optional<double> found = measure_bandwidth(backend, rows);
    if (!found || *found > 0) return found.value_or(0);
  }
  return 0;
}

DeviceInfo info_of(const Gpu& gpu, const DeviceOptions& options, bool measures) {
  DeviceInfo info = {"cuda:" + std::to_string(gpu.index), describe(gpu), kernels_of(gpu),
                     gpu.memory_bytes};
  if (!measures || gpu.major < kLeastMajor) return info;
  DeviceOptions plain;
  plain.num_threads = options.num_threads;
  const auto backend = make_gpu(plain, gpu.index);
  if (backend.ok()) info.read_bandwidth = measure_bandwidth(**backend);
  return info;
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const DeviceOptions& options) {
  if (options.device == "cpu") return make_cpu(options);
  if (options.device == "auto") return choose_machine(options, {});
  const std::optional<int> index = gpu_index(options.device);
  if (index) return make_gpu(options, *index);
  return Error{"device.unknown", "no device " + quote_name(options.device) +
                                     "; there are auto, cpu, cuda and cuda:N"};
}

bool has_gpu() {
  const auto gpus = list_gpus();
  return gpus.ok() && !gpus->empty();
}

Result<int> first_usable_gpu() {
  SUBBYTE_TRY(const auto gpus, list_gpus());
  for (const Gpu& gpu : gpus) {
    if (gpu.major >= kLeastMajor) return gpu.index;
  }
  return Error{"cuda.device",
               gpus.empty() ? "this machine has no NVIDIA GPU"
                            : describe(gpus.front()) + ": the kernels need compute capability 8.0"};
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

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

Result<DeviceList> list_devices(const DeviceOptions& options, bool measures) {
  DeviceList list;
  SUBBYTE_TRY(const auto cpu, make_cpu(options));
  list.devices.push_back({.device = "cpu", .description = cpu->description(), .kernels = {}});
  if (measures) list.devices.back().read_bandwidth = measure_bandwidth(*cpu);
  const auto gpus = list_gpus();
  if (!gpus.ok()) {
    list.no_gpu = gpus.error().message;
    return list;
  }
  for (const Gpu& gpu : *gpus) {
    list.devices.push_back(info_of(gpu, options, measures));
  }
  return list;
}

SUBBYTE_END_NAMESPACE
