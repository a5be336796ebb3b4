#pragma once
// A step with a block of Mamba 2, whose operands and results a backend shows: sequences cut into
// steps in several ways, beside the definition in double precision.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "ops/backend.h"
#include "ops/recorder.h"
#include "support/random_matrix.h"
#include "support/value_of.h"

namespace subbyte::testing {

/// A block as families have them, with or without what they may leave out.
struct MambaCase {
  MambaShape shape;
  bool has_bias = true;
  bool has_norm = true;
};

class MambaModel {
 public:
  static constexpr int64_t kVocab = 48;
  static constexpr int64_t kHidden = 64;

  explicit MambaModel(const MambaCase& of)
      : of_(of),
        table_(random_matrix({Format::kF32}, kVocab, kHidden, Contents::kReal, 1)),
        in_(random_matrix({Format::kF32}, of.shape.row_size(), kHidden, Contents::kReal, 2)) {
    Random random(3);
    const MambaShape& shape = of.shape;
    filters_ = normal(random, shape.taps * shape.channels(), 0.5, 0);
    if (of.has_bias) bias_ = normal(random, shape.channels(), 0.5, 0);
    // Some heads forget at once, some nearly nothing.
    for (int64_t h = 0; h < shape.heads; ++h)
      rates_.push_back(-static_cast<float>(std::exp(1 - 3 * (h % 3))));
    dt_bias_ = normal(random, shape.heads, 1, -2);
    d_ = normal(random, shape.heads, 1, 0);
    if (of.has_norm) norm_ = normal(random, shape.width(), 0.2, 1);
  }

  Result<StepPlan> plan(Backend& backend) const {
    Recorder record;
    SUBBYTE_TRY(const Weight table, upload(backend, table_));
    SUBBYTE_TRY(const Weight in, upload(backend, in_));
    Norm norm;  // its factors give the projections a deviation of about 1
    SUBBYTE_TRY(norm.weight, backend.upload(std::vector<float>(kHidden, 6.0f)));
    MambaOp op = {.shape = of_.shape, .has_bias = of_.has_bias, .has_norm = of_.has_norm};
    SUBBYTE_TRY(op.weights.filters, backend.upload(filters_));
    if (of_.has_bias) {
      SUBBYTE_TRY(op.weights.bias, backend.upload(bias_));
    }
    SUBBYTE_TRY(op.weights.rates, backend.upload(rates_));
    SUBBYTE_TRY(op.weights.dt_bias, backend.upload(dt_bias_));
    SUBBYTE_TRY(op.weights.d, backend.upload(d_));
    if (of_.has_norm) {
      SUBBYTE_TRY(op.weights.norm, backend.upload(norm_));
    }
    ValueId x = record.embed("table", table);
    op.projections = record.linear("in", record.add_norm("norm", x, kNoValue, norm), in);
    record.add("mamba", op);
    record.logits("head", record.head_norm("last", x, kNoValue, norm), table);
    return std::move(record).finish();
  }

  /// y [tokens][width] of the projections of one sequence, token by token and number by number.
  std::vector<double> expected(const std::vector<float>& projections) const;

 private:
  static std::vector<float> normal(Random& random, int64_t count, double deviation, double mean) {
    std::vector<float> numbers;
    for (int64_t i = 0; i < count; ++i) {
      numbers.push_back(static_cast<float>(mean + deviation * random.normal()));
    }
    return numbers;
  }
  static Result<Weight> upload(Backend& backend, const RandomMatrix& random) {
    Matrix matrix;
    matrix.view = random.view;
    return backend.upload(std::move(matrix));
  }
  static double silu(double x) { return x / (1 + std::exp(-x)); }
  std::vector<double> convolved(const std::vector<float>& projections, int64_t token) const;
  /// Norm and gate of a token, whose z begins at `z`.
  void finish(double* y, const float* z) const;

  MambaCase of_;
  RandomMatrix table_, in_;
  std::vector<float> filters_, bias_, rates_, dt_bias_, d_, norm_;
};

/// All channels of a token.
inline std::vector<double> MambaModel::convolved(const std::vector<float>& projections,
                                                 int64_t token) const {
  const MambaShape& s = of_.shape;
  std::vector<double> all;
  for (int64_t i = 0; i < s.channels(); ++i) {
    double sum = of_.has_bias ? bias_[i] : 0;
    for (int64_t tap = 0; tap < s.taps; ++tap) {
      const int64_t from = token - (s.taps - 1) + tap;
      if (from < 0) continue;
      sum += double{filters_[tap * s.channels() + i]} *
             projections[from * s.row_size() + s.width() + i];
    }
    all.push_back(silu(sum));
  }
  return all;
}

inline void MambaModel::finish(double* y, const float* z) const {
  const MambaShape& s = of_.shape;
  if (!s.norm_before_gate) {
    for (int64_t i = 0; i < s.width(); ++i) y[i] *= silu(z[i]);
  }
  const int64_t size = s.width() / s.norm_groups;
  for (int64_t first = 0; of_.has_norm && first < s.width(); first += size) {
    double squares = 0;
    for (int64_t i = first; i < first + size; ++i) squares += y[i] * y[i];
    const double rms = std::sqrt(squares / double(size) + s.eps);
    for (int64_t i = first; i < first + size; ++i) y[i] *= norm_[i] / rms;
  }
  if (s.norm_before_gate) {
    for (int64_t i = 0; i < s.width(); ++i) y[i] *= silu(z[i]);
  }
}

inline std::vector<double> MambaModel::expected(const std::vector<float>& projections) const {
  const MambaShape& s = of_.shape;
  const auto tokens = std::ssize(projections) / s.row_size();
  std::vector<double> y(tokens * s.width());
  std::vector<double> states(s.width() * s.state_size);
  for (int64_t t = 0; t < tokens; ++t) {
    const std::vector<double> mixed = convolved(projections, t);
    const float* const row = projections.data() + t * s.row_size();
    for (int64_t h = 0; h < s.heads; ++h) {
      const double dt = row[s.row_size() - s.heads + h] + double{dt_bias_[h]};
      const double step =
          std::clamp(std::log1p(std::exp(dt)), double{s.least_step}, double{s.largest_step});
      const double decay = std::exp(double{rates_[h]} * step);
      const double* const b = mixed.data() + s.width() + h / (s.heads / s.groups) * s.state_size;
      const double* const c = b + s.groups * s.state_size;
      for (int64_t i = 0; i < s.head_size; ++i) {
        const int64_t at = h * s.head_size + i;
        double sum = d_[h] * mixed[at];
        for (int64_t n = 0; n < s.state_size; ++n) {
          double& number = states[at * s.state_size + n];
          number = decay * number + b[n] * step * mixed[at];
          sum += c[n] * number;
        }
        y[t * s.width() + at] = sum;
      }
    }
    finish(y.data() + t * s.width(), row);
  }
  return y;
}

/// What steps show of the tokens of a sequence.
struct ShownText {
  int64_t next = 0;  // token
  std::vector<float> projections, y;
};

class ShownMamba : public StepObserver {
 public:
  void observe(const Op& op, ValueId id, std::span<const float> numbers) override {
    if (op.name == "in") projections.assign(numbers.begin(), numbers.end());
    if (op.name == "mamba" && id == op.outputs.front()) y.assign(numbers.begin(), numbers.end());
  }
  std::vector<float> projections, y;
};

/// Two sequences in steps with so many tokens of each.
inline std::vector<ShownText> show_mamba(Backend& backend, const MambaModel& model, Element type,
                                         const std::vector<std::vector<int64_t>>& steps) {
  std::vector<ShownText> texts(2);
  const auto step = value_of(backend.compile(value_of(model.plan(backend))));
  KvPool pool = value_of(backend.make_kv_pool(step->plan().cache, type, {512, 2}));
  Sequence sequences[] = {Sequence(pool, 512), Sequence(pool, 512)};
  for (const std::vector<int64_t>& counts : steps) {
    std::vector<std::vector<int32_t>> tokens(2);
    std::vector<Part> parts;
    int64_t rows = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      rows += counts[i];
      for (int64_t t = 0; t < counts[i]; ++t, ++texts[i].next) {
        tokens[i].push_back(static_cast<int32_t>((texts[i].next * texts[i].next + 11 * int64_t(i)) %
                                                 MambaModel::kVocab));
      }
      if (tokens[i].empty()) continue;
      value_of(sequences[i].reserve(counts[i]));
      parts.push_back({&sequences[i], tokens[i]});
    }
    ShownMamba shown;
    backend.submit(*step, {parts, &shown});
    Logits logits;
    value_of(backend.wait(logits));
    const auto take = [rows](std::vector<float>& to, const std::vector<float>& from, int64_t row,
                             int64_t count) {
      const auto cols = std::ssize(from) / rows;
      to.insert(to.end(), from.begin() + row * cols, from.begin() + (row + count) * cols);
    };
    int64_t row = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      take(texts[i].projections, shown.projections, row, counts[i]);
      take(texts[i].y, shown.y, row, counts[i]);
      row += counts[i];
      sequences[i].advance(counts[i]);
      sequences[i].settle(sequences[i].length());
    }
  }
  return texts;
}

inline std::vector<MambaCase> mamba_cases() {
  std::vector<MambaCase> all;
  const auto add = [&](MambaShape shape, bool has_bias = true, bool has_norm = true) {
    all.push_back({shape, has_bias, has_norm});
  };
  add({.heads = 4, .head_size = 64, .groups = 1, .state_size = 128, .taps = 4});
  add({.heads = 6, .head_size = 80, .groups = 2, .state_size = 128, .taps = 4, .norm_groups = 2});
  add({.heads = 8,
       .head_size = 16,
       .groups = 4,
       .state_size = 16,
       .taps = 4,
       .norm_groups = 4,
       .norm_before_gate = true,
       .eps = 1e-3f},
      false);
  add({.heads = 6,
       .head_size = 24,
       .groups = 3,
       .state_size = 20,
       .taps = 2,
       .least_step = 0.05f,
       .largest_step = 0.3f},
      true, false);
  add({.heads = 3, .head_size = 5, .groups = 1, .state_size = 9, .taps = 1}, false);
  add({.heads = 2, .head_size = 128, .groups = 2, .state_size = 256, .taps = 4});
  add({.heads = 2,
       .head_size = 192,
       .groups = 1,
       .state_size = 64,
       .taps = 3,
       .norm_groups = 2,
       .norm_before_gate = true});
  return all;
}

/// Prompts shorter and longer than the filters, single tokens, prompts with and without a state
/// that end within a chunk and at its end, and one sequence alone.
inline std::vector<std::vector<int64_t>> mamba_steps() {
  return {{1, 9}, {2, 1}, {1, 1}, {1, 1}, {0, 53}, {128, 0}, {3, 2}, {61, 87}, {1, 1}};
}

/// `unit`: of what operands and results are rounded to, of each some times at most; 0: of nothing.
///
/// In float32 a token rounds some 2 state_size times by u = 2^-24 of the state, and what is
/// forgotten takes its errors along: a hundred u of the root mean square. Rounded to 16 bits are
/// x, B and C, P, the state, what is added to it, what it gives and y: eight times by
/// unit / sqrt(3) in the mean.
/// Twice that is allowed, as the errors of a small result count for more where the norm makes it as
/// large as the others. The largest error is as much of the largest result; rounded to 16 bits some
/// 25 times that, for small results again.
inline void expect_mambas(Backend& backend, Element type, double unit) {
  for (const MambaCase& one : mamba_cases()) {
    const MambaModel model(one);
    for (const ShownText& text : show_mamba(backend, model, type, mamba_steps())) {
      const std::vector<double> expected = model.expected(text.projections);
      ASSERT_EQ(text.y.size(), expected.size());
      double squares = 0;
      double errors = 0;
      double largest = 0;
      double largest_error = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double error = std::abs(text.y[i] - expected[i]);
        largest_error = error <= largest_error ? largest_error : error;  // NaN becomes the largest
        largest = std::max(largest, std::abs(expected[i]));
        errors += error * error;
        squares += expected[i] * expected[i];
      }
      const auto count = double(expected.size());
      const double rms = std::sqrt(squares / count);
      const std::string what = "heads of " + std::to_string(one.shape.head_size);
      const double allowed = 100 * 0x1p-24 + 2 * std::sqrt(8.0 / 3) * unit;
      EXPECT_GT(rms, 0.1) << what;
      EXPECT_LE(std::sqrt(errors / count), allowed * rms) << what;
      EXPECT_LE(largest_error, (unit > 0 ? 25 : 1) * allowed * largest) << what;
    }
  }
}

/// In batch-invariant mode a token has the same bits however its sequence is cut.
inline void expect_same_mambas_however_cut(Backend& backend, Element type) {
  for (const MambaCase& one : mamba_cases()) {
    const MambaModel model(one);
    const auto cut = show_mamba(backend, model, type, mamba_steps());
    const auto whole = show_mamba(backend, model, type, {{198, 155}});
    for (std::size_t i = 0; i < cut.size(); ++i) {
      ASSERT_EQ(cut[i].projections, whole[i].projections);
      EXPECT_EQ(cut[i].y, whole[i].y) << "heads of " << one.shape.head_size;
    }
  }
}

}  // namespace subbyte::testing
