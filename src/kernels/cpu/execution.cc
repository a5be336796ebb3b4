#include "kernels/cpu/execution.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "matrix/matrix.h"

namespace subbyte {

Result<std::unique_ptr<Execution>> Execution::create(const ExecutionOptions& options) {
  if (options.executor != nullptr && (options.num_threads != 0 || options.pin_threads)) {
    return Error{"execution.options",
                 "an executor of the calling program has its own threads: expected num_threads 0 "
                 "and pin_threads false"};
  }
  SUBBYTE_CHECK(check_num_threads(options.num_threads));
  SUBBYTE_TRY(const cpu::Kernels* kernels, cpu::select_kernels(options.isa));
  return std::unique_ptr<Execution>(new Execution(options, kernels));
}

Execution::Execution(const ExecutionOptions& options, const cpu::Kernels* kernels)
    : own_pool_(options.executor != nullptr ? nullptr
                                            : std::make_unique<ThreadPool>(ThreadPoolOptions{
                                                  options.num_threads, options.pin_threads})),
      pool_(options.executor != nullptr ? options.executor : own_pool_.get()),
      kernels_(kernels),
      precision_(options.precision),
      mxfp8_experts_(options.mxfp8_experts),
      batch_invariant_(options.batch_invariant),
      expansion_floats_(options.expansion_floats) {}

uint8_t* Execution::buffer(Slot slot, int64_t bytes) {
  constexpr int64_t kManySmall = 4096;
  Buffer& buffer = buffers_[static_cast<std::size_t>(slot)];
  const bool is_small = bytes < buffer.size / 4;
  buffer.num_small = is_small ? buffer.num_small + 1 : 0;
  buffer.needed = is_small ? std::max(buffer.needed, bytes) : 0;
  if (buffer.size < bytes || buffer.num_small > kManySmall) {
    const int64_t size = std::max(bytes, buffer.needed);
    buffer = {};  // first: the contents are not kept, and a prompt's activations can be large
    buffer.bytes = allocate_bytes(static_cast<std::size_t>(size));
    buffer.size = size;
  }
  return reinterpret_cast<uint8_t*>(buffer.bytes.get());
}

float* Execution::floats(Slot slot, int64_t count) {
  return reinterpret_cast<float*>(buffer(slot, count * static_cast<int64_t>(sizeof(float))));
}

}  // namespace subbyte
