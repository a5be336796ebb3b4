// The driver is never asked: products on GPUs are refused before.

#include "gpu_memory.h"

namespace subbyte::python {
namespace {

Error none() {
  return {"cuda.device",
          "an array is in the memory of a GPU, and this subbyte was built without CUDA "
          "(" SUBBYTE_NO_CUDA "): copy the array to the host"};
}

}  // namespace

Status check_gpu(int) {
  return none();
}

bool is_captured(int, void*) {
  return false;
}

Result<std::shared_ptr<void>> allocate_on_gpu(int, int64_t, void*) {
  return none();
}

Status put_in_order(int, void*, void*) {
  return none();
}

}  // namespace subbyte::python
