#include "devices/devices.h"

#include "base/thread_pool.h"
#include "cpu_backend/cpu_backend.h"

namespace subbyte {

static_assert(static_cast<int>(Activations::kBF16) == static_cast<int>(cpu::Precision::kBF16) &&
              static_cast<int>(Activations::kInt8) == static_cast<int>(cpu::Precision::kInt8));

Result<std::unique_ptr<Backend>> make_backend(const DeviceOptions& options) {
  return make_cpu_backend({.num_threads = options.num_threads,
                           .isa = options.isa,
                           .pin_threads = options.pin_threads,
                           .executor = options.executor,
                           .precision = static_cast<cpu::Precision>(options.activations),
                           .batch_invariant = options.batch_invariant});
}

std::unique_ptr<Executor> make_host(int num_threads, bool pin_threads) {
  return std::make_unique<ThreadPool>(ThreadPoolOptions{num_threads, pin_threads});
}

}  // namespace subbyte
