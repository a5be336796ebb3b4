// Launches the kernel of a step.

#include <cuda_runtime.h>

#include <array>
#include <string>

#include "kernels/cuda/step/step.h"
#include "kernels/cuda/weight_kind.h"

namespace subbyte::cuda {

#define SUBBYTE_CUDA_WEIGHTS(name, decoder, bits, groups, levels) \
  const void* name##_step(bool is_f16, bool is_full);
#include "kernels/cuda/weights.def"
#undef SUBBYTE_CUDA_WEIGHTS

namespace {

struct StepKernel {
  WeightKind kind;
  const void* (*kernel)(bool is_f16, bool is_full);
};

constexpr StepKernel kKernels[] = {
#define SUBBYTE_CUDA_WEIGHTS(name, decoder, bits, groups, levels) \
  {{DecoderKind::k##decoder, bits, groups, levels}, &name##_step},
#include "kernels/cuda/weights.def"
#undef SUBBYTE_CUDA_WEIGHTS
};

const void* find_kernel(const PackedFormat& format, Number number, bool is_full) {
  for (const StepKernel& kernels : kKernels) {
    if (kernels.kind == kind_of(format)) {
      return kernels.kernel(number == Number::kF16, is_full);
    }
  }
  return nullptr;
}

Error no_kernel() {
  return {"cuda.kernel", "step: no kernel for this format"};
}

Error failure(const char* what, cudaError_t error) {
  return {"cuda.launch", std::string(what) + ": " + cudaGetErrorString(error)};
}

}  // namespace

Status load_step(const PackedFormat& format, Number number, bool is_full) {
  const void* const kernel = find_kernel(format, number, is_full);
  if (kernel == nullptr) return no_kernel();
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return failure("step: kernel", error);
  return {};
}

Status run_step(const StepProgram& program, const PackedFormat& format, Number number,
                const Device& device, Stream stream) {
  const void* const kernel = find_kernel(format, number, program.is_full != 0);
  if (kernel == nullptr) return no_kernel();
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           program.shared.bytes);
  if (error != cudaSuccess) return failure("step: shared memory", error);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(device.multiprocessors));
  config.blockDim = dim3(kStepCtaThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(program.shared.bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;  // its CTAs wait for each other
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  StepProgram copy = program;
  std::array<void*, 1> arguments = {&copy};
  error = cudaLaunchKernelExC(&config, kernel, arguments.data());
  if (error != cudaSuccess) return failure("step", error);
  return {};
}

}  // namespace subbyte::cuda
