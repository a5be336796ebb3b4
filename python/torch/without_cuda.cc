// In place of cuda_functions.cc, in builds without CUDA.

namespace subbyte::torch_operators {

void use_cuda() {}

}  // namespace subbyte::torch_operators
