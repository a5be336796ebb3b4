#pragma once
// A backend that passes everything on to another: the base of those that look at what passes.

#include <string>
#include <utility>
#include <vector>

#include "ops/backend.h"

namespace subbyte {

class ForwardingBackend : public Backend {
 public:
  /// `backend` must outlive this.
  explicit ForwardingBackend(Backend& backend) : backend_(backend) {}

  std::string description() const override { return backend_.description(); }
  std::string last_step() const override { return backend_.last_step(); }
  int64_t prompt_chunk() const override { return backend_.prompt_chunk(); }
  double measure_read_bandwidth(const Weight& weight) override {
    return backend_.measure_read_bandwidth(weight);
  }
  Executor& host() override { return backend_.host(); }
  MachineMemory* memory() override { return backend_.memory(); }

  Result<Weight> upload(Matrix matrix, std::vector<float> bias) override {
    return backend_.upload(std::move(matrix), std::move(bias));
  }
  Result<Weight> upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) override {
    return backend_.upload_joined(std::move(matrices), std::move(bias));
  }
  Result<Experts> upload(ExpertMatrices experts) override {
    return backend_.upload(std::move(experts));
  }
  Result<Vector> upload(std::vector<float> numbers) override {
    return backend_.upload(std::move(numbers));
  }
  Status check_operations(const StepPlan& plan) const override {
    return backend_.check_operations(plan);
  }
  Status check_cache(const CacheLayout& layout, Element type) const override {
    return backend_.check_cache(layout, type);
  }
  Result<KvPool> make_kv_pool(const CacheLayout& layout, Element type,
                              const CacheSize& size) override {
    return backend_.make_kv_pool(layout, type, size);
  }
  Result<std::unique_ptr<CompiledStep>> compile(StepPlan plan) override {
    return backend_.compile(std::move(plan));
  }

  int64_t steps_in_flight() const override { return backend_.steps_in_flight(); }
  int64_t steps_at_once() const override { return backend_.steps_at_once(); }
  void submit(const CompiledStep& step, const Batch& batch) override {
    backend_.submit(step, batch);
  }
  Status wait(Logits& logits) override { return backend_.wait(logits); }

 protected:
  Backend& backend_;
};

}  // namespace subbyte
