#pragma once
// Gated delta nets in double precision, number by number as ops/delta_net.h defines them, for tests
// of every machine.

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "ops/delta_net.h"

namespace subbyte::testing {

/// Projections of some tokens, and weights; some heads forget at once, some nearly nothing.
struct DeltaNetProblem {
  DeltaNetProblem(DeltaNetShape of, int64_t count, uint64_t seed)
      : shape(of), tokens(count), random(seed) {
    qkvz = normal(tokens * row(), 1);
    ba = normal(tokens * 2 * shape.value_heads, 1);
    filters = normal(shape.taps * shape.channels(), 0.5);
    dt_bias = normal(shape.value_heads, 1);
    for (int64_t h = 0; h < shape.value_heads; ++h) {
      rates.push_back(-static_cast<float>(std::exp(2 - 3 * h)));
    }
    norm = normal(shape.value_size, 0.2);
    for (float& number : norm) number += 1;
  }

  int64_t row() const { return shape.channels() + shape.value_width(); }

  /// Sums of four numbers, which are near enough to a normal distribution.
  std::vector<float> normal(int64_t count, double deviation) {
    std::vector<float> numbers;
    for (int64_t i = 0; i < count; ++i) {
      double sum = -2;
      for (int k = 0; k < 4; ++k) sum += random.uniform();
      numbers.push_back(static_cast<float>(sum * deviation * std::sqrt(3.0)));
    }
    return numbers;
  }

  double projected(int64_t t, char kind, int64_t head, int64_t i) const;
  /// y [tokens][value_heads * value_size] of one sequence.
  std::vector<double> expected() const;

  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  DeltaNetShape shape;
  int64_t tokens;
  Random random;
  std::vector<float> qkvz, ba, filters, rates, dt_bias, norm;
};

/// Number i of a head of queries, keys, values or gates, with the columns of both layouts written
/// out.
inline double DeltaNetProblem::projected(int64_t t, char kind, int64_t head, int64_t i) const {
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
inline std::vector<double> DeltaNetProblem::expected() const {
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
      const double decay = std::exp(double{rates[h]} * std::log1p(std::exp(dt)));
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
        const int64_t place = shape.gives_tiles ? h % r * hk + h / r : h;
        y[(t * hv + place) * dv + j] = out[j] / rms * norm[j] * z * sigmoid(z);
      }
    }
  }
  return y;
}

/// Sizes of published models, and some that are no multiples of a vector: as many value heads as
/// key heads, twice and three times as many.
inline std::vector<DeltaNetShape> delta_net_shapes() {
  std::vector<DeltaNetShape> all;
  for (const bool by_key_head : {false, true}) {
    all.push_back({1, 2, 128, 128, 4, 1e-6f, by_key_head});
    all.push_back({2, 6, 19, 37, 4, 1e-6f, by_key_head});
    all.push_back({3, 3, 8, 5, 2, 1e-5f, by_key_head});
    all.push_back({2, 4, 16, 48, 1, 1e-6f, by_key_head});
    all.push_back({2, 6, 19, 37, 4, 1e-6f, by_key_head, true});
  }
  return all;
}

/// How far a result in float32 may be from expected(), whose root mean square is `rms`. A token
/// rounds some 2 key_size times by u of the state, and what is forgotten takes its errors along: a
/// hundred u of the root mean square, with the largest of thousands 4 times it.
constexpr double delta_net_tolerance(double rms) {
  return 400 * 0x1p-24 * rms;
}

}  // namespace subbyte::testing
