// Gated delta nets against the definition in double precision, and cut in every way: the bits of a
// token do not depend on the step that it is in.

#include "cpu_backend/delta_net.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "support/isa_test.h"

namespace subbyte {
namespace {

using Numbers = std::vector<float>;

/// Projections of some tokens, and weights; some heads forget at once, some nearly nothing.
struct Problem {
  Problem(DeltaNetShape of, int64_t count, uint64_t seed) : shape(of), tokens(count), random(seed) {
    qkvz = normal(tokens * row(), 1);
    ba = normal(tokens * 2 * shape.value_heads, 1);
    filters = normal(shape.taps * shape.channels(), 0.5);
    dt_bias = normal(shape.value_heads, 1);
    for (int64_t h = 0; h < shape.value_heads; ++h) a_log.push_back(static_cast<float>(2 - 3 * h));
    norm = normal(shape.value_size, 0.2);
    for (float& number : norm) number += 1;
  }

  int64_t row() const { return shape.channels() + shape.value_width(); }
  DeltaNetNumbers weights() const { return {filters, a_log, dt_bias, norm}; }
  Numbers empty() const { return Numbers(shape.state_size(), NAN); }

  /// Sums of four numbers, which are near enough to a normal distribution.
  Numbers normal(int64_t count, double deviation) {
    Numbers numbers;
    for (int64_t i = 0; i < count; ++i) {
      double sum = -2;
      for (int k = 0; k < 4; ++k) sum += random.uniform();
      numbers.push_back(static_cast<float>(sum * deviation * std::sqrt(3.0)));
    }
    return numbers;
  }

  /// One step with tokens [begin, end) from a state, which it replaces.
  Numbers run(Execution& execution, int64_t begin, int64_t end, Numbers& state) const {
    Numbers y((end - begin) * shape.value_width());
    Numbers next = empty();
    const DeltaNetPart part = {end - begin, state.empty() ? nullptr : state.data(), next.data()};
    gated_delta_net(
        execution, y, std::span(qkvz).subspan(begin * row(), (end - begin) * row()),
        std::span(ba).subspan(begin * 2 * shape.value_heads, (end - begin) * 2 * shape.value_heads),
        {&part, 1}, shape, weights());
    state = next;
    return y;
  }

  double projected(int64_t t, char kind, int64_t head, int64_t i) const;
  std::vector<double> expected() const;

  DeltaNetShape shape;
  int64_t tokens;
  Random random;
  Numbers qkvz, ba, filters, a_log, dt_bias, norm;
};

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

/// Number i of a head of queries, keys, values or gates, with the columns of both layouts written
/// out.
double Problem::projected(int64_t t, char kind, int64_t head, int64_t i) const {
  const int64_t dk = shape.key_size, dv = shape.value_size, hk = shape.key_heads;
  const int64_t hv = shape.value_heads, r = hv / hk;
  if (t < 0) return 0;
  const float* const x = qkvz.data() + t * row();
  const float* const gates = ba.data() + t * 2 * hv;
  const int64_t group = head / r, member = head % r;
  if (shape.by_key_head) {
    const float* const of_q = x + head * (2 * dk + 2 * r * dv);
    const float* const of_v = x + group * (2 * dk + 2 * r * dv);
    if (kind == 'q') return of_q[i];
    if (kind == 'k') return of_q[dk + i];
    if (kind == 'v') return of_v[2 * dk + member * dv + i];
    if (kind == 'z') return of_v[2 * dk + r * dv + member * dv + i];
    return gates[group * 2 * r + (kind == 'a' ? r : 0) + member];
  }
  if (kind == 'q') return x[head * dk + i];
  if (kind == 'k') return x[hk * dk + head * dk + i];
  if (kind == 'v') return x[2 * hk * dk + head * dv + i];
  if (kind == 'z') return x[2 * hk * dk + hv * dv + head * dv + i];
  return gates[(kind == 'a' ? hv : 0) + head];
}

/// Token by token and number by number.
std::vector<double> Problem::expected() const {
  const int64_t dk = shape.key_size, dv = shape.value_size, hk = shape.key_heads;
  const int64_t hv = shape.value_heads, r = hv / hk;
  const auto convolved = [&](int64_t t, char kind, int64_t head, int64_t size, int64_t first) {
    std::vector<double> y;
    for (int64_t i = 0; i < size; ++i) {
      double sum = 0;
      for (int64_t tap = 0; tap < shape.taps; ++tap) {
        sum += double{filters[tap * shape.channels() + first + head * size + i]} *
               projected(t - shape.taps + 1 + tap, kind, head, i);
      }
      y.push_back(sum * sigmoid(sum));
    }
    return y;
  };
  const auto unit = [](std::vector<double> x, double factor) {
    double sum = 1e-6;
    for (const double v : x) sum += v * v;
    for (double& v : x) v *= factor / std::sqrt(sum);
    return x;
  };
  std::vector<double> y(tokens * hv * dv);
  for (int64_t h = 0; h < hv; ++h) {
    std::vector<double> s(dk * dv);
    for (int64_t t = 0; t < tokens; ++t) {
      const auto q = unit(convolved(t, 'q', h / r, dk, 0), 1 / std::sqrt(double(dk)));
      const auto k = unit(convolved(t, 'k', h / r, dk, hk * dk), 1);
      const auto v = convolved(t, 'v', h, dv, 2 * hk * dk);
      const double dt = projected(t, 'a', h, 0) + dt_bias[h];
      const double decay = std::exp(-std::exp(double{a_log[h]}) * std::log1p(std::exp(dt)));
      const double beta = sigmoid(projected(t, 'b', h, 0));
      std::vector<double> out(dv);
      double squares = 0;
      for (int64_t j = 0; j < dv; ++j) {
        double read = 0;
        for (int64_t i = 0; i < dk; ++i) read += k[i] * (s[i * dv + j] *= decay);
        for (int64_t i = 0; i < dk; ++i) {
          s[i * dv + j] += k[i] * beta * (v[j] - read);
          out[j] += q[i] * s[i * dv + j];
        }
        squares += out[j] * out[j];
      }
      const double rms = std::sqrt(squares / double(dv) + shape.eps);
      for (int64_t j = 0; j < dv; ++j) {
        const double z = projected(t, 'z', h, j);
        y[(t * hv + h) * dv + j] = out[j] / rms * norm[j] * z * sigmoid(z);
      }
    }
  }
  return y;
}

class DeltaNets : public subbyte::testing::IsaTest {};

/// Sizes of published models, and some that are no multiples of a vector.
std::vector<DeltaNetShape> shapes() {
  std::vector<DeltaNetShape> all;
  for (const bool by_key_head : {false, true}) {
    all.push_back({1, 2, 128, 128, 4, 1e-6f, by_key_head});
    all.push_back({2, 6, 19, 37, 4, 1e-6f, by_key_head});
    all.push_back({3, 3, 8, 5, 2, 1e-5f, by_key_head});
    all.push_back({2, 4, 16, 48, 1, 1e-6f, by_key_head});
  }
  return all;
}

TEST_P(DeltaNets, are_those_of_the_definition) {
  for (const DeltaNetShape& shape : shapes()) {
    const Problem problem(shape, 150, 1);
    Numbers state;
    const Numbers found = problem.run(execution(2), 0, problem.tokens, state);
    const std::vector<double> expected = problem.expected();
    double squares = 0;
    double largest = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double difference = std::abs(found[i] - expected[i]);
      largest = difference <= largest ? largest : difference;  // NaN becomes the largest
      squares += expected[i] * expected[i];
    }
    // A token rounds some 2 key_size times by u of the state, and what is forgotten takes its
    // errors along: a hundred u of the root mean square, with the largest of thousands 4 times it.
    const double rms = std::sqrt(squares / double(found.size()));
    EXPECT_LE(largest, 400 * 0x1p-24 * rms) << shape.key_size << " " << shape.by_key_head;
    EXPECT_GT(rms, 0.1);
  }
}

TEST_P(DeltaNets, have_the_same_bits_however_they_are_cut) {
  for (const DeltaNetShape& shape : shapes()) {
    const Problem problem(shape, 40, 2);
    Numbers whole_state;
    const Numbers whole = problem.run(execution(1), 0, problem.tokens, whole_state);
    for (const int64_t piece : {1, 2, 3, 5, 39}) {
      Numbers state;
      Numbers found;
      for (int64_t at = 0; at < problem.tokens; at += piece) {
        const int64_t end = std::min(at + piece, problem.tokens);
        const Numbers y = problem.run(execution(2), at, end, state);
        found.insert(found.end(), y.begin(), y.end());
      }
      EXPECT_EQ(found, whole) << piece;
      EXPECT_EQ(state, whole_state) << piece;
    }
  }
}

TEST_P(DeltaNets, of_several_sequences_are_those_of_each_alone) {
  const DeltaNetShape shape = {2, 6, 19, 37, 4, 1e-6f, true};
  const Problem problem(shape, 60, 3);  // of which each sequence has some tokens
  const int64_t lengths[] = {1, 2, 17, 40};
  Numbers old_state;
  problem.run(execution(1), 0, 9, old_state);
  std::vector<Numbers> states;
  std::vector<DeltaNetPart> parts;
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

SUBBYTE_FOR_EVERY_ISA(DeltaNets);

}  // namespace
}  // namespace subbyte
