#include "device/plans.h"

#include "kernels/cuda/w8a8.h"

namespace subbyte::device {
namespace {

constexpr std::size_t kMaxPlans = 1024;

}  // namespace

std::size_t Plans::Hash::operator()(const PlanKey& key) const {
  const uint64_t flags = static_cast<uint64_t>(key.number) << 3 | uint64_t{key.aligned} << 2 |
                         uint64_t{key.batch_invariant} << 1 | uint64_t{key.fp8_inputs};
  return static_cast<std::size_t>((static_cast<uint64_t>(key.m) << 5 | flags) *
                                  0x9E3779B97F4A7C15u);
}

Result<cuda::Plan> Plans::find(const gpu::PackedFormat& weights, const cuda::Device& device,
                               const PlanKey& key) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  const cuda::Problem problem = {weights, key.number, key.m, key.aligned};
  SUBBYTE_TRY(const cuda::Plan plan,
              key.fp8_inputs
                  ? cuda::plan_w8a8(problem, device)
                  : cuda::plan_linear(problem, device, {.batch_invariant = key.batch_invariant}));
  if (plans_.size() >= kMaxPlans) plans_.clear();
  plans_.emplace(key, plan);
  return plan;
}

}  // namespace subbyte::device
