// W4A8: the kernels of experts in MXFP4 by rows in E4M3, and their launches.

#include <cuda_runtime.h>

#include <array>
#include <cmath>

#include "kernels/cuda/decoder_of.cuh"
#include "kernels/cuda/experts/large_m.cuh"
#include "kernels/cuda/experts/launch.h"
#include "kernels/cuda/experts/w4a8.h"
#include "kernels/cuda/large_m/w4a8_products.cuh"
#include "kernels/cuda/tensor_map.h"

namespace subbyte::cuda {
namespace {

constexpr int kE8M0Bias = 127;

template <class Number>
__global__ void __launch_bounds__(kLargeMThreads, 1)
    experts_w4a8_kernel(const __grid_constant__ ExpertArguments a,
                        const __grid_constant__ LargeMPartition p,
                        const __grid_constant__ CUtensorMap codes,
                        const __grid_constant__ RowsIn8BitsArguments rows) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Decoder = decltype(decoder_of<E2M1, Number, 4>());
  extern __shared__ uint8_t shared[];
  __shared__ LinearArguments results[2];
  griddepcontrol_wait();  // the tiles come from the kernel before
  run_large_m<ProductsIn8Bits<Number, Decoder>>(a.linear, p, MapsIn8Bits{codes, rows},
                                                ExpertItems(a, p, results), shared);
#endif
}

/// What the epilogue multiplies by besides: WeightArguments::gain over scale_factor.
float unit_of(const WeightArguments& weights, int largest, Number number) {
  const float gain = number == Number::kF16 ? E2M1<F16>::kGain : E2M1<BF16>::kGain;
  return std::ldexp(weights.scale_factor / gain, largest - kE8M0Bias - kTopScale);
}

}  // namespace

bool has_w4a8_products(const PackedFormat& format) {
  return format.decoder == DecoderKind::kE2M1 && format.groups_per_tile == 2 &&
         format.scale_kind == ScaleKind::kE8M0 && format.cols % 32 == 0;
}

Status run_experts_w4a8(const ExpertPlan& plan, const ExpertsCall& call, const RowsIn8Bits& x,
                        double largest_scale, Number number, Stream stream) {
  if (plan.kernel != KernelKind::kLargeM256 || !has_w4a8_products(*call.format)) {
    return Error{"cuda.kernel", "experts in 8 bits: no kernel for this format"};
  }
  const void* const kernel = number == Number::kF16
                                 ? reinterpret_cast<const void*>(&experts_w4a8_kernel<F16>)
                                 : reinterpret_cast<const void*>(&experts_w4a8_kernel<BF16>);
  ExpertArguments a = expert_arguments(call);
  LargeMPartition partition = plan.large_m;
  const int largest = largest_scale == 0 ? 0 : std::ilogb(largest_scale) + kE8M0Bias;
  RowsIn8BitsArguments rows = {x.scales, x.count, unit_of(call.weights, largest, number), largest};
  CUtensorMap codes;
  SUBBYTE_CHECK(describe_bytes(codes, x.codes, x.count, x.cols,
                               tokens_of(plan.kernel) / partition.multicast));
  std::array<void*, 4> arguments = {&a, &partition, &codes, &rows};
  return launch_experts(kernel, plan, arguments.data(), stream);
}

}  // namespace subbyte::cuda
