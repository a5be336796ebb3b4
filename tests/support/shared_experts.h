#pragma once
// A block of experts beside one that every token goes to: the latter is a dense block, whose result
// add_norm() adds before that of the experts. As a step of a backend, and in double precision.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/backend.h"
#include "ops/recorder.h"
#include "support/random_matrix.h"

namespace subbyte::testing {

class SharedExperts {
 public:
  SharedExperts() {
    for (int64_t e = 0; e < kExperts; ++e) {
      gate_up_.push_back(packed(2 * kInner, kHidden));
      down_.push_back(packed(kHidden, kInner));
    }
  }

  /// The normalised sums, [tokens][hidden]. Every row of the table is a token.
  std::vector<float> run(Backend& backend) const {
    const Weights on = upload(backend);
    KvPool pool = std::move(backend.make_kv_pool({}, Element::kF16, {kTokens})).value();
    Sequence sequence(pool, kTokens);
    EXPECT_TRUE(sequence.reserve(kTokens).ok());
    std::vector<int32_t> tokens(kTokens);
    std::iota(tokens.begin(), tokens.end(), 0);
    const Part part = {&sequence, tokens, kTokens};
    const auto step = std::move(backend.compile(plan(on))).value();
    backend.submit(*step, {{&part, 1}});
    Logits logits;
    const Status status = backend.wait(logits);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    return logits.values;
  }

  std::vector<float> expected() const {
    std::vector<float> all;
    for (int64_t t = 0; t < kTokens; ++t) {
      std::vector<double> x(kHidden);
      for (int64_t i = 0; i < kHidden; ++i) x[i] = weight_at(table_.view, t, i);
      const std::vector<double> h = normalised(x);
      add(x, 1,
          swiglu_then(shared_down_.view, product(shared_gate_.view, h),
                      product(shared_up_.view, h)));
      for (const auto& [expert, weight] : routes(product(router_.view, h))) {
        const std::vector<double> both = product(gate_up_[expert].view, h);
        std::vector<double> gate(kInner), up(kInner);
        for (int64_t i = 0; i < kInner; ++i) gate[i] = both[2 * i];
        for (int64_t i = 0; i < kInner; ++i) up[i] = both[2 * i + 1];
        add(x, weight, swiglu_then(down_[expert].view, gate, up));
      }
      const std::vector<double> y = normalised(x);
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  }

 private:
  static constexpr int64_t kTokens = 21;
  static constexpr int64_t kHidden = 128;
  static constexpr int64_t kInner = 64;    // of an expert
  static constexpr int64_t kShared = 160;  // of the one for all
  static constexpr int64_t kExperts = 6;
  static constexpr int64_t kTopK = 2;
  static constexpr float kEps = 1e-6f;

  struct Weights {
    Weight table, router, shared_gate_up, shared_down, identity;
    Experts experts;
    Norm norm;
  };

  /// Outputs of ordinary size: scales of 1/32.
  static RandomMatrix packed(int64_t rows, int64_t cols) {
    static uint64_t seed = 40;
    RandomMatrix matrix = random_matrix({Format::kE2M1, Format::kE8M0, Zero::kNone, 32}, rows, cols,
                                        Contents::kReal, ++seed);
    for (std::byte& scale : matrix.scales->span()) scale = std::byte{122};
    return matrix;
  }
  static RandomMatrix dense(int64_t rows, int64_t cols, Contents contents, uint64_t seed) {
    return random_matrix({Format::kBF16}, rows, cols, contents, seed);
  }
  static RandomMatrix identity() {
    RandomMatrix matrix = dense(kHidden, kHidden, Contents::kReal, 1);
    const uint32_t one = info(Format::kBF16).encode(1, Rounding::kNearestEven);
    std::ranges::fill(matrix.codes->span(), std::byte{0});
    for (int64_t i = 0; i < kHidden; ++i) {
      std::memcpy(matrix.codes->data() + (i * kHidden + i) * 2, &one, 2);
    }
    return matrix;
  }

  static StepPlan plan(const Weights& on) {
    Recorder record;
    ValueId x = record.embed("table", on.table);
    const ValueId h = record.add_norm("norm", x, kNoValue, on.norm);
    const ValueId router_logits = record.exact_linear("router", h, on.router);
    const ValueId gated = record.gated_linear("shared.gate_up", h, on.shared_gate_up);
    const ValueId shared = record.linear("shared.down", gated, on.shared_down);
    const ValueId routed = record.experts("experts", h, router_logits, on.experts);
    record.add_norm("unused", x, shared, on.norm);
    record.logits("identity", record.head_norm("norm", x, routed, on.norm), on.identity);
    return std::move(std::move(record).finish()).value();
  }

  Weights upload(Backend& backend) const {
    const auto put = [&](const RandomMatrix& matrix) {
      return std::move(backend.upload(Matrix{matrix.view, {}})).value();
    };
    Weights on;
    on.table = put(table_);
    on.router = put(router_);
    on.shared_gate_up =
        std::move(backend.upload_joined({{shared_gate_.view, {}}, {shared_up_.view, {}}})).value();
    on.shared_down = put(shared_down_);
    on.identity = put(identity_);
    on.norm = {std::move(backend.upload(std::vector<float>(kHidden, 1))).value(), kEps};
    ExpertMatrices experts;
    for (const RandomMatrix& matrix : gate_up_) experts.gate_up.push_back({matrix.view, {}});
    for (const RandomMatrix& matrix : down_) experts.down.push_back({matrix.view, {}});
    experts.top_k = kTopK;
    on.experts = std::move(backend.upload(std::move(experts))).value();
    return on;
  }

  static std::vector<double> product(const MatrixView& w, const std::vector<double>& x) {
    std::vector<double> y(w.rows, 0);
    for (int64_t n = 0; n < w.rows; ++n) {
      for (int64_t k = 0; k < w.cols; ++k) y[n] += weight_at(w, n, k) * x[k];
    }
    return y;
  }
  static std::vector<double> swiglu_then(const MatrixView& down, const std::vector<double>& gate,
                                         const std::vector<double>& up) {
    std::vector<double> h(gate.size());
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return product(down, h);
  }
  static std::vector<double> normalised(const std::vector<double>& x) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    std::vector<double> y = x;
    for (double& value : y) value /= std::sqrt(squares / kHidden + kEps);
    return y;
  }
  static void add(std::vector<double>& x, double weight, const std::vector<double>& delta) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += weight * delta[i];
  }
  static std::vector<std::pair<int64_t, double>> routes(const std::vector<double>& logits) {
    std::vector<int64_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
    double sum = 0;
    for (int64_t i = 0; i < kTopK; ++i) sum += std::exp(logits[order[i]] - logits[order[0]]);
    std::vector<std::pair<int64_t, double>> chosen;
    for (int64_t i = 0; i < kTopK; ++i) {
      chosen.emplace_back(order[i], std::exp(logits[order[i]] - logits[order[0]]) / sum);
    }
    return chosen;
  }

  RandomMatrix table_ = dense(kTokens, kHidden, Contents::kExact, 2);
  RandomMatrix router_ = dense(kExperts, kHidden, Contents::kExact, 3);
  RandomMatrix identity_ = identity();
  RandomMatrix shared_gate_ = packed(kShared, kHidden);
  RandomMatrix shared_up_ = packed(kShared, kHidden);
  RandomMatrix shared_down_ = packed(kHidden, kShared);
  std::vector<RandomMatrix> gate_up_, down_;
};

}  // namespace subbyte::testing
