#pragma once
// Which kernel multiplies, and how it divides the work: what the problem is, what is possible, what
// each choice should cost, and the choice. All of it is arithmetic on the host, without a GPU.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/gemv/partition.h"
#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/large_m/partition.h"
#include "kernels/cuda/small_m/partition.h"
#include "kernels/gpu/packed_weights.h"

namespace subbyte::cuda {

/// Properties of a GPU that plans need to know. The costs of its kernels are in cost_model.h.
struct Device {
  int compute_capability = 90;  // 10 major + minor; at most what the kernels are compiled for
  int multiprocessors = 132;
  int shared_bytes = 227 * 1024;  // that a CTA can have
  double clock_hz = 1.755e9;
  double bytes_per_second = 4.5e12;  // of its memory, readable
};

/// y[m][rows] = x[m][cols] W^T, or [rows / 2] columns with an activation.
struct Problem {
  PackedFormat weights;
  Number number = Number::kF16;
  int64_t m = 1;
  /// x and its row stride are 16-byte aligned, as cp.async.bulk and TMA require.
  bool aligned_x = true;
};

struct PlanOptions {
  /// The order of additions for a row does not depend on m: one kernel, one partition. Slower for
  /// many tokens.
  bool batch_invariant = false;
  /// "gemv", "small_m8", "large_m128", ...: only that kernel. Empty: the fastest.
  std::string_view kernel = {};
};

/// Plan of a product. Only the partition of `kernel` is set.
struct Plan {
  int64_t m = 0;  // tokens that it is for
  KernelKind kernel = KernelKind::kSmallM8;
  GemvPartition gemv = {};
  SmallMPartition small_m = {};
  LargeMPartition large_m = {};
  int ctas = 1;  // of the grid
  int threads = 0;
  int cluster = 1;  // CTAs
  int shared_bytes = 0;
  int64_t workspace_bytes = 0;  // for activations in another order or at other addresses
  double microseconds = 0;      // by the cost model
};

std::string_view name(KernelKind kind);

/// Tokens that a kernel has in one CTA.
int tokens_of(KernelKind kind);

/// All that this device can do, cheapest first.
std::vector<Plan> plan_candidates(const Problem& problem, const Device& device,
                                  const PlanOptions& options);

/// The cheapest. Codes: cuda.shape (m < 1, or sizes beyond 2^31), cuda.kernel (unknown, or it
/// cannot do this, or none can: the message says why).
Result<Plan> plan_linear(const Problem& problem, const Device& device,
                         const PlanOptions& options = {});

/// "gemv 4096x6144 u4 g128 ... m=1: 132 CTAs, 3 strips at a time, 75 KiB, expected 6.3 us",
/// "small_m16 4096x6144 u4 g128 ... m=7: 66 clusters of 2, 4 pairs in flight, chunks of 4096
/// inputs, 155 KiB, expected 4.9 us",
/// "large_m64 ... m=64: 48 x 1 tiles, multicast to 1, split-K 2, 96 KiB, expected 15.0 us".
std::string to_string(const Problem& problem, const Plan& plan);

}  // namespace subbyte::cuda
