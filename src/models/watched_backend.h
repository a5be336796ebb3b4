#pragma once
// A backend that finds the first operation of a step whose results are not all finite.

#include <fmt/format.h>

#include <string>

#include "ops/forwarding_backend.h"

namespace subbyte {

class WatchedBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  /// "layer 3, gate and up"; empty while all numbers are finite.
  const std::string& first_place() const { return first_place_; }

  void embed(Tensor y, const Weight& table) override {
    backend_.embed(y, table);
    watch(y, "the embedding");
  }
  void add_norm(Tensor y, Tensor x, Tensor delta, const Norm& norm) override {
    backend_.add_norm(y, x, delta, norm);
    watch(x, of_layer("the residual sum"));
    watch(y, of_layer("a norm"));
  }
  void linear(Tensor y, Tensor x, const Weight& weight) override {
    backend_.linear(y, x, weight);
    watch(y, of_layer(next_linear_));
    if (next_linear_ == kDown) {
      end_layer();
    } else {
      next_linear_ = kOutput;
    }
  }
  void exact_linear(Tensor y, Tensor x, const Weight& weight) override {
    backend_.exact_linear(y, x, weight);
    watch(y, of_layer("the router"));
  }
  void gated_linear(Tensor y, Tensor x, const Weight& gate_up) override {
    backend_.gated_linear(y, x, gate_up);
    watch(y, of_layer("gate and up"));
    next_linear_ = kDown;
  }
  void rotate_and_store(Tensor qkv, const HeadNorms& norms, const Rope& rope,
                        const AttentionShape& shape, int64_t layer) override {
    backend_.rotate_and_store(qkv, norms, rope, shape, layer);
    watch(qkv, of_layer("the norms and positions of queries and keys"));
  }
  void attend(Tensor y, Tensor qkv, const AttentionShape& shape, int64_t layer,
              const Vector& sinks) override {
    backend_.attend(y, qkv, shape, layer, sinks);
    watch(y, of_layer("attention"));
  }
  void experts(Tensor y, Tensor x, Tensor router_logits, const Experts& experts) override {
    backend_.experts(y, x, router_logits, experts);
    watch(y, of_layer("the experts"));
    end_layer();
  }

 private:
  static constexpr std::string_view kQkv = "queries, keys and values";
  static constexpr std::string_view kOutput = "the output of attention";
  static constexpr std::string_view kDown = "down";

  std::string of_layer(std::string_view what) const {
    return fmt::format("layer {}, {}", layer_, what);
  }
  void end_layer() {
    ++layer_;
    next_linear_ = kQkv;
  }
  void watch(Tensor x, std::string place) {
    if (first_place_.empty() && !backend_.is_finite(x)) first_place_ = std::move(place);
  }

  std::string first_place_;
  int64_t layer_ = 0;
  std::string_view next_linear_ = kQkv;
};

}  // namespace subbyte
