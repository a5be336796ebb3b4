// Launches: everything between a plan and the GPU.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <string>

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/linear_call.h"
#include "kernels/cuda/plan_launch.h"
#include "kernels/cuda/planning.h"
#include "kernels/cuda/prepare_inputs.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/weight_kind.h"

namespace subbyte::cuda {

#define SUBBYTE_CUDA_WEIGHTS(name, decoder, bits, groups, levels) \
  const KernelSet& name##_f16();                                  \
  const KernelSet& name##_bf16();
#include "kernels/cuda/weights.def"
#undef SUBBYTE_CUDA_WEIGHTS

namespace {

struct WeightKernels {
  WeightKind kind;
  const KernelSet& (*f16)();
  const KernelSet& (*bf16)();
};

constexpr WeightKernels kWeightKernels[] = {
#define SUBBYTE_CUDA_WEIGHTS(name, decoder, bits, groups, levels) \
  {{DecoderKind::k##decoder, bits, groups, levels}, &name##_f16, &name##_bf16},
#include "kernels/cuda/weights.def"
#undef SUBBYTE_CUDA_WEIGHTS
};

/// nullptr if there is none.
const KernelSet* find_kernels(const PackedFormat& format, Number number) {
  for (const WeightKernels& kernels : kWeightKernels) {
    if (kernels.kind == kind_of(format)) {
      return number == Number::kF16 ? &kernels.f16() : &kernels.bf16();
    }
  }
  return nullptr;
}

/// Of all kernels of all weights, in the order of weights.def.
int kernel_index(const void* kernel) {
  int index = 0;
  for (const WeightKernels& weights : kWeightKernels) {
    for (const KernelSet* set : {&weights.f16(), &weights.bf16()}) {
      for (int i = 0; i < kKernelKinds; ++i) {
        if (set->kernels[i] == kernel) return index + i;
      }
      index += kKernelKinds;
    }
  }
  return 0;
}

Error failure(const char* what, cudaError_t error) {
  return {"cuda.launch", std::string(what) + ": " + cudaGetErrorString(error)};
}

/// Copies rows of x to aligned ones, in the order of the columns.
__global__ void gather_activations(uint16_t* to, const uint16_t* x, const uint32_t* gather,
                                   int64_t m, int cols, int64_t x_stride, int64_t to_stride) {
  const int64_t size = m * to_stride;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step) {
    const int64_t row = i / to_stride;
    const int64_t col = i % to_stride;
    to[i] = col < cols ? x[row * x_stride + (gather != nullptr ? gather[col] : col)] : 0;
  }
}

/// Sets the attribute once for each kernel, device and size larger than the ones before.
Status allow_shared_memory(const void* kernel, int bytes) {
  constexpr int kDevices = 64;
  static std::array<std::atomic<int>, kDevices * kKernelKinds * 2 * std::size(kWeightKernels)>
      allowed;
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return failure("linear", error);
  const std::size_t index = static_cast<std::size_t>(kernel_index(kernel)) * kDevices + device;
  if (device < kDevices && allowed[index].load(std::memory_order_relaxed) >= bytes) return {};
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return failure("linear: shared memory", error);
  if (device < kDevices) allowed[index].store(bytes, std::memory_order_relaxed);
  return {};
}

Status launch(const void* kernel, const Plan& plan, void** arguments, bool dependent,
              Stream stream) {
  SUBBYTE_CHECK(allow_shared_memory(kernel, plan.shared_bytes));
  return launch_plan("linear", kernel, plan, arguments, dependent, stream);
}

/// `gathers`: x is copied to the workspace first.
Status run_large_m(const void* kernel, const Plan& plan, const LinearCall& call, Number number,
                   bool gathers, void* workspace, Stream stream) {
  LinearArguments a = linear_arguments(call);
  if (gathers) {
    const int64_t stride = (call.weights.cols + 7) / 8 * 8;
    const int64_t blocks = std::min<int64_t>((call.m * stride + 1023) / 1024, 4096);
    gather_activations<<<static_cast<unsigned>(blocks), 256, 0, stream>>>(
        static_cast<uint16_t*>(workspace), static_cast<const uint16_t*>(call.x),
        call.weights.gather, call.m, call.weights.cols, call.x_stride, stride);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return failure("linear: gather", error);
    a.x = workspace;
    a.x_stride = stride;
  }
  CUtensorMap map;
  SUBBYTE_CHECK(describe_activations(map, a.x, call.m, call.weights.cols, a.x_stride,
                                     plan.large_m.copied_tokens, number));
  LargeMPartition partition = plan.large_m;
  std::array<void*, 3> arguments = {&a, &partition, &map};
  return launch(kernel, plan, arguments.data(), call.dependent_launch && !gathers, stream);
}

/// The call with inputs as the weights want them, which a kernel before it writes.
Result<LinearCall> with_prepared_inputs(const LinearCall& call, Number number, void* workspace,
                                        Stream stream) {
  PrepareInputsCall inputs;
  inputs.format = call.format;
  inputs.x = call.x;
  inputs.to = workspace;
  inputs.x_stride = call.x_stride;
  inputs.m = call.m;
  inputs.number = number;
  inputs.dependent_launch = call.dependent_launch;
  SUBBYTE_CHECK(prepare_inputs(inputs, stream));
  LinearCall prepared = call;
  prepared.x = workspace;
  prepared.x_stride = prepared_stride(call.weights.cols);
  prepared.dependent_launch = true;
  return prepared;
}

}  // namespace

Status launch_plan(const char* what, const void* kernel, const Plan& plan, void** arguments,
                   bool dependent, Stream stream) {
  const LaunchConfig config({dim3(static_cast<unsigned>(plan.ctas)), plan.threads,
                             plan.shared_bytes, plan.cluster, dependent},
                            stream);
  const cudaError_t error = cudaLaunchKernelExC(config.get(), kernel, arguments);
  if (error != cudaSuccess) return failure(what, error);
  return {};
}

Status run_linear(const Plan& plan, const LinearCall& call, Number number, void* workspace,
                  Stream stream) {
  SUBBYTE_CHECK(check_call(plan, call, workspace));
  const KernelSet* set = find_kernels(*call.format, number);
  if (set == nullptr) return Error{"cuda.kernel", "linear: no kernel for this format"};
  const void* kernel = set->kernels[static_cast<int>(plan.kernel)];
  const bool prepares = prepares_inputs(*call.format);
  LinearCall ready = call;
  if (prepares) {
    SUBBYTE_TRY(ready, with_prepared_inputs(call, number, workspace, stream));
  }
  if (is_large_m(plan.kernel)) {
    const bool gathers = !prepares && plan.workspace_bytes > 0;
    return run_large_m(kernel, plan, ready, number, gathers, workspace, stream);
  }
  LinearArguments a = linear_arguments(ready);
  SmallMPartition small_m = plan.small_m;
  GemvPartition gemv = plan.gemv;
  const bool is_gemv = plan.kernel == KernelKind::kGemv;
  std::array<void*, 2> arguments = {&a, is_gemv ? static_cast<void*>(&gemv) : &small_m};
  return launch(kernel, plan, arguments.data(), ready.dependent_launch, stream);
}

}  // namespace subbyte::cuda
