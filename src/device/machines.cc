#include "device/machines.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>

#include "base/cpu_features.h"
#include "kernels/cpu/read_bandwidth.h"
#include "matrix/matrix.h"

namespace subbyte::device {
namespace {

constexpr int kLeastMajor = 8;  // compute capability that the kernels need
constexpr int kHopperMajor = 9;
constexpr uint64_t kCacheMultiple = 2;  // how far beyond the caches a measurement has to be
constexpr int64_t kWrittenAtOnce = int64_t{2} << 20;

/// `measure` takes bytes, and gives nothing where there is no room for them.
template <typename Measure>
double measure_beyond_caches(const Measure& measure) {
  for (int64_t bytes = int64_t{256} << 20; bytes <= int64_t{2} << 30; bytes *= 2) {
    const std::optional<double> found = measure(bytes);
    if (!found || *found > 0) return found.value_or(0);
  }
  return 0;
}

}  // namespace

bool is_usable(const GpuInfo& gpu) {
  return gpu.major >= kLeastMajor;
}

std::string describe(const GpuInfo& gpu) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  char memory[32];
  std::snprintf(memory, sizeof memory, "%.1f", static_cast<double>(gpu.memory_bytes) / kGiB);
  return gpu.name + ", " + memory + " GiB, compute capability " + std::to_string(gpu.major) + "." +
         std::to_string(gpu.minor);
}

std::string kernels_of(const GpuInfo& gpu) {
  if (!is_usable(gpu)) return "none: they need compute capability 8.0";
  if (gpu.major == kHopperMajor) return "mma.sync and wgmma; steps of a few tokens as one kernel";
  return "mma.sync";
}

Result<int> first_usable_gpu() {
  SUBBYTE_TRY(const auto gpus, list_gpus());
  const auto usable = std::ranges::find_if(gpus, is_usable);
  if (usable != gpus.end()) return usable->index;
  return Error{"cuda.device",
               gpus.empty() ? "this machine has no NVIDIA GPU"
                            : describe(gpus.front()) + ": the kernels need compute capability 8.0"};
}

double measure_read_bandwidth(std::span<const std::byte> memory, Executor& threads) {
  if (memory.size() < kCacheMultiple * last_level_cache_bytes()) return 0;
  return cpu::measure_read_bandwidth(memory, threads).bytes_per_second;
}

double measure_read_bandwidth(Executor& threads) {
  const uint64_t least = kCacheMultiple * last_level_cache_bytes();
  return measure_beyond_caches([&](int64_t bytes) -> std::optional<double> {
    const auto size = static_cast<std::size_t>(bytes);
    if (size < least) return 0.0;
    try {
      const std::shared_ptr<std::byte[]> memory = allocate_bytes(size);
      // Pages that were never written share one.
      threads.parallel_for(bytes, kWrittenAtOnce, [&](int64_t begin, int64_t end, int) {
        std::fill(memory.get() + begin, memory.get() + end, std::byte{1});
      });
      return measure_read_bandwidth({memory.get(), size}, threads);
    } catch (const std::bad_alloc&) {
      return {};
    }
  });
}

double measure_read_bandwidth(const Gpu& gpu) {
  return measure_beyond_caches([&](int64_t bytes) -> std::optional<double> {
    const Result<Buffer> memory = gpu.allocate(bytes);
    if (!memory.ok()) return {};
    return measure_read_bandwidth(memory->span(), gpu);
  });
}

}  // namespace subbyte::device
