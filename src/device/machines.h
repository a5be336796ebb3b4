#pragma once
// What this machine has to compute with, and what its memories give.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/gpu.h"
#include "subbyte/executor.h"

namespace subbyte::device {

struct GpuInfo {
  int index = 0;
  std::string name;
  int64_t memory_bytes = 0;
  int major = 0;  // compute capability
  int minor = 0;
};

/// The GPUs of this machine. Code cuda.device: this build has no CUDA, or there is no driver, or no
/// GPU; the message says which.
Result<std::vector<GpuInfo>> list_gpus();

/// Says whether kernels run there.
bool is_usable(const GpuInfo& gpu);
/// The index of the first GPU that is. Code cuda.device, which says why there is none.
Result<int> first_usable_gpu();

/// For people: "NVIDIA H100, 79.6 GiB, compute capability 9.0".
std::string describe(const GpuInfo& gpu);
/// The same of the kernels of docs/kernels/cuda.md that run there.
std::string kernels_of(const GpuInfo& gpu);

/// Bytes per second of the best of some reads of `memory`; 0 when it does not exceed twice the
/// caches, or when the GPU reports an error.
double measure_read_bandwidth(std::span<const std::byte> memory, Executor& threads);
SUBBYTE_BY_NVCC double measure_read_bandwidth(std::span<const std::byte> memory, const Gpu& gpu);

/// The same of memory of its own: 256 MiB, or as much more as the caches need, up to 2 GiB. 0 where
/// there is no room for it.
double measure_read_bandwidth(Executor& threads);
double measure_read_bandwidth(const Gpu& gpu);

}  // namespace subbyte::device
