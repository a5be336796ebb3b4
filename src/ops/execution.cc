#include "ops/execution.h"

#include "layouts/matrix.h"

namespace subbyte {

Result<std::unique_ptr<Execution>> Execution::create(int num_threads, std::string_view isa) {
  SUBBYTE_TRY(const cpu::Kernels* kernels, cpu::select_kernels(isa));
  return std::unique_ptr<Execution>(new Execution(num_threads, kernels));
}

float* Execution::buffer(Slot slot, int64_t floats) {
  const auto index = static_cast<std::size_t>(slot);
  if (sizes_[index] < floats) {
    // Released first: the contents are not kept, and a prompt's activations can be large.
    buffers_[index].reset();
    buffers_[index] = allocate_bytes(static_cast<std::size_t>(floats) * sizeof(float));
    sizes_[index] = floats;
  }
  return reinterpret_cast<float*>(buffers_[index].get());
}

}  // namespace subbyte
