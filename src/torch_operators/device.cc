#include "torch_operators/device.h"

namespace subbyte::torch_operators {
namespace {

const DeviceFunctions* of_cuda = nullptr;

}  // namespace

void set_cuda_functions(const DeviceFunctions& functions) {
  of_cuda = &functions;
}

const DeviceFunctions* cuda_functions() {
  return of_cuda;
}

}  // namespace subbyte::torch_operators
