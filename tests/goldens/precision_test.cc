// Whole models with activations that are rounded, and with batches that must not matter.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "checkpoints/containers/tensor_source.h"
#include "models/model.h"
#include "models/model_config.h"
#include "support/golden_bound.h"
#include "support/goldens.h"
#include "support/test_context.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

/// The reference logits over the error, in decibels, that docs/kernels/accuracy.md states for
/// rounded activations, whatever the model: an error of 3 % of the logits.
constexpr double kStatedDecibels = 30;

std::vector<float> read_floats(const TensorSource& source, const std::string& name) {
  const FileTensor* tensor = source.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<float> values(tensor->bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

class Precision : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto source = TensorSource::open(directory() / "reference.safetensors");
    ASSERT_TRUE(source.ok());
    for (const std::string prompt : {"prompt0", "prompt1", "prompt2"}) {     // the longest
      const std::vector<float> ids = read_floats(*source, prompt + ".ids");  // int32 in disguise
      if (ids.size() <= ids_.size()) continue;
      ids_.resize(ids.size());
      std::memcpy(ids_.data(), ids.data(), ids.size() * sizeof(float));
      reference_ = read_floats(*source, prompt + ".logits");
    }
  }

  static std::filesystem::path directory() { return testing::golden_folder(GetParam()); }

  /// Logits of the whole prompt, `step` tokens at a time.
  std::vector<float> logits(Activations activations, bool invariant, std::size_t step) const {
    const char* isa = std::getenv("SUBBYTE_ISA");
    auto backend = make_backend({.device = "cpu",
                                 .num_threads = 2,
                                 .isa = isa == nullptr ? "" : isa,
                                 .activations = activations,
                                 .batch_invariant = invariant});
    EXPECT_TRUE(backend.ok());
    const auto model = load_model(directory(), **backend);
    EXPECT_TRUE(model.ok());
    testing::TestContext context(**model, **backend, std::ssize(ids_));
    std::vector<float> all;
    for (std::size_t at = 0; at < ids_.size(); at += step) {
      const std::size_t count = std::min(step, ids_.size() - at);
      const std::vector<float> part = context.forward(std::span(ids_).subspan(at, count));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  /// Of the median token: where rounding sends one to another expert, its logits are others.
  double decibels(const std::vector<float>& found) const {
    const std::size_t vocab = found.size() / ids_.size();
    std::vector<double> tokens;
    for (std::size_t first = 0; first < found.size(); first += vocab) {
      double signal = 0;
      double noise = 0;
      for (std::size_t i = first; i < first + vocab; ++i) {
        const double reference = reference_[i];
        signal += reference * reference;
        noise += (found[i] - reference) * (found[i] - reference);
      }
      tokens.push_back(10 * std::log10(signal / noise));
    }
    std::ranges::sort(tokens);
    return tokens[tokens.size() / 2];
  }

  /// What tests/support/golden_bound.h allows.
  double least_decibels(Activations activations, bool is_prompt) const {
    const char* isa = std::getenv("SUBBYTE_ISA");
    const auto backend = testing::make_test_backend(1, isa == nullptr ? "" : isa);
    const auto config = read_model_config(directory());
    EXPECT_TRUE(config.ok());
    const testing::Rounding rounding =
        testing::rounding_of(testing::isa_of(*backend), activations, is_prompt);
    const double error = testing::relative_error(*config, std::ssize(ids_), rounding);
    return -20 * std::log10(testing::kGoldenFactor * error);
  }

  std::vector<int32_t> ids_;
  std::vector<float> reference_;
};

TEST_P(Precision, tokens_alone_and_in_batches_give_the_same_bits_in_the_invariant_mode) {
  ASSERT_GT(ids_.size(), 16u);  // more than the kernels for few rows take
  for (const Activations precision : {Activations::kF32, Activations::kBF16, Activations::kInt8}) {
    const std::vector<float> together = logits(precision, true, ids_.size());
    const std::vector<float> alone = logits(precision, true, 1);
    const std::vector<float> in_threes = logits(precision, true, 3);
    EXPECT_EQ(std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(together.data(), in_threes.data(), alone.size() * sizeof(float)), 0);
  }
}

TEST_P(Precision, rounded_activations_stay_within_the_derived_error) {
  const auto expect_within = [&](Activations precision, bool is_prompt, const char* name) {
    const double found = decibels(logits(precision, false, is_prompt ? ids_.size() : 1));
    RecordProperty(name, std::to_string(found));
    EXPECT_GT(found, least_decibels(precision, is_prompt)) << name;
    return found;
  };
  expect_within(Activations::kF32, true, "f32_db");
  // Token after token, products round less than those of prompts may.
  expect_within(Activations::kF32, false, "f32_alone_db");
  EXPECT_GT(expect_within(Activations::kBF16, true, "bf16_db"), kStatedDecibels);
  EXPECT_GT(expect_within(Activations::kInt8, true, "int8_db"), kStatedDecibels);
}

INSTANTIATE_TEST_SUITE_P(Goldens, Precision, ::testing::ValuesIn(testing::goldens(testing::kKind)),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
