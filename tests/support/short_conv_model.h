#pragma once
// A step with a short convolution, whose operands and results a backend shows: sequences cut into
// steps in several ways, beside the definition in double precision.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "ops/backend.h"
#include "ops/recorder.h"
#include "support/random_matrix.h"
#include "support/value_of.h"

namespace subbyte::testing {

struct ShortConvSizes {
  int64_t channels = 0;
  int64_t taps = 0;
  bool has_bias = false;
};

class ShortConvModel {
 public:
  static constexpr int64_t kVocab = 48;
  static constexpr int64_t kHidden = 64;

  explicit ShortConvModel(const ShortConvSizes& sizes)
      : sizes_(sizes),
        table_(random_matrix({Format::kF32}, kVocab, kHidden, Contents::kReal, 1)),
        in_(random_matrix({Format::kF32}, 3 * sizes.channels, kHidden, Contents::kReal, 2)) {
    Random random(3);
    for (int64_t i = 0; i < sizes.taps * sizes.channels; ++i) filters_.push_back(number(random));
    for (int64_t i = 0; sizes.has_bias && i < sizes.channels; ++i) bias_.push_back(number(random));
  }

  Result<StepPlan> plan(Backend& backend) const {
    Recorder record;
    SUBBYTE_TRY(const Weight table, upload(backend, table_));
    SUBBYTE_TRY(const Weight in, upload(backend, in_));
    Norm norm;
    SUBBYTE_TRY(norm.weight, backend.upload(std::vector<float>(kHidden, 1.0f)));
    ShortConvOp op = {
        .channels = sizes_.channels, .taps = sizes_.taps, .has_bias = sizes_.has_bias};
    SUBBYTE_TRY(op.filters, backend.upload(filters_));
    if (sizes_.has_bias) {
      SUBBYTE_TRY(op.bias, backend.upload(bias_));
    }
    ValueId x = record.embed("table", table);
    op.bcx = record.linear("in", record.add_norm("norm", x, kNoValue, norm), in);
    record.add("conv", op);
    record.logits("head", record.head_norm("last", x, kNoValue, norm), table);
    return std::move(record).finish();
  }

  /// Expects `y` [tokens][channels] to be the convolution of `bcx`, whose numbers were stored with
  /// a relative error of `rounding`.
  void expect(const std::vector<float>& bcx, const std::vector<float>& y, double rounding) const {
    const int64_t channels = sizes_.channels;
    const auto tokens = std::ssize(y) / channels;
    ASSERT_EQ(std::ssize(bcx), 3 * std::ssize(y));
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < channels; ++i) {
        double sum = sizes_.has_bias ? bias_[i] : 0;
        double size = std::abs(sum);
        for (int64_t tap = 0; tap < sizes_.taps; ++tap) {
          const int64_t from = t - (sizes_.taps - 1) + tap;
          if (from < 0) continue;
          const float* const row = bcx.data() + from * 3 * channels;
          const double term = double{filters_[tap * channels + i]} * row[i] * row[2 * channels + i];
          sum += term;
          size += std::abs(term);
        }
        const double c = bcx[(3 * t + 1) * channels + i];
        // Each term has two products and at most all the sums after it; then one product more.
        const double allowed = std::abs(c) * size * static_cast<double>(sizes_.taps + 3) * 0x1p-24 +
                               std::abs(c * sum) * rounding + 0x1p-25;
        ASSERT_NEAR(y[t * channels + i], c * sum, allowed) << "token " << t << " channel " << i;
      }
    }
  }

 private:
  static float number(Random& random) { return static_cast<float>(random.normal()); }
  static Result<Weight> upload(Backend& backend, const RandomMatrix& random) {
    Matrix matrix;
    matrix.view = random.view;
    return backend.upload(std::move(matrix));
  }

  ShortConvSizes sizes_;
  RandomMatrix table_, in_;
  std::vector<float> filters_, bias_;
};

/// A sequence, and what a step shows of its tokens.
struct ShownSequence {
  Sequence sequence;
  int64_t next = 0;  // token
  std::vector<float> bcx, y;
};

class ShownStep : public StepObserver {
 public:
  void observe(const Op& op, ValueId, std::span<const float> numbers) override {
    if (op.name == "in") bcx.assign(numbers.begin(), numbers.end());
    if (op.name == "conv") y.assign(numbers.begin(), numbers.end());
  }
  std::vector<float> bcx, y;
};

/// One step with so many tokens of each sequence; of some there may be none.
inline void show_step(const CompiledStep& step, Backend& backend,
                      std::vector<ShownSequence>& sequences, const std::vector<int64_t>& counts) {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<Part> parts;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    ShownSequence& one = sequences[i];
    std::vector<int32_t>& ids = tokens.emplace_back();
    for (int64_t t = 0; t < counts[i]; ++t, ++one.next) {
      ids.push_back(static_cast<int32_t>((one.next * 7 + 11 * static_cast<int64_t>(i)) %
                                         ShortConvModel::kVocab));
    }
    if (ids.empty()) continue;
    value_of(one.sequence.reserve(counts[i]));
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (!tokens[i].empty()) parts.push_back({&sequences[i].sequence, tokens[i]});
  }
  ShownStep shown;
  backend.submit(step, {parts, &shown});
  Logits logits;
  value_of(backend.wait(logits));
  auto bcx = shown.bcx.begin();
  auto y = shown.y.begin();
  int64_t rows = 0;
  for (const int64_t count : counts) rows += count;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto of_y = std::ssize(shown.y) / rows * counts[i];
    sequences[i].y.insert(sequences[i].y.end(), y, y + of_y);
    sequences[i].bcx.insert(sequences[i].bcx.end(), bcx, bcx + 3 * of_y);
    y += of_y;
    bcx += 3 * of_y;
    sequences[i].sequence.advance(counts[i]);
  }
}

inline void expect_short_convs(Backend& backend, Element type, double rounding) {
  for (const ShortConvSizes& sizes : {ShortConvSizes{64, 3}, ShortConvSizes{64, 4, true},
                                      ShortConvSizes{20, 2}, ShortConvSizes{20, 4, true}}) {
    const ShortConvModel model(sizes);
    auto plan = model.plan(backend);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto step = backend.compile(std::move(*plan));
    ASSERT_TRUE(step.ok()) << step.error().message;
    auto pool = backend.make_kv_pool((*step)->plan().cache, type, {256, 2});
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    std::vector<ShownSequence> sequences;
    for (int i = 0; i < 2; ++i) sequences.push_back({Sequence(*pool, 256), 0, {}, {}});
    // Prompts shorter and longer than the filters, single tokens, and one sequence alone.
    for (const std::vector<int64_t>& counts : std::vector<std::vector<int64_t>>{
             {1, 9}, {2, 1}, {1, 1}, {1, 1}, {0, 5}, {17, 0}, {3, 2}}) {
      show_step(**step, backend, sequences, counts);
      for (ShownSequence& one : sequences) one.sequence.settle(one.sequence.length());
    }
    for (const ShownSequence& one : sequences) model.expect(one.bcx, one.y, rounding);
  }
}

}  // namespace subbyte::testing
