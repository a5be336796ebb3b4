#pragma once
// A GPU that takes no model, played by the CPU.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/forwarding_backend.h"

namespace subbyte::testing {

/// Memory without end that nothing is taken of.
class EndlessMemory : public MachineMemory {
 public:
  std::string name() const override { return "GPU 0"; }
  Result<int64_t> free_bytes() const override { return int64_t{1} << 40; }
  Result<int64_t> matrix_bytes(const MatrixShape& shape) const override {
    return shape.experts * shape.rows * shape.cols;
  }
  int64_t vector_bytes(int64_t size) const override { return size; }
  int64_t workspace_bytes(const StepPlan&, const StepSize&) const override { return 0; }
  Status reserve(const MemoryNeed&, const StepPlan&, const StepSize&) override { return error_; }
  Status finish_loading() override { return {}; }
  MemoryNeed held() const override { return {}; }

  void refuse(Error error) { error_ = std::move(error); }

 private:
  Status error_;
};

/// What a GPU is asked on the way to a model and its cache, in that order.
enum class Asked : uint8_t {
  kOperations,
  kCacheType,
  kRoom,
  kVector,
  kMatrix,
  kExperts,
  kStep,
  kCache,
  kNothing
};

/// Refuses what it is asked for the first time at `asked` with `error`.
class RefusingGpu : public ForwardingBackend {
 public:
  RefusingGpu(std::unique_ptr<Backend> cpu, Asked asked, Error error)
      : ForwardingBackend(*cpu), own_(std::move(cpu)), asked_(asked), error_(std::move(error)) {
    if (asked == Asked::kRoom) memory_.refuse(error_);
  }

  std::string description() const override { return "a GPU"; }
  MachineMemory* memory() override { return &memory_; }

  Status check_operations(const StepPlan& plan) const override {
    if (asked_ == Asked::kOperations) return error_;
    return backend_.check_operations(plan);
  }
  Status check_cache(const CacheLayout& layout, Element type) const override {
    if (asked_ == Asked::kCacheType) return error_;
    return backend_.check_cache(layout, type);
  }
  Result<Weight> upload(Matrix matrix, std::vector<float> bias) override {
    if (asked_ == Asked::kMatrix) return error_;
    return backend_.upload(std::move(matrix), std::move(bias));
  }
  Result<Weight> upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) override {
    if (asked_ == Asked::kMatrix) return error_;
    return backend_.upload_joined(std::move(matrices), std::move(bias));
  }
  Result<Experts> upload(ExpertMatrices experts) override {
    if (asked_ == Asked::kExperts) return error_;
    return backend_.upload(std::move(experts));
  }
  Result<Vector> upload(std::vector<float> numbers) override {
    if (asked_ == Asked::kVector) return error_;
    return backend_.upload(std::move(numbers));
  }
  Result<std::unique_ptr<CompiledStep>> compile(StepPlan plan) override {
    if (asked_ == Asked::kStep) return error_;
    return backend_.compile(std::move(plan));
  }
  Result<KvPool> make_kv_pool(const CacheLayout& layout, Element type,
                              const CacheSize& size) override {
    if (asked_ == Asked::kCache) return error_;
    return backend_.make_kv_pool(layout, type, size);
  }

 private:
  std::unique_ptr<Backend> own_;
  Asked asked_;
  Error error_;
  EndlessMemory memory_;
};

}  // namespace subbyte::testing
