// What steps are given of prompts, on machines that are formulas.
#include "engine/step_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/random.h"

namespace subbyte {
namespace {

using Machine = std::function<double(const StepLoad&)>;

struct Outcome {
  int64_t tokens = 0;     // of prompts
  int64_t num_alone = 0;  // steps without
  double longest = 0;     // step, beside one without prompts
};

/// Steps with prompts that never end.
Outcome run(StepCosts& costs, const Machine& machine, int64_t answers, int64_t prompts, int steps) {
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    const StepLoad load = {answers, costs.most_prompt_tokens(answers, prompts, 2.5)};
    const double seconds = machine(load);
    costs.add(load, seconds);
    outcome.tokens += load.prompt_tokens;
    outcome.num_alone += load.prompt_tokens == 0 ? 1 : 0;
    outcome.longest = std::max(outcome.longest, seconds / machine({answers, 0}));
  }
  return outcome;
}

/// An H200 with 8b in AWQ: 6.3 ms for 64 samples, 28 us for a token of a prompt.
double h200(const StepLoad& load) {
  return 1e-3 * (4.3 + 0.031 * static_cast<double>(load.num_answers) +
                 0.028 * static_cast<double>(load.prompt_tokens));
}

TEST(StepCosts, give_prompts_what_answers_may_wait_for_them) {
  StepCosts costs;
  costs.add({0, 4096}, h200({0, 4096}));
  const Outcome few = run(costs, h200, 64, 8, 1000);
  EXPECT_LE(few.longest, 1.01 * (1 + 1.5 * 72 / 64));
  EXPECT_GE(few.tokens, 1000 * 0.95 * 1.5 * 72 / 64 * 6.284 / 0.028);
  EXPECT_LE(few.num_alone, 3 + 1000 / 64);
  const Outcome many = run(costs, h200, 64, 192, 1000);
  EXPECT_GE(many.tokens, 3 * few.tokens);
}

TEST(StepCosts, follow_what_steps_take) {
  StepCosts costs;
  run(costs, h200, 1, 1, 200);
  // More samples, on another machine: the next steps without prompts tell it.
  const Machine slower = [](const StepLoad& load) { return 3 * h200(load); };
  run(costs, slower, 256, 8, 400);
  const Outcome later = run(costs, slower, 256, 8, 200);
  EXPECT_LE(later.longest, 1.01 * (1 + 1.5 * 264 / 256));
  EXPECT_GE(later.longest, 2.5);
}

TEST(StepCosts, come_to_the_same_where_a_step_with_prompts_costs_more_at_once) {
  const Machine jumps = [](const StepLoad& load) {
    return h200(load) + (load.prompt_tokens > 0 ? 3e-3 : 0);
  };
  StepCosts costs;
  run(costs, jumps, 64, 1, 100);
  const Outcome later = run(costs, jumps, 64, 1, 200);
  EXPECT_LE(later.longest, 1.01 * (1 + 1.5 * 65 / 64));
  EXPECT_GE(later.tokens, 190 * (1.5 * 6.284 - 3) / 0.028);
}

TEST(StepCosts, are_not_misled_by_single_steps_that_take_long) {
  Random random(1);
  const Machine uneven = [&](const StepLoad& load) {
    return h200(load) * (random.below(10) == 0 ? 8 : 1);
  };
  StepCosts costs;
  int64_t most = 0;
  int64_t sum = 0;
  for (int i = 0; i < 2000; ++i) {
    const StepLoad load = {64, costs.most_prompt_tokens(64, 1, 2.5)};
    most = std::max(most, load.prompt_tokens);
    sum += load.prompt_tokens;
    costs.add(load, uneven(load));
  }
  constexpr double kSpare = 1.5 * 65 / 64 * 6.284;  // ms that a step may take longer
  EXPECT_LE(most, kSpare / 0.028 + 1);
  // Of t tokens the mean is 1.7 (6.284 + 0.028 t) ms, of which the least without prompts is theirs
  // not: what that leaves at kSpare, less a third as the mean of few steps goes up and down.
  EXPECT_GE(sum, 2000 * 2.0 / 3 * (kSpare - 0.7 * 6.284) / (1.7 * 0.028));
}

TEST(StepCosts, let_prompts_go_on_where_a_token_of_them_takes_long) {
  StepCosts costs;
  const Machine slow = [](const StepLoad& load) {
    return 0.05 + 0.5 * static_cast<double>(load.prompt_tokens);
  };
  const Outcome outcome = run(costs, slow, 2, 1, 100);
  EXPECT_EQ(outcome.tokens, (100 - outcome.num_alone) * StepCosts::kLeastPromptTokens);
}

}  // namespace
}  // namespace subbyte
