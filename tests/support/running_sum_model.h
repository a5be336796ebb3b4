#pragma once
// A model that keeps the sum of its embeddings: logits are that sum. Its numbers are 1 and -1,
// which a norm leaves as they are, so that sums are exact in any order and in any type of
// activations. And what every machine has to do with states.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "ops/backend.h"
#include "ops/recorder.h"
#include "support/isa_of.h"
#include "support/random_matrix.h"

namespace subbyte::testing {

class RunningSumModel {
 public:
  static constexpr int64_t kSize = 32;
  static constexpr int64_t kVocab = 32;

  /// Activations have a roundoff of `rounding`.
  explicit RunningSumModel(Backend& backend, double rounding = 0)
      : backend_(backend), rounding_(rounding) {
    Recorder record;
    const Weight table = upload(table_);
    const Weight identity = upload(identity_);
    const ValueId x = record.embed("table", table);
    ValueId residual = x;
    Norm norm;
    norm.eps = 0;
    norm.weight = std::move(backend.upload(std::vector<float>(kSize, 1.0f))).value();
    const ValueId h = record.add_norm("first_norm", residual, kNoValue, norm);
    const ValueId sums = record.running_sum("sums", record.linear("identity", h, identity));
    record.logits("head", record.head_norm("norm", x, sums, norm), identity);
    auto plan = std::move(record).finish();
    step_ = std::move(backend.compile(std::move(plan).value())).value();
  }

  KvPool make_pool(int64_t sequences) {
    return std::move(backend_.make_kv_pool(step_->plan().cache, Element::kF16, {1024, sequences}))
        .value();
  }

  /// For a Model of it, after which this cannot run any more.
  std::unique_ptr<CompiledStep> take_step() { return std::move(step_); }

  std::vector<int32_t> tokens(int64_t count) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<int32_t>(random_.below(kVocab)));
    }
    return tokens;
  }

  /// The logits after each of `tokens`, [tokens][kSize].
  std::vector<float> expected(std::span<const int32_t> tokens) const {
    std::vector<double> sum(kSize);
    std::vector<float> logits;
    for (const int32_t token : tokens) {
      double squares = 0;
      std::vector<double> row(kSize);
      for (int64_t i = 0; i < kSize; ++i) {
        sum[i] += weight_at(table_.view, token, i);
        row[i] = weight_at(table_.view, token, i) + sum[i];
        squares += row[i] * row[i];
      }
      for (const double number : row) {
        logits.push_back(static_cast<float>(number / std::sqrt(squares / kSize)));
      }
    }
    return logits;
  }

  /// Compares `found` with the end of what is expected after `tokens`: a norm rounds four times,
  /// its result is an activation, and the tiles of AMX multiply numbers of 17 bits (two of bf16).
  void expect_end(std::span<const float> found, std::span<const int32_t> tokens) const {
    const std::vector<float> all = expected(tokens);
    ASSERT_LE(found.size(), all.size());
    const float* const end = all.data() + all.size() - found.size();
    const double unit = 4 * 0x1p-24 + rounding_ + (isa_of(backend_) == "amx" ? 0x1p-17 : 0);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], end[i], unit * std::fabs(end[i])) << i;
    }
  }

  /// One step.
  std::vector<float> run(Sequence& sequence, std::span<const int32_t> tokens) {
    submit(sequence, tokens);
    return logits_.values;
  }

  void submit(Sequence& sequence, std::span<const int32_t> tokens) {
    EXPECT_TRUE(sequence.reserve(std::ssize(tokens)).ok());
    const Part part = {&sequence, tokens, std::ssize(tokens)};
    backend_.submit(*step_, {{&part, 1}});
    const Status status = backend_.wait(logits_);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    sequence.advance(std::ssize(tokens));
  }

 private:
  static RandomMatrix numbers(int64_t rows, int64_t cols, auto&& number) {
    RandomMatrix matrix = random_matrix({Format::kBF16}, rows, cols, Contents::kReal, 1);
    for (int64_t i = 0; i < rows * cols; ++i) {
      const uint32_t code =
          info(Format::kBF16).encode(number(i / cols, i % cols), Rounding::kNearestEven);
      std::memcpy(matrix.codes->data() + 2 * i, &code, 2);
    }
    return matrix;
  }

  Weight upload(const RandomMatrix& matrix) {
    return std::move(backend_.upload(Matrix{matrix.view, {}})).value();
  }

  Backend& backend_;
  double rounding_;
  Random random_{3};
  RandomMatrix table_ = numbers(
      kVocab, kSize, [this](int64_t, int64_t) { return random_.below(2) == 0 ? 1.0 : -1.0; });
  RandomMatrix identity_ =
      numbers(kSize, kSize, [](int64_t row, int64_t col) { return row == col ? 1.0 : 0.0; });
  std::unique_ptr<CompiledStep> step_;
  Logits logits_;
};

inline void expect_sums_however_tokens_are_cut(RunningSumModel& model) {
  KvPool pool = model.make_pool(8);
  for (const int64_t piece : {1, 3, 7, 20}) {
    Sequence sequence(pool, 100);
    const std::vector<int32_t> tokens = model.tokens(20);
    std::vector<float> found;
    for (int64_t at = 0; at < 20; at += piece) {
      const auto part = std::span(tokens).subspan(at, std::min<int64_t>(piece, 20 - at));
      const std::vector<float> sums = model.run(sequence, part);
      found.insert(found.end(), sums.begin(), sums.end());
    }
    ASSERT_EQ(std::ssize(found), 20 * RunningSumModel::kSize);
    model.expect_end(found, tokens);
  }
}

inline void expect_sums_after_a_step_is_taken_back(RunningSumModel& model) {
  KvPool pool = model.make_pool(8);
  Sequence sequence(pool, 100);
  const std::vector<int32_t> tokens = model.tokens(9);
  model.run(sequence, std::span(tokens).first(6));
  model.submit(sequence, std::span(tokens).subspan(3, 1));  // ahead, in vain
  sequence.truncate(6);
  const std::vector<float> found = model.run(sequence, std::span(tokens).subspan(6));
  model.expect_end(found, tokens);
}

inline void expect_sums_of_shared_prefixes(RunningSumModel& model) {
  KvPool pool = model.make_pool(8);
  Sequence first(pool, 100);
  const std::vector<int32_t> tokens = model.tokens(12);
  model.run(first, std::span(tokens).first(5));
  Sequence second = first.share(5);
  model.run(first, std::vector<int32_t>{0, 0, 0});
  first.settle(8);
  const std::vector<float> found = model.run(second, std::span(tokens).subspan(5));
  model.expect_end(found, tokens);
}

}  // namespace subbyte::testing
