// Launches of the products of experts.

#include <cuda_runtime.h>

#include <array>
#include <string>

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/experts/kernel_set.h"
#include "kernels/cuda/experts/launch.h"
#include "kernels/cuda/plan_launch.h"
#include "kernels/cuda/small_m/plan.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/weight_kind.h"

namespace subbyte::cuda {

#define SUBBYTE_CUDA_WEIGHTS(name, decoder, bits, groups, levels) \
  const ExpertKernels& name##_experts_f16();                      \
  const ExpertKernels& name##_experts_bf16();
#include "kernels/cuda/experts/weights.def"
#include "kernels/cuda/weights.def"
#undef SUBBYTE_CUDA_WEIGHTS

namespace {

struct KernelsOfWeights {
  WeightKind kind;
  const ExpertKernels& (*f16)();
  const ExpertKernels& (*bf16)();
};

constexpr KernelsOfWeights kKernels[] = {
#define SUBBYTE_CUDA_WEIGHTS(name, decoder, bits, groups, levels) \
  {{DecoderKind::k##decoder, bits, groups, levels}, &name##_experts_f16, &name##_experts_bf16},
#include "kernels/cuda/experts/weights.def"
#include "kernels/cuda/weights.def"
#undef SUBBYTE_CUDA_WEIGHTS
};

const void* kernel_of(const ExpertKernels& set, KernelKind kind) {
  if (kind == KernelKind::kSmallM8) return set.small_m8;
  if (kind == KernelKind::kSmallM16) return set.small_m16;
  if (kind == KernelKind::kSmallM64) return set.small_m64;
  if (kind == KernelKind::kPanel16) return set.panel16;
  if (kind == KernelKind::kLargeM128) return set.large_m128;
  return kind == KernelKind::kLargeM256 ? set.large_m256 : nullptr;
}

const void* find_kernel(const PackedFormat& format, Number number, KernelKind kind) {
  for (const KernelsOfWeights& kernels : kKernels) {
    if (kernels.kind == kind_of(format)) {
      return kernel_of(number == Number::kF16 ? kernels.f16() : kernels.bf16(), kind);
    }
  }
  return nullptr;
}

}  // namespace

ExpertArguments expert_arguments(const ExpertsCall& call) {
  ExpertArguments a = {};
  LinearArguments& linear = a.linear;
  linear.weights = call.weights;
  linear.x = call.x;
  linear.y = call.y;
  linear.bias = call.bias;
  linear.x_stride = call.x_stride;
  linear.y_stride = call.y_stride;
  linear.activation = call.activation;
  linear.swiglu = call.swiglu;
  linear.is_dependent = call.follows_experts;
  linear.y_is_other = call.y_is_other;
  linear.is_aligned = call.weights.gather == nullptr && call.weights.cols % 8 == 0 &&
                      call.x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(call.x) % 16 == 0;
  a.expert_bytes = call.expert_bytes;
  a.gains = call.gains;
  a.shared = call.shared;
  a.up_gains = call.up_gains != nullptr ? call.up_gains : call.gains;
  a.tiles = call.tiles;
  a.num_tiles = static_cast<int32_t>(call.num_tiles);
  a.x_rows = call.x_rows;
  a.y_rows = call.y_rows;
  return a;
}

Status launch_experts(const void* kernel, const Plan& plan, void** arguments, Stream stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  if (error != cudaSuccess) {
    return Error{"cuda.launch",
                 std::string("experts: shared memory: ") + cudaGetErrorString(error)};
  }
  return launch_plan("experts", kernel, plan, arguments, true, stream);
}

Status run_experts(const ExpertPlan& plan, const ExpertsCall& call, Number number, Stream stream) {
  const void* const kernel = find_kernel(*call.format, number, plan.kernel);
  if (kernel == nullptr) return Error{"cuda.kernel", "experts: no kernel for this format"};
  ExpertArguments a = expert_arguments(call);
  if (is_small_m(plan.kernel)) {
    SmallMPartition partition = plan.small_m;
    a.parts = plan.parts;
    std::array<void*, 2> arguments = {&a, &partition};
    return launch_experts(kernel, plan, arguments.data(), stream);
  }
  if (plan.kernel == KernelKind::kPanel16) {
    PanelPartition partition = plan.panel;
    std::array<void*, 2> arguments = {&a, &partition};
    return launch_experts(kernel, plan, arguments.data(), stream);
  }
  CUtensorMap map;
  SUBBYTE_CHECK(describe_activations(map, call.x, call.x_count, call.weights.cols, call.x_stride,
                                     tokens_of(plan.kernel) / plan.large_m.multicast, number));
  LargeMPartition partition = plan.large_m;
  std::array<void*, 3> arguments = {&a, &partition, &map};
  return launch_experts(kernel, plan, arguments.data(), stream);
}

}  // namespace subbyte::cuda
