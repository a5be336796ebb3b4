#include "kernels/cpu/execution.h"

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
      batch_invariant_(options.batch_invariant) {}

uint8_t* Execution::buffer(Slot slot, int64_t bytes) {
  const auto index = static_cast<std::size_t>(slot);
  if (sizes_[index] < bytes) {
    // Released first: the contents are not kept, and a prompt's activations can be large.
    buffers_[index].reset();
    sizes_[index] = 0;
    buffers_[index] = allocate_bytes(static_cast<std::size_t>(bytes));
    sizes_[index] = bytes;
  }
  return reinterpret_cast<uint8_t*>(buffers_[index].get());
}

float* Execution::floats(Slot slot, int64_t count) {
  return reinterpret_cast<float*>(buffer(slot, count * static_cast<int64_t>(sizeof(float))));
}

}  // namespace subbyte
