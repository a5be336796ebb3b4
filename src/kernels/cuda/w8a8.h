#pragma once
// y = x W^T + bias with weights and activations in E4M3, on the tensor cores for 8 bits of Hopper:
// W8A8. Weights have a scale for each 128 inputs of a row, which may be those of blocks of 128 x
// 128; activations are rounded to E4M3 by this call, with a factor for each 128 inputs of a token.

#include <vector>

#include "kernels/cuda/linear.h"

namespace subbyte::cuda {

/// Inputs that share a scale or a factor, and tokens of an output tile.
inline constexpr int64_t kW8A8Group = 128;
inline constexpr int64_t kW8A8Tokens = 128;

/// Says whether these weights have such products: E4M3 with groups of 128 that fill their rows, in
/// the order of their columns.
bool has_w8a8_products(const PackedFormat& format);

/// All plans that fit, the cheapest first; none where plan_w8a8() fails.
std::vector<Plan> w8a8_candidates(const Problem& problem, const Device& device);

/// As plan_linear(). The workspace has the activations. Code cuda.kernel: another format than
/// those, x that is not aligned, or a GPU other than Hopper; cuda.shape.
Result<Plan> plan_w8a8(const Problem& problem, const Device& device);

/// As run_linear(), for plans of plan_w8a8().
SUBBYTE_BY_NVCC Status run_w8a8(const Plan& plan, const LinearCall& call, Number number,
                                void* workspace, Stream stream);

/// Where run_w8a8() leaves the activations in its workspace.
struct RowsInE4M3 {
  int64_t stride;         // of the factors: tokens, up to a multiple of 128
  int64_t factors_begin;  // float [cols / 128][stride]; the codes, [m][cols], come first
  int64_t bytes;
};
RowsInE4M3 rows_in_e4m3(int64_t m, int64_t cols);

}  // namespace subbyte::cuda
