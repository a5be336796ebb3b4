#pragma once
// A small transformer with every attribute that operations have, and what it computes in double
// precision.

#include <cmath>
#include <memory>
#include <numbers>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "matrix/alternate_rows.h"
#include "ops/backend.h"
#include "ops/recorder.h"
#include "support/random_matrix.h"

namespace subbyte::testing {

struct Attributes {
  std::string name;
  float embedding_factor = 1;
  float residual_factor = 1;
  float logit_factor = 1;
  float logit_cap = 0;
  float score_cap = 0;
  Gate gate = Gate::kSilu;
  int64_t turning = 32;          // of the numbers of a head
  bool has_second_rope = false;  // of the second layer, with other angles
  bool has_head_norms = false;
  bool has_post_norms = false;  // of what a block gives, before it is added
  bool has_value_norms = false;
  bool shares_keys = false;       // the second layer reads those of the first
  float layer_scale = 1;          // of the stream after each layer but the last
  bool has_layer_inputs = false;  // each layer adds columns of the embedding, gated by the stream
  bool are_neighbours = false;    // that turn together
  bool second_stays = false;      // heads of the second layer do not turn
  bool norms_are_after = false;
  bool norms_are_plain = false;
  QueryScale query_scale = {};
  int64_t window = 0;
  bool in_chunks = false;
  bool is_centred = false;
  bool has_norm_bias = false;
};

/// Each attribute by itself, and all together.
inline std::vector<Attributes> all_attributes() {
  return {{.name = "none"},
          {.name = "embedding_factor", .embedding_factor = 8},
          {.name = "residual_factor", .residual_factor = 0.22f},
          {.name = "logit_factor", .logit_factor = 0.0625f},
          {.name = "logit_cap", .logit_cap = 3},
          {.name = "score_cap", .score_cap = 0.1f},
          {.name = "gelu", .gate = Gate::kGelu},
          {.name = "squared_relu", .gate = Gate::kSquaredRelu},
          {.name = "a_quarter_turns", .turning = 8},
          {.name = "three_quarters_turn_after_norms", .turning = 24, .has_head_norms = true},
          {.name = "two_kinds_of_angles", .has_second_rope = true},
          {.name = "post_norms", .has_post_norms = true},
          {.name = "norms_of_values", .has_value_norms = true},
          {.name = "keys_of_another_layer", .shares_keys = true},
          {.name = "layer_scale", .layer_scale = 0.25f},
          {.name = "inputs_of_layers", .has_layer_inputs = true},
          {.name = "neighbours", .are_neighbours = true},
          {.name = "half_turns_as_neighbours_after_norms",
           .turning = 16,
           .has_head_norms = true,
           .are_neighbours = true},
          {.name = "second_stays", .second_stays = true},
          {.name = "norms_after_rope", .has_head_norms = true, .norms_are_after = true},
          {.name = "plain_norms",
           .has_head_norms = true,
           .norms_are_after = true,
           .norms_are_plain = true},
          {.name = "query_scale", .query_scale = {.beta = 0.5f, .step = 3, .first = 1}},
          {.name = "window", .window = 6},
          {.name = "chunks", .window = 6, .in_chunks = true},
          {.name = "layer_norm", .is_centred = true},
          {.name = "norm_bias", .has_norm_bias = true},
          {.name = "all",
           .embedding_factor = 8,
           .residual_factor = 0.5f,
           .logit_factor = 0.5f,
           .logit_cap = 4,
           .score_cap = 2,
           .gate = Gate::kGelu,
           .turning = 16,
           .has_second_rope = true,
           .has_head_norms = true,
           .has_post_norms = true,
           .has_value_norms = true,
           .shares_keys = true,
           .layer_scale = 0.5f,
           .has_layer_inputs = true},
          {.name = "all_others",
           .turning = 16,
           .has_head_norms = true,
           .has_post_norms = true,
           .are_neighbours = true,
           .second_stays = true,
           .norms_are_after = true,
           .query_scale = {.beta = 0.25f, .step = 4},
           .window = 5,
           .in_chunks = true}};
}

class AttributesModel {
 public:
  static constexpr int64_t kVocab = 48;
  static constexpr int64_t kHidden = 64;
  static constexpr int64_t kHeads = 4;
  static constexpr int64_t kKvHeads = 2;
  static constexpr int64_t kDim = 32;
  static constexpr int64_t kInner = 96;
  static constexpr int64_t kLayers = 2;
  static constexpr float kEps = 1e-5f;

  /// `format` is that of all matrices but the embedding.
  explicit AttributesModel(Attributes attributes, const WeightFormat& format = {Format::kF32})
      : attributes_(std::move(attributes)) {
    const WeightFormat dense = {Format::kF32};
    table_ = random_matrix(dense, kVocab, kHidden, Contents::kReal, 1);
    head_ = random_matrix(format, kVocab, kHidden, Contents::kReal, 2);
    for (int64_t i = 0; i < kLayers; ++i) {
      const auto random = [&](int64_t rows, int64_t cols, uint64_t seed) {
        RandomMatrix matrix = random_matrix(format, rows, cols, Contents::kReal, 10 * i + seed);
        // Blocks of ordinary size: rows of about 1.
        matrix.view.tensor_scale = 1;
        return matrix;
      };
      layers_.push_back({random((kHeads + 2 * kKvHeads) * kDim, kHidden, 3),
                         random(kHidden, kHeads * kDim, 4), random(kInner, kHidden, 5),
                         random(kInner, kHidden, 6), random(kHidden, kInner, 7)});
    }
  }

  const Attributes& attributes() const { return attributes_; }

  Result<StepPlan> plan(Backend& backend) const {
    const Attributes& a = attributes_;
    Recorder record;
    SUBBYTE_TRY(const Weight table, upload(backend, table_));
    SUBBYTE_TRY(const Weight head, upload(backend, head_));
    ValueId x = record.embed("embed", table, a.embedding_factor);
    ValueId delta = kNoValue;
    std::shared_ptr<const Rope> ropes[kLayers] = {rope(0), rope(a.has_second_rope ? 1 : 0)};
    if (!a.has_second_rope) ropes[1] = ropes[0];
    SUBBYTE_TRY(const Norm of_inputs, norm(backend, kHidden, 6));
    ValueId inputs = kNoValue;
    if (a.has_layer_inputs) {
      SUBBYTE_TRY(const Weight all, upload(backend, layers_[0].qkv));
      inputs = record.linear("inputs", record.activations("embedding", x, kNoValue), all);
      inputs = record.norm("inputs.norm", inputs, of_inputs, kInputs);
    }
    Vector scale;
    for (int64_t i = 0; i < kLayers; ++i) {
      const Layer& layer = layers_[i];
      const bool has_keys = i == 0 || !a.shares_keys;
      SUBBYTE_TRY(const Weight qkv, upload_rows(backend, layer.qkv, has_keys));
      SUBBYTE_TRY(const Weight o, upload(backend, layer.o));
      SUBBYTE_TRY(const Weight gate_up, backend.upload_joined(gate_and_up(backend, layer)));
      SUBBYTE_TRY(const Weight down, upload(backend, layer.down));
      SUBBYTE_TRY(const Norm first, norm(backend, kHidden, i));
      SUBBYTE_TRY(const Norm second, norm(backend, kHidden, i + 1));
      ValueId h = record.add_norm("first", x, delta, first, a.residual_factor, scale);
      SUBBYTE_TRY(Recorder::Attention attention, attention_of(backend, i));
      attention.shape.has_keys = has_keys;
      if (i == 0 || !a.second_stays) attention.rope = ropes[i];
      attention.source = record.last_cache();
      delta = record.attention("attention", record.linear("qkv", h, qkv), attention);
      delta = record.linear("o", delta, o);
      if (a.has_post_norms) delta = record.norm("post", delta, first);
      h = record.add_norm("second", x, delta, second, a.residual_factor);
      h = is_gated(a.gate) ? record.gated_linear("gate_up", h, gate_up, a.gate)
                           : record.linear("up", h, gate_up, true);
      delta = record.linear("down", h, down);
      if (a.has_post_norms) delta = record.norm("post", delta, second);
      if (a.has_layer_inputs) {
        h = record.activations("third", x, delta, a.residual_factor);
        delta = record.gate("gated", h, inputs, (2 * i + 1) * kHidden, a.gate);
      }
      if (a.layer_scale != 1 && i + 1 < kLayers) {
        SUBBYTE_TRY(scale, backend.upload(std::vector<float>{a.layer_scale}));
      }
    }
    SUBBYTE_TRY(const Norm last, norm(backend, kHidden, 5));
    const ValueId h = record.head_norm("last", x, delta, last, a.residual_factor);
    record.logits("head", h, head, a.logit_factor, a.logit_cap);
    return std::move(record).finish();
  }

  /// The logits of all tokens of a sequence, in double precision.
  std::vector<float> expected(std::span<const int32_t> tokens) const {
    using Rows = std::vector<std::vector<double>>;
    const Attributes& a = attributes_;
    Rows x;
    for (const int32_t token : tokens) {
      std::vector<double> row(kHidden);
      for (int64_t i = 0; i < kHidden; ++i) {
        row[i] = a.embedding_factor * weight_at(table_.view, token, i);
      }
      x.push_back(row);
    }
    Rows inputs;
    if (a.has_layer_inputs) {
      for (const auto& row : x) inputs.push_back(normed_runs(times(layers_[0].qkv, row), 6));
    }
    Rows qkv;
    for (int64_t i = 0; i < kLayers; ++i) {
      const Layer& layer = layers_[i];
      const Rows before = std::exchange(qkv, {});
      for (const auto& row : x) qkv.push_back(times(layer.qkv, normed(row, i)));
      turn(qkv, i);
      if (a.has_value_norms) norm_values(qkv);
      for (std::size_t t = 0; t < x.size() && i > 0 && a.shares_keys; ++t) {
        std::copy(before[t].begin() + kHeads * kDim, before[t].end(),
                  qkv[t].begin() + kHeads * kDim);
      }
      for (std::size_t t = 0; t < x.size(); ++t) {
        std::vector<double> delta = times(layer.o, attended(qkv, t));
        if (a.has_post_norms) delta = normed(delta, i);
        add(x[t], delta);
        const std::vector<double> h = normed(x[t], i + 1);
        std::vector<double> gate = times(layer.gate, h);
        const std::vector<double> up = times(layer.up, h);
        for (int64_t k = 0; k < kInner; ++k) gate[k] = activated(gate[k], up[k]);
        delta = times(layer.down, gate);
        if (a.has_post_norms) delta = normed(delta, i + 1);
        add(x[t], delta);
        if (a.has_layer_inputs) {
          for (int64_t k = 0; k < kHidden; ++k) {
            delta[k] = activated(x[t][k], inputs[t][(2 * i + 1) * kHidden + k]);
          }
          add(x[t], delta);
        }
        for (double& number : x[t]) number *= i + 1 < kLayers ? a.layer_scale : 1;
      }
    }
    std::vector<float> logits;
    for (const auto& row : x) {
      for (const double sum : times(head_, normed(row, 5))) {
        const double logit = a.logit_factor * sum;
        logits.push_back(static_cast<float>(
            a.logit_cap > 0 ? a.logit_cap * std::tanh(logit / a.logit_cap) : logit));
      }
    }
    return logits;
  }

 private:
  struct Layer {
    RandomMatrix qkv, o, gate, up, down;
  };

  static constexpr int64_t kInputs = (kHeads + 2 * kKvHeads) * kDim / kHidden;  // runs of a row

  /// Numbers around 3 that differ by norm: scores and gates become so large that every attribute
  /// shows.
  static double norm_weight(int64_t which, int64_t i) {
    return 2.25 + static_cast<double>((i * 5 + which * 3) % 8) * 3 / 16;
  }

  std::shared_ptr<const Rope> rope(int64_t kind) const {
    return std::make_shared<const Rope>(attributes_.turning, kind == 0 ? 10'000 : 100);
  }

  static Matrix copy(Backend& backend, const RandomMatrix& random) {
    static_cast<void>(backend);
    Matrix matrix;
    matrix.view = random.view;
    return matrix;
  }
  static Result<Weight> upload(Backend& backend, const RandomMatrix& random) {
    return backend.upload(copy(backend, random));
  }
  /// All heads, or those of queries alone.
  static Result<Weight> upload_rows(Backend& backend, const RandomMatrix& qkv, bool has_keys) {
    Matrix matrix = copy(backend, qkv);
    if (!has_keys) matrix.view = rows_of(matrix.view, 0, kHeads * kDim);
    return backend.upload(std::move(matrix));
  }
  static double norm_bias(int64_t i) { return static_cast<double>(i * 7 % 5) - 1.5; }
  Result<Norm> norm(Backend& backend, int64_t size, int64_t which) const {
    std::vector<float> weight;
    std::vector<float> bias;
    for (int64_t i = 0; i < size; ++i) {
      weight.push_back(static_cast<float>(norm_weight(which, i)));
      bias.push_back(static_cast<float>(norm_bias(i)));
    }
    Norm norm;
    norm.eps = kEps;
    norm.is_centred = attributes_.is_centred;
    SUBBYTE_TRY(norm.weight, backend.upload(std::move(weight)));
    if (attributes_.has_norm_bias) {
      SUBBYTE_TRY(norm.bias, backend.upload(std::move(bias)));
    }
    return norm;
  }

  /// The attention of a layer but for its rope, and for where its keys come from.
  Result<Recorder::Attention> attention_of(Backend& backend, int64_t layer) const {
    const Attributes& a = attributes_;
    Recorder::Attention attention;
    attention.shape = {kHeads, kKvHeads, kDim, 1 / std::sqrt(float{kDim}), a.window, a.score_cap};
    attention.shape.in_chunks = a.in_chunks;
    attention.pairs = a.are_neighbours ? RopePairs::kNeighbours : RopePairs::kHalves;
    attention.query_scale = a.query_scale;
    attention.norms = {{}, {}, kEps, a.has_value_norms, a.norms_are_after, a.norms_are_plain};
    if (a.has_head_norms && !a.norms_are_plain) {
      SUBBYTE_TRY(const Norm of_heads, norm(backend, kDim, layer));
      attention.norms.q = attention.norms.k = of_heads.weight;
    }
    return attention;
  }

  static std::vector<double> times(const RandomMatrix& matrix, const std::vector<double>& x) {
    std::vector<double> y;
    for (int64_t row = 0; row < matrix.view.rows; ++row) {
      double sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        sum += weight_at(matrix.view, row, static_cast<int64_t>(i)) * x[i];
      }
      y.push_back(sum);
    }
    return y;
  }
  std::vector<Matrix> gate_and_up(Backend& backend, const Layer& layer) const {
    std::vector<Matrix> matrices;
    if (is_gated(attributes_.gate)) matrices.push_back(copy(backend, layer.gate));
    matrices.push_back(copy(backend, layer.up));
    return matrices;
  }
  /// x less its mean, over the root of the mean of its squares.
  static std::vector<double> scaled(std::span<const double> x, bool is_centred) {
    const auto size = static_cast<double>(x.size());
    const double mean = is_centred ? std::accumulate(x.begin(), x.end(), 0.0) / size : 0;
    std::vector<double> y(x.begin(), x.end());
    double squares = 0;
    for (double& v : y) {
      v -= mean;
      squares += v * v;
    }
    for (double& v : y) v /= std::sqrt(squares / size + kEps);
    return y;
  }
  std::vector<double> normed(std::span<const double> x, int64_t which) const {
    std::vector<double> y = scaled(x, attributes_.is_centred);
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] *= norm_weight(which, static_cast<int64_t>(i));
      if (attributes_.has_norm_bias) y[i] += norm_bias(static_cast<int64_t>(i));
    }
    return y;
  }
  std::vector<double> normed_runs(const std::vector<double>& x, int64_t which) const {
    std::vector<double> y;
    for (std::size_t at = 0; at < x.size(); at += kHidden) {
      const std::vector<double> run = normed(std::span(x).subspan(at, kHidden), which);
      y.insert(y.end(), run.begin(), run.end());
    }
    return y;
  }
  static void norm_values(std::vector<std::vector<double>>& qkv) {
    for (auto& row : qkv) {
      for (auto x = row.end() - kKvHeads * kDim; x != row.end(); x += kDim) {
        double squares = 0;
        for (int64_t i = 0; i < kDim; ++i) squares += x[i] * x[i];
        for (int64_t i = 0; i < kDim; ++i) x[i] /= std::sqrt(squares / kDim + kEps);
      }
    }
  }
  void normalise_head(double* x, int64_t which) const {
    const std::vector<double> y = scaled({x, kDim}, false);
    for (int64_t i = 0; i < kDim; ++i) {
      x[i] = y[i] * (attributes_.norms_are_plain ? 1 : norm_weight(which, i));
    }
  }
  void add(std::vector<double>& x, const std::vector<double>& delta) const {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += attributes_.residual_factor * delta[i];
  }
  double activated(double g, double up) const {
    if (attributes_.gate == Gate::kSquaredRelu) return up > 0 ? up * up : 0;
    if (attributes_.gate == Gate::kSilu) return g / (1 + std::exp(-g)) * up;
    const double z = std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g);
    return g / 2 * (1 + std::tanh(z)) * up;
  }

  void turn_head(double* x, std::size_t position, int64_t layer) const {
    const Attributes& a = attributes_;
    if (layer == 1 && a.second_stays) return;
    const double theta = layer == 1 && a.has_second_rope ? 100 : 10'000;
    const int64_t half = a.turning / 2;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
      double& low = x[a.are_neighbours ? 2 * i : i];
      double& high = x[a.are_neighbours ? 2 * i + 1 : half + i];
      const std::pair<double, double> before = {low, high};
      low = before.first * std::cos(angle) - before.second * std::sin(angle);
      high = before.second * std::cos(angle) + before.first * std::sin(angle);
    }
  }

  /// Normalises and turns queries and keys by their positions, and scales queries.
  void turn(std::vector<std::vector<double>>& qkv, int64_t layer) const {
    const Attributes& a = attributes_;
    for (std::size_t t = 0; t < qkv.size(); ++t) {
      for (int64_t head = 0; head < kHeads + kKvHeads; ++head) {
        double* const x = qkv[t].data() + head * kDim;
        if (a.has_head_norms && !a.norms_are_after) normalise_head(x, layer);
        turn_head(x, t, layer);
        if (a.has_head_norms && a.norms_are_after) normalise_head(x, layer);
        const auto steps = (static_cast<int64_t>(t) + a.query_scale.first) / a.query_scale.step;
        const double factor = 1 + a.query_scale.beta * std::log(1.0 + static_cast<double>(steps));
        for (int64_t i = 0; i < kDim && head < kHeads; ++i) x[i] *= factor;
      }
    }
  }

  bool sees(std::size_t token, std::size_t other) const {
    const auto window = static_cast<std::size_t>(attributes_.window);
    if (window == 0) return true;
    return attributes_.in_chunks ? token / window == other / window : token < other + window;
  }

  std::vector<double> attended(const std::vector<std::vector<double>>& qkv,
                               std::size_t token) const {
    std::vector<double> y(kHeads * kDim);
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t key = (kHeads + head / (kHeads / kKvHeads)) * kDim;
      std::vector<double> weights;
      double sum = 0;
      for (std::size_t t = 0; t <= token; ++t) {
        double score = 0;
        for (int64_t i = 0; i < kDim; ++i) score += qkv[token][head * kDim + i] * qkv[t][key + i];
        score /= std::sqrt(double{kDim});
        const double cap = attributes_.score_cap;
        if (cap > 0) score = cap * std::tanh(score / cap);
        weights.push_back(sees(token, t) ? std::exp(score) : 0);
        sum += weights.back();
      }
      for (std::size_t t = 0; t <= token; ++t) {
        for (int64_t i = 0; i < kDim; ++i) {
          y[head * kDim + i] += weights[t] / sum * qkv[t][key + kKvHeads * kDim + i];
        }
      }
    }
    return y;
  }

  Attributes attributes_;
  RandomMatrix table_;
  RandomMatrix head_;
  std::vector<Layer> layers_;
};

/// The logits of `tokens` that a backend computes, `piece` tokens in a step.
template <class Model>
Result<std::vector<float>> logits_with(const Model& model, Backend& backend, Element type,
                                       std::span<const int32_t> tokens, int64_t piece) {
  SUBBYTE_TRY(StepPlan plan, model.plan(backend));
  SUBBYTE_TRY(const auto step, backend.compile(std::move(plan)));
  SUBBYTE_TRY(KvPool pool, backend.make_kv_pool(step->plan().cache, type, {1024}));
  Sequence sequence(pool, 1024);
  std::vector<float> all;
  for (int64_t at = 0; at < std::ssize(tokens); at += piece) {
    const auto some = tokens.subspan(at, std::min(piece, std::ssize(tokens) - at));
    SUBBYTE_CHECK(sequence.reserve(std::ssize(some)));
    const Part part = {&sequence, some, std::ssize(some)};
    backend.submit(*step, {{&part, 1}});
    Logits logits;
    SUBBYTE_CHECK(backend.wait(logits));
    sequence.advance(std::ssize(some));
    all.insert(all.end(), logits.values.begin(), logits.values.end());
  }
  return all;
}

/// Signal to noise of what was found.
inline double noise_decibels(std::span<const float> found, std::span<const float> expected) {
  double signal = 0;
  double noise = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    signal += double{expected[i]} * expected[i];
    noise += std::pow(double{found[i]} - expected[i], 2);
  }
  return 10 * std::log10(signal / noise);
}

}  // namespace subbyte::testing
