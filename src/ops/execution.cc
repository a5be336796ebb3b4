#include "ops/execution.h"

#include "layouts/matrix.h"

namespace subbyte {

Result<std::unique_ptr<Execution>> Execution::create(int num_threads, std::string_view isa) {
  SUBBYTE_TRY(const cpu::Kernels* kernels, cpu::select_kernels(isa));
  return std::unique_ptr<Execution>(new Execution(num_threads, kernels));
}

uint8_t* Execution::buffer(Slot slot, int64_t bytes) {
  const auto index = static_cast<std::size_t>(slot);
  if (sizes_[index] < bytes) {
    // Released first: the contents are not kept, and a prompt's activations can be large.
    buffers_[index].reset();
    buffers_[index] = allocate_bytes(static_cast<std::size_t>(bytes));
    sizes_[index] = bytes;
  }
  return reinterpret_cast<uint8_t*>(buffers_[index].get());
}

}  // namespace subbyte
