// Launches of the products of experts.

#include <cuda_runtime.h>

#include <array>
#include <string>

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/experts/kernel_set.h"
#include "kernels/cuda/small_m/plan.h"

namespace subbyte::cuda {

#define SUBBYTE_CUDA_WEIGHTS(name, decoder, bits, groups) \
  const ExpertKernels& name##_experts_f16();              \
  const ExpertKernels& name##_experts_bf16();
#include "kernels/cuda/weights.def"
#undef SUBBYTE_CUDA_WEIGHTS

namespace {

struct KernelsOfWeights {
  DecoderKind decoder;
  int bits;
  int groups;
  const ExpertKernels& (*f16)();
  const ExpertKernels& (*bf16)();
};

constexpr KernelsOfWeights kKernels[] = {
#define SUBBYTE_CUDA_WEIGHTS(name, decoder, bits, groups) \
  {DecoderKind::k##decoder, bits, groups, &name##_experts_f16, &name##_experts_bf16},
#include "kernels/cuda/weights.def"
#undef SUBBYTE_CUDA_WEIGHTS
};

const void* find_kernel(const PackedFormat& format, Number number, KernelKind kind) {
  for (const KernelsOfWeights& kernels : kKernels) {
    if (kernels.decoder != format.decoder || kernels.bits != format.bits ||
        kernels.groups != format.groups_per_tile) {
      continue;
    }
    const ExpertKernels& set = number == Number::kF16 ? kernels.f16() : kernels.bf16();
    return set.kernels[static_cast<int>(kind) - static_cast<int>(KernelKind::kSmallM8)];
  }
  return nullptr;
}

Error failure(const char* what, cudaError_t error) {
  return {"cuda.launch", std::string(what) + ": " + cudaGetErrorString(error)};
}

ExpertArguments arguments_of(const ExpertsCall& call) {
  ExpertArguments a = {};
  LinearArguments& linear = a.linear;
  linear.weights = call.weights;
  linear.x = call.x;
  linear.y = call.y;
  linear.bias = call.bias;
  linear.x_stride = call.x_stride;
  linear.y_stride = call.y_stride;
  linear.activation = call.activation;
  linear.clamp = call.clamp;
  linear.is_aligned = call.weights.gather == nullptr && call.weights.cols % 8 == 0 &&
                      call.x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(call.x) % 16 == 0;
  a.expert_bytes = call.expert_bytes;
  a.gains = call.gains;
  a.tiles = call.tiles;
  a.x_rows = call.x_rows;
  a.y_rows = call.y_rows;
  return a;
}

}  // namespace

Status run_experts(const Plan& plan, const ExpertsCall& call, Number number, Stream stream) {
  const void* const kernel = find_kernel(*call.format, number, plan.kernel);
  if (kernel == nullptr || !is_small_m(plan.kernel)) {
    return Error{"cuda.kernel", "experts: no kernel for this format"};
  }
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  if (error != cudaSuccess) return failure("experts: shared memory", error);
  ExpertArguments arguments = arguments_of(call);
  SmallMPartition partition = plan.small_m;
  std::array<void*, 2> pointers = {&arguments, &partition};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(plan.ctas), static_cast<unsigned>(call.num_tiles));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(plan.shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  error = cudaLaunchKernelExC(&config, kernel, pointers.data());
  if (error != cudaSuccess) return failure("experts", error);
  return {};
}

}  // namespace subbyte::cuda
