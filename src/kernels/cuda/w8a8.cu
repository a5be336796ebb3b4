// W8A8: kernels and launches.

#include "kernels/cuda/w8a8.h"

#include <cuda_runtime.h>

#include <array>
#include <string>

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/decoder_of.cuh"
#include "kernels/cuda/large_m/w8a8_products.cuh"
#include "kernels/cuda/linear_call.h"
#include "kernels/cuda/plan_launch.h"
#include "kernels/cuda/quantize/quantize_groups.h"
#include "kernels/cuda/tensor_map.h"

namespace subbyte::cuda {
namespace {

constexpr int kTokens = LargeMBlockShape::kTokens;
static_assert(kTokens == kW8A8Tokens);

template <class Number>
__global__ void __launch_bounds__(kLargeMThreads, 1)
    w8a8_kernel(const __grid_constant__ LinearArguments a,
                const __grid_constant__ LargeMPartition p,
                const __grid_constant__ CUtensorMap codes,
                const __grid_constant__ ActivationFactors factors,
                const __grid_constant__ CUtensorMap weights,
                const __grid_constant__ CUtensorMap scales) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Decoder = decltype(decoder_of<E4M3, Number, 8>());
  extern __shared__ uint8_t shared[];
  run_large_m<ProductsOfBlocks<Number, Decoder>>(
      a, p, MapsOfBlocks{codes, factors, weights, scales}, LargeMItems<kTokens>(a, p), shared);
#endif
}

constexpr char kWhat[] = "linear in 8 bits";

Error failure(const std::string& what) {
  return {"cuda.launch", kWhat + (": " + what)};
}

struct Maps {
  CUtensorMap activations;
  CUtensorMap weights;
  CUtensorMap scales;
};

/// `codes`: of the activations.
Status describe(Maps& maps, const Plan& plan, const LinearCall& call, const WeightArguments& w,
                const uint8_t* codes) {
  constexpr int kTile = tile_bytes(8);
  SUBBYTE_CHECK(describe_pairs_of_bytes(maps.activations, codes, call.m, w.cols,
                                        kTokens / plan.large_m.multicast));
  SUBBYTE_CHECK(describe_strips(maps.weights, w.codes, w.strips, int64_t{w.tiles} * kTile,
                                LargeMBlockShape::kBatch * kTile));
  const int scales = kStripRows * w.scale.bytes;
  return describe_strips(maps.scales, w.scales, w.strips, int64_t{w.blocks} * scales, scales);
}

template <class Number>
Status launch_kernel(const Plan& plan, LinearArguments a, Maps& maps, ActivationFactors factors,
                     Stream stream) {
  static SharedMemoryLimit limit;
  a.weights.scale_factor = 1;  // the kernels multiply by scales as they are
  if (!limit.allow(&w8a8_kernel<Number>, plan.shared_bytes)) {
    return failure("the driver refused " + std::to_string(plan.shared_bytes) +
                   " bytes of shared memory");
  }
  LargeMPartition partition = plan.large_m;
  std::array<void*, 6> arguments = {&a,       &partition,    &maps.activations,
                                    &factors, &maps.weights, &maps.scales};
  const auto* kernel = reinterpret_cast<const void*>(&w8a8_kernel<Number>);
  return launch_plan(kWhat, kernel, plan, arguments.data(), true, stream);
}

}  // namespace

Status run_w8a8(const Plan& plan, const LinearCall& call, Number number, void* workspace,
                Stream stream) {
  SUBBYTE_CHECK(check_call(plan, call, workspace));
  if (plan.kernel != KernelKind::kLargeM128 || !has_w8a8_products(*call.format)) {
    return Error{"cuda.kernel", "linear in 8 bits: no kernel for this format"};
  }
  LinearArguments a = linear_arguments(call);
  if (!a.is_aligned)
    return Error{"cuda.shape",
                 "linear in 8 bits: expected rows of x at multiples "
                 "of 16 bytes"};
  const int64_t cols = call.weights.cols;
  const RowsInE4M3 rows = rows_in_e4m3(call.m, cols);
  auto* const codes = static_cast<uint8_t*>(workspace);
  auto* const factors = reinterpret_cast<float*>(codes + rows.factors_begin);
  run_quantize_groups(
      {codes, factors, call.x, call.m, cols, call.x_stride, rows.stride, element_of(number)},
      stream);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return failure(cudaGetErrorString(error));
  Maps maps;
  SUBBYTE_CHECK(describe(maps, plan, call, a.weights, codes));
  const ActivationFactors of_rows = {factors, rows.stride};
  return number == Number::kF16 ? launch_kernel<F16>(plan, a, maps, of_rows, stream)
                                : launch_kernel<BF16>(plan, a, maps, of_rows, stream);
}

}  // namespace subbyte::cuda
