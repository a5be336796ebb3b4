#pragma once
// A model that keeps the sum of its embeddings: logits are that sum. Its numbers are small
// integers, so that sums are exact in any order and in any type of activations.

#include <gtest/gtest.h>

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

  explicit RunningSumModel(Backend& backend) : backend_(backend) {
    Recorder record;
    const Weight table = upload(table_);
    const Weight identity = upload(identity_);
    const ValueId x = record.embed("table", table);
    Norm norm;
    norm.eps = 0;
    norm.weight = std::move(backend.upload(std::vector<float>(kSize, 1.0f))).value();
    const ValueId sums = record.running_sum("sums", record.linear("identity", x, identity));
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

  /// Whether `found` is the end of what is expected after `tokens`: a norm rounds four times, and
  /// the tiles of AMX multiply numbers of 17 bits (two of bf16).
  void expect_end(std::span<const float> found, std::span<const int32_t> tokens) const {
    const std::vector<float> all = expected(tokens);
    ASSERT_LE(found.size(), all.size());
    const float* const end = all.data() + all.size() - found.size();
    const double unit = 4 * 0x1p-24 + (isa_of(backend_) == "amx" ? 0x1p-17 : 0);
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
  Random random_{3};
  RandomMatrix table_ = numbers(kVocab, kSize, [](int64_t row, int64_t col) {
    return static_cast<double>((row * 7 + col * 5) % 9 - 4);
  });
  RandomMatrix identity_ =
      numbers(kSize, kSize, [](int64_t row, int64_t col) { return row == col ? 1.0 : 0.0; });
  std::unique_ptr<CompiledStep> step_;
  Logits logits_;
};

}  // namespace subbyte::testing
