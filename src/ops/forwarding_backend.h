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
  double measure_read_bandwidth(const Weight& weight) override {
    return backend_.measure_read_bandwidth(weight);
  }
  Executor& host() override { return backend_.host(); }
  int64_t prompt_chunk() const override { return backend_.prompt_chunk(); }
  std::string last_step() const override { return backend_.last_step(); }
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
  Result<KvPool> make_kv_pool(const KvShape& shape, int64_t num_pages) override {
    return backend_.make_kv_pool(shape, num_pages);
  }

  int64_t steps_in_flight() const override { return backend_.steps_in_flight(); }
  void begin(const Batch& batch) override { backend_.begin(batch); }
  Tensor tensor(int64_t cols) override { return backend_.tensor(cols); }
  void embed(Tensor y, const Weight& table) override { backend_.embed(y, table); }
  void add_norm(Tensor y, Tensor x, Tensor delta, const Norm& norm) override {
    backend_.add_norm(y, x, delta, norm);
  }
  void linear(Tensor y, Tensor x, const Weight& weight) override { backend_.linear(y, x, weight); }
  void exact_linear(Tensor y, Tensor x, const Weight& weight) override {
    backend_.exact_linear(y, x, weight);
  }
  void gated_linear(Tensor y, Tensor x, const Weight& gate_up) override {
    backend_.gated_linear(y, x, gate_up);
  }
  void rotate_and_store(Tensor qkv, const HeadNorms& norms, const Rope& rope,
                        const AttentionShape& shape, int64_t layer) override {
    backend_.rotate_and_store(qkv, norms, rope, shape, layer);
  }
  void attend(Tensor y, Tensor qkv, const AttentionShape& shape, int64_t layer,
              const Vector& sinks) override {
    backend_.attend(y, qkv, shape, layer, sinks);
  }
  void experts(Tensor y, Tensor x, Tensor router_logits, const Experts& experts) override {
    backend_.experts(y, x, router_logits, experts);
  }
  void logits(Tensor x, Tensor delta, const Norm& norm, const Weight& head) override {
    backend_.logits(x, delta, norm, head);
  }
  void end() override { backend_.end(); }
  Status finish(Logits& logits) override { return backend_.finish(logits); }
  bool is_finite(Tensor x) override { return backend_.is_finite(x); }

 protected:
  Backend& backend_;
};

}  // namespace subbyte
