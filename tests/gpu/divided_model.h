#pragma once
// A model that several machines have parts of, beside the same on one GPU.

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "model_on_gpu.h"
#include "near_experts.h"
#include "support/test_context.h"

namespace subbyte::testing {

inline constexpr int64_t kTokensOfText = 24;

/// The logits of these tokens, the first half as a prompt and the others one by one.
inline std::vector<float> logits_of_text(const LoadedModel& on, std::span<const int32_t> tokens) {
  TestContext context(*on.model, *on.backend, kTokensOfText, Element::kF16);
  std::vector<float> all = context.forward(tokens.first(kTokensOfText / 2));
  for (int64_t i = kTokensOfText / 2; i < kTokensOfText; ++i) {
    append(all, context.forward(tokens.subspan(i, 1)));
  }
  return all;
}

/// Of the golden of that name on the machines of `options`.
inline void expect_as_on_one_gpu(const char* name, const DeviceOptions& options) {
  const LoadedModel one = load(golden(name), gpu());
  const LoadedModel several = load(golden(name), options);
  const LoadedModel cpu = load(golden(name), {.device = "cpu"});
  const std::vector<int32_t> tokens = random_tokens(one, kTokensOfText, 5);
  const std::vector<float> expected = logits_of_text(one, tokens);
  const std::vector<float> found = logits_of_text(several, tokens);
  const double stated = of_layers(kF16Decibels, one.model->config().num_layers) - kOfDifferences;
  expect_decibels(found, expected, near_ties(cpu, tokens, stated), stated);
  EXPECT_EQ(logits_of_text(several, tokens), found) << "not the same bits again";
}

}  // namespace subbyte::testing
