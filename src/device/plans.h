#pragma once
// The plans of the products with one packed matrix: planning takes longer than launching.

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "base/status.h"
#include "kernels/cuda/plan.h"

namespace subbyte::device {

/// All that a plan of a matrix depends on.
struct PlanKey {
  int64_t m = 1;
  gpu::Number number = gpu::Number::kF16;
  bool aligned = true;  // as cuda::Problem has it
  bool batch_invariant = false;
  bool fp8_inputs = false;  // plan_w8a8()

  bool operator==(const PlanKey&) const = default;
};

/// Threads may share it.
class Plans {
 public:
  /// Codes: those of plan_linear() and plan_w8a8().
  Result<cuda::Plan> find(const gpu::PackedFormat& weights, const cuda::Device& device,
                          const PlanKey& key);

 private:
  struct Hash {
    std::size_t operator()(const PlanKey& key) const;
  };

  std::mutex mutex_;
  std::unordered_map<PlanKey, cuda::Plan, Hash> plans_;
};

}  // namespace subbyte::device
