// Gated delta nets against the definition in double precision, token by token and in chunks; and in
// batch-invariant mode cut in every way: the bits of a token do not depend on the step that it is
// in.

#include "cpu_backend/delta_net.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "support/delta_net_problem.h"
#include "support/isa_test.h"

namespace subbyte {
namespace {

using Numbers = std::vector<float>;

/// A problem in steps on the CPU.
struct Problem : testing::DeltaNetProblem {
  using DeltaNetProblem::DeltaNetProblem;

  DeltaNetNumbers weights() const { return {filters, rates, dt_bias, norm}; }
  Numbers empty() const { return Numbers(shape.state_size(), NAN); }

  /// One step with tokens [begin, end) from a state, which it replaces.
  Numbers run(Execution& execution, int64_t begin, int64_t end, Numbers& state) const {
    Numbers y((end - begin) * shape.value_width());
    Numbers next = empty();
    const StatePart part = {end - begin, state.empty() ? nullptr : state.data(), next.data()};
    gated_delta_net(
        execution, y, std::span(qkvz).subspan(begin * row(), (end - begin) * row()),
        std::span(ba).subspan(begin * 2 * shape.value_heads, (end - begin) * 2 * shape.value_heads),
        {&part, 1}, shape, weights());
    state = next;
    return y;
  }
};

class DeltaNets : public subbyte::testing::IsaTest {
 protected:
  static std::unique_ptr<Execution> make(cpu::Precision precision, bool batch_invariant) {
    auto made = Execution::create({.num_threads = 2,
                                   .isa = GetParam(),
                                   .precision = precision,
                                   .batch_invariant = batch_invariant});
    EXPECT_TRUE(made.ok());
    return std::move(*made);
  }

  /// All tokens of every shape in one step.
  static void expect_the_definition(Execution& execution, int64_t tokens) {
    for (const DeltaNetShape& shape : testing::delta_net_shapes()) {
      const Problem problem(shape, tokens, 1);
      Numbers state;
      const Numbers found = problem.run(execution, 0, problem.tokens, state);
      const std::vector<double> expected = problem.expected();
      double squares = 0;
      double largest = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        const double difference = std::abs(found[i] - expected[i]);
        largest = difference <= largest ? largest : difference;  // NaN becomes the largest
        squares += expected[i] * expected[i];
      }
      const double rms = std::sqrt(squares / double(found.size()));
      EXPECT_LE(largest, testing::delta_net_tolerance(rms))
          << tokens << " tokens, heads of " << shape.key_size << " " << shape.by_key_head;
      EXPECT_GT(rms, 0.1);
    }
  }

  /// Several sequences in one step have the bits of each alone.
  static void expect_sequences_as_alone(const DeltaNetShape& shape) {
    const Problem problem(shape, 130, 3);  // of which each sequence has some tokens
    const int64_t lengths[] = {1, 2, 17, 40, 70};
    Numbers old_state;
    problem.run(execution(1), 0, 9, old_state);
    std::vector<Numbers> states;
    std::vector<StatePart> parts;
    for (const int64_t length : lengths) {
      states.push_back(problem.empty());
      parts.push_back({length, length == 17 ? old_state.data() : nullptr, states.back().data()});
    }
    Numbers together(problem.tokens * shape.value_width());
    gated_delta_net(execution(2), together, problem.qkvz, problem.ba, parts, shape,
                    problem.weights());
    int64_t at = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Numbers state = parts[i].from == nullptr ? Numbers() : old_state;
      const Numbers alone = problem.run(execution(1), at, at + lengths[i], state);
      const auto of_part = std::span(together).subspan(at * shape.value_width(), alone.size());
      EXPECT_TRUE(std::ranges::equal(of_part, alone)) << lengths[i];
      EXPECT_EQ(states[i], state) << lengths[i];
      at += lengths[i];
    }
  }
};

TEST_P(DeltaNets, are_those_of_the_definition) {
  expect_the_definition(*make(cpu::Precision::kF32, true), 150);
}

// Prompts that end with a few tokens of a chunk, with most of one, and with a whole one.
TEST_P(DeltaNets, in_chunks_are_those_of_the_definition) {
  const auto execution = make(cpu::Precision::kF32, false);
  for (const int64_t tokens : {40, 110, 128, 150}) {
    expect_the_definition(*execution, tokens);
  }
  EXPECT_EQ(execution->kernels().vectors->delta_chunks.run != nullptr, GetParam() != "scalar");
}

TEST_P(DeltaNets, of_rounded_activations_are_those_of_the_definition) {
  for (const cpu::Precision precision : {cpu::Precision::kBF16, cpu::Precision::kInt8}) {
    expect_the_definition(*make(precision, false), 150);
  }
}

TEST_P(DeltaNets, of_a_state_go_on_in_chunks) {
  const auto chunks = make(cpu::Precision::kF32, false);
  const auto invariant = make(cpu::Precision::kF32, true);
  const Problem problem({1, 2, 128, 128, 4, 1e-6f, false}, 200, 5);
  Numbers whole_state, state;
  const Numbers whole = problem.run(*invariant, 0, problem.tokens, whole_state);
  Numbers found = problem.run(*chunks, 0, 75, state);
  const Numbers rest = problem.run(*chunks, 75, problem.tokens, state);
  found.insert(found.end(), rest.begin(), rest.end());
  double squares = 0;
  double largest = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    squares += double{whole[i]} * whole[i];
    largest = std::max(largest, std::abs(double{found[i]} - whole[i]));
  }
  // Both are off by as much as the definition allows.
  EXPECT_LE(largest, 2 * testing::delta_net_tolerance(std::sqrt(squares / double(whole.size()))));
}

TEST_P(DeltaNets, have_the_same_bits_however_they_are_cut) {
  const auto execution = make(cpu::Precision::kF32, true);
  for (const DeltaNetShape& shape : testing::delta_net_shapes()) {
    const Problem problem(shape, 40, 2);
    Numbers whole_state;
    const Numbers whole = problem.run(*execution, 0, problem.tokens, whole_state);
    for (const int64_t piece : {1, 2, 3, 5, 39}) {
      Numbers state;
      Numbers found;
      for (int64_t at = 0; at < problem.tokens; at += piece) {
        const int64_t end = std::min(at + piece, problem.tokens);
        const Numbers y = problem.run(*execution, at, end, state);
        found.insert(found.end(), y.begin(), y.end());
      }
      EXPECT_EQ(found, whole) << piece;
      EXPECT_EQ(state, whole_state) << piece;
    }
  }
}

TEST_P(DeltaNets, of_several_sequences_are_those_of_each_alone) {
  for (const DeltaNetShape& shape : {DeltaNetShape{2, 6, 19, 37, 4, 1e-6f, true},
                                     DeltaNetShape{2, 4, 128, 128, 4, 1e-6f, true}}) {
    expect_sequences_as_alone(shape);
  }
}

SUBBYTE_FOR_EVERY_ISA(DeltaNets);

}  // namespace
}  // namespace subbyte
