#pragma once
// The results of FlashInfer's group GEMM in double precision, from the bytes of its arguments, and
// how far others may be from them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "group_gemm/group_gemm.h"

namespace subbyte::testing {

/// [M][N] each, with A and W the magnitudes of numbers.
struct GroupGemmOracle {
  std::vector<double> sums;
  std::vector<double> magnitudes;  // sum A W
  std::vector<double> largest;     // the same were every activation the largest of its 128
};

namespace oracle {

/// By the pictures of the layout: atoms of 128 rows by 4 groups of 32 inputs.
inline int64_t scale_byte(int64_t row, int64_t group, int64_t k) {
  return (row / 128 * (k / 128) + group / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + group % 4;
}

inline double scale_of(std::byte code) {
  const int bits = std::to_integer<int>(code);
  return bits == 255 ? std::nan("") : std::ldexp(1.0, bits - 127);
}

/// The numbers that the codes of a format stand for.
inline std::vector<double> values_of(Format format) {
  std::vector<double> values(std::size_t{1} << info(format).bits);
  for (std::size_t code = 0; code < values.size(); ++code) {
    values[code] = info(format).decode(static_cast<uint32_t>(code));
  }
  return values;
}

inline std::vector<double> activations_of(const group_gemm::GroupGemm& g, int64_t group,
                                          int64_t m) {
  const int64_t first_row = (g.m_indptr[group] + 127 * group) / 128 * 128;
  const std::byte* const scales = g.a_scale.data() + first_row * (g.k / 32);
  const std::vector<double> values = values_of(g.a_dtype);
  std::vector<double> x(g.k);
  for (int64_t i = 0; i < g.k; ++i) {
    x[i] = values[std::to_integer<std::size_t>(g.a[m * g.k + i])];
    x[i] *= scale_of(scales[scale_byte(m - g.m_indptr[group], i / 32, g.k)]);
  }
  return x;
}

inline std::vector<double> weights_of(const group_gemm::GroupGemm& g, int64_t group, int64_t n) {
  const std::byte* const scales = g.b_scale.data() + group * ((g.n + 127) / 128 * 128) * (g.k / 32);
  const std::vector<double> values = values_of(Format::kE2M1);
  std::vector<double> w(g.k);
  for (int64_t block = 0; block < g.k / 32; ++block) {
    const double scale = scale_of(scales[scale_byte(n, block, g.k)]);
    for (int64_t i = 32 * block; i < 32 * (block + 1); ++i) {
      const auto byte = std::to_integer<uint32_t>(g.b[((group * g.n + n) * g.k + i) / 2]);
      w[i] = values[i % 2 == 0 ? byte & 15 : byte >> 4] * scale;
    }
  }
  return w;
}

}  // namespace oracle

/// The sum of a block is that of numbers of a few bits, so that double precision rounds nothing
/// but the addition of blocks whose scales are 2^40 apart.
inline GroupGemmOracle multiply_in_double(const group_gemm::GroupGemm& g) {
  const int64_t m = g.m_indptr.back();
  std::vector<std::vector<double>> x(m);
  GroupGemmOracle oracle;
  for (auto* sums : {&oracle.sums, &oracle.magnitudes, &oracle.largest}) sums->resize(m * g.n);
  for (int64_t group = 0; group + 1 < std::ssize(g.m_indptr); ++group) {
    const int64_t begin = g.m_indptr[group];
    const int64_t end = g.m_indptr[group + 1];
    for (int64_t row = begin; row < end; ++row) x[row] = oracle::activations_of(g, group, row);
    for (int64_t n = 0; n < (begin == end ? 0 : g.n); ++n) {
      const std::vector<double> w = oracle::weights_of(g, group, n);
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t block = 0; block < g.k; block += 128) {
          double sum = 0, magnitude = 0, largest = 0, weights = 0;
          for (int64_t i = block; i < block + 128; ++i) {
            sum += x[row][i] * w[i];
            magnitude += std::fabs(x[row][i] * w[i]);
            largest = std::max(largest, std::fabs(x[row][i]));
            weights += std::fabs(w[i]);
          }
          oracle.sums[row * g.n + n] += sum;
          oracle.magnitudes[row * g.n + n] += magnitude;
          oracle.largest[row * g.n + n] += largest * weights;
        }
      }
    }
  }
  return oracle;
}

/// Half a step of bf16 or f16 at y, the largest rounding to it.
inline double half_step(Format out, double y) {
  const bool is_bf16 = out == Format::kBF16;
  const int exponent = std::max(y == 0 ? -1000 : std::ilogb(y), is_bf16 ? -126 : -14);
  return std::ldexp(1.0, exponent - (is_bf16 ? 8 : 11));
}

/// How far the float32 sum of output i may be off (group_gemm/group_gemm.h).
inline double sum_bound(const GroupGemmOracle& oracle, int64_t i, int64_t k) {
  const auto inputs = static_cast<double>(k);
  return 1.01 * (inputs + inputs / 32 + 40) * 0x1p-24 * oracle.magnitudes[i] +
         0x1p-22 * oracle.largest[i];
}

/// True where `found` is a number of `out` that a sum within `bound` of `exact` rounds to.
inline bool rounds_to(Format out, double exact, double bound, double found) {
  if (std::isnan(exact)) return std::isnan(found);
  const double overflow = out == Format::kBF16 ? 0x1.FFp127 : 65520;
  const double magnitude = std::fabs(exact);
  if (std::isinf(found)) {
    return std::signbit(found) == std::signbit(exact) && magnitude + bound >= overflow;
  }
  return magnitude - bound < overflow &&
         std::fabs(found - exact) <= bound + half_step(out, magnitude + bound);
}

/// Output i of out as a number.
inline double output_of(const group_gemm::GroupGemm& g, std::span<const std::byte> out, int64_t i) {
  uint16_t code = 0;
  std::memcpy(&code, &out[i * 2], 2);
  return info(g.out_dtype).decode(code);
}

}  // namespace subbyte::testing
