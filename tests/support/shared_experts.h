#pragma once
// A block of experts beside one that every token goes to: the latter is a dense block, whose result
// is added before that of the experts, or to it. As a step of a backend, and in double precision,
// with every attribute that experts have.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "ops/recorder.h"
#include "support/random_matrix.h"
#include "support/routing_reference.h"
#include "support/value_of.h"

namespace subbyte::testing {

struct ExpertAttributes {
  std::string name;
  Gate gate = Gate::kSilu;
  Routing rule = {};
  bool has_biases = false;   // that only choose
  bool has_factors = false;  // of experts
  bool is_one_sum = false;   // results are added before the stream
};

/// Each by itself, and as families have them together.
inline std::vector<ExpertAttributes> expert_attributes() {
  constexpr auto kSigmoid = Routing::Scores::kSigmoid;
  return {{.name = "none"},
          {.name = "one_sum", .is_one_sum = true},
          {.name = "gelu", .gate = Gate::kGelu},
          {.name = "squared_relu", .gate = Gate::kSquaredRelu},
          {.name = "factors", .has_factors = true},
          {.name = "weights_of_inputs",
           .rule = {.scores = kSigmoid, .normalises = false, .weights_inputs = true}},
          {.name = "all",
           .gate = Gate::kGelu,
           .rule = {.scores = kSigmoid,
                    .factor = 1.5f,
                    .groups = 3,
                    .top_groups = 2,
                    .groups_by_two = true},
           .has_biases = true,
           .is_one_sum = true}};
}

class SharedExperts {
 public:
  explicit SharedExperts(ExpertAttributes attributes = {}) : attributes_(std::move(attributes)) {
    for (int64_t e = 0; e < kExperts; ++e) {
      gate_up_.push_back(packed(is_gated(attributes_.gate) ? 2 * kInner : kInner, kHidden));
      down_.push_back(packed(kHidden, kInner));
    }
  }

  /// The normalised sums, [tokens][hidden]. Every row of the table is a token.
  std::vector<float> run(Backend& backend) const {
    const Weights on = upload(backend);
    KvPool pool = value_of(backend.make_kv_pool({}, Element::kF16, {kTokens}));
    Sequence sequence(pool, kTokens);
    value_of(sequence.reserve(kTokens));
    std::vector<int32_t> tokens(kTokens);
    std::iota(tokens.begin(), tokens.end(), 0);
    const Part part = {&sequence, tokens, kTokens};
    const auto step = value_of(backend.compile(plan(on)));
    backend.submit(*step, {{&part, 1}});
    Logits logits;
    value_of(backend.wait(logits));
    return logits.values;
  }

  std::vector<float> expected() const {
    std::vector<float> all;
    for (int64_t t = 0; t < kTokens; ++t) {
      std::vector<double> x(kHidden);
      for (int64_t i = 0; i < kHidden; ++i) x[i] = weight_at(table_.view, t, i);
      const std::vector<double> h = normalised(x);
      add(x, 1,
          gated_then(shared_down_.view, product(shared_gate_.view, h),
                     product(shared_up_.view, h)));
      const std::vector<double> exact_logits = product(router_.view, h);
      const std::vector<float> logits(exact_logits.begin(), exact_logits.end());
      for (const auto& [expert, weight] : reference_routes(router(), logits)) {
        const bool of_inputs = attributes_.rule.weights_inputs;
        std::vector<double> inputs = h;
        for (double& input : inputs) input *= of_inputs ? weight : 1;
        const std::vector<double> both = product(gate_up_[expert].view, inputs);
        std::vector<double> gate(kInner), up = both;
        for (int64_t i = 0; i < kInner && is_gated(attributes_.gate); ++i) {
          gate[i] = both[2 * i];
          up[i] = both[2 * i + 1];
        }
        up.resize(kInner);
        add(x, of_inputs ? 1 : weight, gated_then(down_[expert].view, gate, up));
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
    Vector biases, factors;
    Norm norm;
  };

  /// Three biases for six experts, so that the choice is not that of the logits.
  RouterProblem router() const {
    RouterProblem router = {attributes_.name, attributes_.rule, kExperts, kTopK};
    if (attributes_.has_biases) router.biases = {0.5f, -1, 0, 0.5f, -1, 0};
    if (attributes_.has_factors) router.factors = {2, 0.5f, 1, -1, 3, 0.25f};
    return router;
  }

  /// Outputs of ordinary size: scales of 1/32.
  RandomMatrix packed(int64_t rows, int64_t cols) {
    RandomMatrix matrix = random_matrix({Format::kE2M1, Format::kE8M0, Zero::kNone, 32}, rows, cols,
                                        Contents::kReal, ++seed_);
    for (std::byte& scale : matrix.scales->span()) scale = std::byte{122};
    return matrix;
  }
  static RandomMatrix dense(int64_t rows, int64_t cols, Contents contents, uint64_t seed) {
    return random_matrix({Format::kBF16}, rows, cols, contents, seed);
  }
  /// Sixteenths, so that no sigmoid of a logit is 1.
  static RandomMatrix small_router() {
    RandomMatrix matrix = dense(kExperts, kHidden, Contents::kExact, 3);
    for (int64_t i = 0; i < kExperts * kHidden; ++i) {
      const auto number = static_cast<float>(weight_at(matrix.view, i / kHidden, i % kHidden));
      const uint32_t code = info(Format::kBF16).encode(number / 16, Rounding::kNearestEven);
      std::memcpy(matrix.codes->data() + i * 2, &code, 2);
    }
    return matrix;
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

  StepPlan plan(const Weights& on) const {
    Recorder record;
    ValueId x = record.embed("table", on.table);
    const ValueId h = record.add_norm("norm", x, kNoValue, on.norm);
    const ValueId router_logits = record.exact_linear("router", h, on.router);
    const auto& [name, gate, rule, has_biases, has_factors, is_one_sum] = attributes_;
    const ValueId inner = is_gated(gate)
                              ? record.gated_linear("shared.gate_up", h, on.shared_gate_up, gate)
                              : record.linear("shared.up", h, on.shared_gate_up, true);
    const ValueId shared = record.linear("shared.down", inner, on.shared_down);
    ValueId routed =
        record.experts("experts", h, router_logits, on.experts, {rule, on.biases, on.factors});
    if (is_one_sum) {
      routed = record.sigmoid_gate("sum", shared, kNoValue, routed);
    } else {
      record.add_norm("unused", x, shared, on.norm);
    }
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
    std::vector<Matrix> gate_and_up;
    if (is_gated(attributes_.gate)) gate_and_up.push_back({shared_gate_.view, {}});
    gate_and_up.push_back({shared_up_.view, {}});
    on.shared_gate_up = std::move(backend.upload_joined(std::move(gate_and_up))).value();
    on.shared_down = put(shared_down_);
    on.identity = put(identity_);
    on.norm = {std::move(backend.upload(std::vector<float>(kHidden, 1))).value(), kEps};
    ExpertMatrices experts;
    for (const RandomMatrix& matrix : gate_up_) experts.gate_up.push_back({matrix.view, {}});
    for (const RandomMatrix& matrix : down_) experts.down.push_back({matrix.view, {}});
    experts.top_k = kTopK;
    experts.gate = attributes_.gate;
    const RouterProblem numbers = router();
    if (attributes_.has_biases) on.biases = std::move(backend.upload(numbers.biases)).value();
    if (attributes_.has_factors) on.factors = std::move(backend.upload(numbers.factors)).value();
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
  std::vector<double> gated_then(const MatrixView& down, const std::vector<double>& gate,
                                 const std::vector<double>& up) const {
    std::vector<double> h(gate.size());
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = activated(gate[i], up[i]);
    return product(down, h);
  }
  double activated(double g, double up) const {
    if (attributes_.gate == Gate::kSquaredRelu) return up > 0 ? up * up : 0;
    if (attributes_.gate == Gate::kSilu) return g / (1 + std::exp(-g)) * up;
    const double z = std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g);
    return g / 2 * (1 + std::tanh(z)) * up;
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
  ExpertAttributes attributes_;
  uint64_t seed_ = 40;
  RandomMatrix table_ = dense(kTokens, kHidden, Contents::kExact, 2);
  RandomMatrix router_ = small_router();
  RandomMatrix identity_ = identity();
  RandomMatrix shared_gate_ = packed(kShared, kHidden);
  RandomMatrix shared_up_ = packed(kShared, kHidden);
  RandomMatrix shared_down_ = packed(kHidden, kShared);
  std::vector<RandomMatrix> gate_up_, down_;
};

}  // namespace subbyte::testing
