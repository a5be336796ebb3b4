// The whole layer in a build without CUDA.

#include "cuda_backend/cuda_backend.h"

namespace subbyte {
namespace {

Error no_cuda() {
  return {"cuda.device", "this program was built without CUDA (" SUBBYTE_NO_CUDA ")"};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions&) {
  return no_cuda();
}

}  // namespace subbyte
