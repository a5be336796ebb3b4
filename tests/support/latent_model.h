#pragma once
// A layer of latent attention between an embedding and a head, and what it computes in double
// precision with keys and values of every head.

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "ops/backend.h"
#include "ops/recorder.h"
#include "support/random_matrix.h"

namespace subbyte::testing {

inline constexpr LatentSizes kLatentSizes = {
    .heads = 4, .rank = 48, .turning = 16, .nope = 32, .value = 40};

class LatentModel {
 public:
  static constexpr int64_t kVocab = 48;
  static constexpr int64_t kHidden = 64;
  static constexpr float kEps = 1e-5f;

  explicit LatentModel(const LatentSizes& sizes = kLatentSizes,
                       const WeightFormat& format = {Format::kF32}, std::vector<float> sinks = {})
      : s_(sizes), sinks_(std::move(sinks)) {
    const auto random = [&](const WeightFormat& of, int64_t rows, int64_t cols, uint64_t seed) {
      RandomMatrix matrix = random_matrix(of, rows, cols, Contents::kReal, seed);
      matrix.view.tensor_scale = 1;
      return matrix;
    };
    table_ = random({Format::kF32}, kVocab, kHidden, 1);
    head_ = random(format, kVocab, kHidden, 2);
    q_ = random(format, s_.heads * (s_.nope + s_.turning), kHidden, 3);
    kv_ = random(format, s_.rank + s_.turning, kHidden, 4);
    keys_ = random(format, s_.heads * s_.rank, s_.nope, 5);
    values_ = random(format, s_.heads * s_.value, s_.rank, 6);
    o_ = random(format, kHidden, s_.heads * s_.value, 7);
  }

  Result<StepPlan> plan(Backend& backend) const {
    Recorder record;
    const auto upload = [&](const RandomMatrix& random) {
      Matrix matrix;
      matrix.view = random.view;
      return backend.upload(std::move(matrix));
    };
    SUBBYTE_TRY(const Weight table, upload(table_));
    SUBBYTE_TRY(const Weight q, upload(q_));
    SUBBYTE_TRY(const Weight kv, upload(kv_));
    SUBBYTE_TRY(const Weight keys, upload(keys_));
    SUBBYTE_TRY(const Weight values, upload(values_));
    SUBBYTE_TRY(const Weight o, upload(o_));
    SUBBYTE_TRY(const Weight head, upload(head_));
    SUBBYTE_TRY(const Norm norm, ones(backend, kHidden));
    SUBBYTE_TRY(const Norm kv_norm, ones(backend, s_.rank));
    ValueId x = record.embed("embed", table);
    const ValueId h = record.add_norm("first", x, kNoValue, norm);
    const ValueId latent = record.norm_columns("kv_norm", record.linear("kv", h, kv), 0, kv_norm);
    Recorder::Attention attention;
    attention.shape.scale = scale();
    attention.latent = s_;
    attention.latent_keys = keys;
    attention.latent_values = values;
    if (!sinks_.empty()) {
      SUBBYTE_TRY(attention.sinks, backend.upload(sinks_));
    }
    attention.pairs = RopePairs::kNeighbours;
    attention.rope = std::make_shared<const Rope>(s_.turning, 10'000);
    const ValueId heads =
        record.latent_attention("attention", "kv_b", record.linear("q", h, q), latent, attention);
    const ValueId delta = record.linear("o", heads, o);
    record.logits("head", record.head_norm("last", x, delta, norm), head);
    return std::move(record).finish();
  }

  /// The logits of all tokens of a sequence.
  std::vector<float> expected(std::span<const int32_t> tokens) const {
    std::vector<Row> queries, keys, values, x;
    for (const int32_t token : tokens) {
      Row row(kHidden);
      for (int64_t i = 0; i < kHidden; ++i) row[i] = weight_at(table_.view, token, i);
      const Row h = normed(row);
      const auto position = static_cast<double>(x.size());
      queries.push_back(times(q_.view, h));
      for (int64_t head = 0; head < s_.heads; ++head) {
        turn(queries.back().data() + head * (s_.nope + s_.turning) + s_.nope, position);
      }
      const Row kv = times(kv_.view, h);
      const Row latent = normed({kv.begin(), kv.begin() + s_.rank});
      Row turned(kv.begin() + s_.rank, kv.end());
      turn(turned.data(), position);
      keys.push_back(expanded_keys(latent, turned));
      values.push_back(expanded_values(latent));
      x.push_back(std::move(row));
    }
    std::vector<float> logits;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Row delta = times(o_.view, attended(queries[t], keys, values, t));
      for (int64_t i = 0; i < kHidden; ++i) x[t][i] += delta[i];
      for (const double logit : times(head_.view, normed(x[t]))) {
        logits.push_back(static_cast<float>(logit));
      }
    }
    return logits;
  }

 private:
  using Row = std::vector<double>;

  float scale() const { return 1 / std::sqrt(static_cast<float>(s_.nope + s_.turning)); }

  static Result<Norm> ones(Backend& backend, int64_t size) {
    Norm norm;
    norm.eps = kEps;
    SUBBYTE_TRY(norm.weight, backend.upload(std::vector<float>(size, 1.0f)));
    return norm;
  }

  static Row times(const MatrixView& matrix, const Row& x, int64_t first = 0, int64_t count = -1) {
    Row y;
    for (int64_t row = first; row < (count < 0 ? matrix.rows : first + count); ++row) {
      double sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        sum += weight_at(matrix, row, static_cast<int64_t>(i)) * x[i];
      }
      y.push_back(sum);
    }
    return y;
  }
  static Row normed(const Row& x) {
    double squares = 0;
    for (const double v : x) squares += v * v;
    Row y = x;
    for (double& v : y) v /= std::sqrt(squares / static_cast<double>(x.size()) + kEps);
    return y;
  }
  void turn(double* x, double position) const {
    for (int64_t i = 0; i < s_.turning / 2; ++i) {
      const double angle = position * std::pow(10'000, -2 * static_cast<double>(i) /
                                                           static_cast<double>(s_.turning));
      const double even = x[2 * i];
      const double odd = x[2 * i + 1];
      x[2 * i] = even * std::cos(angle) - odd * std::sin(angle);
      x[2 * i + 1] = odd * std::cos(angle) + even * std::sin(angle);
    }
  }

  /// [heads][nope + rope]: the matrix of keys the other way round.
  Row expanded_keys(const Row& latent, const Row& turned) const {
    Row keys;
    for (int64_t head = 0; head < s_.heads; ++head) {
      for (int64_t i = 0; i < s_.nope; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < s_.rank; ++k) {
          sum += weight_at(keys_.view, head * s_.rank + k, i) * latent[k];
        }
        keys.push_back(sum);
      }
      keys.insert(keys.end(), turned.begin(), turned.end());
    }
    return keys;
  }
  Row expanded_values(const Row& latent) const { return times(values_.view, latent); }

  Row attended(const Row& query, const std::vector<Row>& keys, const std::vector<Row>& values,
               std::size_t token) const {
    const int64_t dim = s_.nope + s_.turning;
    Row y(s_.heads * s_.value);
    for (int64_t head = 0; head < s_.heads; ++head) {
      Row weights;
      double sum = sinks_.empty() ? 0 : std::exp(sinks_[head]);
      for (std::size_t t = 0; t <= token; ++t) {
        double score = 0;
        for (int64_t i = 0; i < dim; ++i) score += query[head * dim + i] * keys[t][head * dim + i];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
        sum += weights.back();
      }
      for (std::size_t t = 0; t <= token; ++t) {
        for (int64_t i = 0; i < s_.value; ++i) {
          y[head * s_.value + i] += weights[t] / sum * values[t][head * s_.value + i];
        }
      }
    }
    return y;
  }

  LatentSizes s_;
  std::vector<float> sinks_;  // of each head, or none
  RandomMatrix table_, head_, q_, kv_, keys_, values_, o_;
};

}  // namespace subbyte::testing
