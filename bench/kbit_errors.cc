// The error bound of kbit (docs/kbit.md), held against many weights of each width: blocks whose
// largest magnitudes are spread over all exponents of E4M4's range, with scales in E4M4, F16 and
// F32; and the signal to noise of as many normal weights. Prints a table; exits with 1 where a
// weight is beyond the bound.
//
//   kbit_errors [WEIGHTS]    10 million of each width

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "matrix/codebook.h"
#include "matrix/dequantize.h"
#include "quantize/kbit.h"

namespace subbyte {
namespace {

constexpr int64_t kCols = 4096;

struct ScaleError {
  Format format;
  double error;
};
constexpr ScaleError kScales[] = {
    {Format::kE4M4, 1.0 / 32}, {Format::kF16, 0x1p-11}, {Format::kF32, 0}};

double half_gap(int bits) {
  const std::vector<float> values = default_codebook(kbit_element(bits));
  double widest = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    widest = std::max(widest, double{values[i]} - values[i - 1]);
  }
  return widest / 2;
}

std::vector<float> uniform_blocks(int64_t count, Random& random) {
  std::vector<float> weights(count);
  for (int64_t first = 0; first < count; first += kKbitBlock) {
    const double largest = 0x1p-10 * std::exp2(random.uniform() * std::log2(31 * 0x1p10));
    for (int64_t i = 0; i < kKbitBlock; ++i) {
      weights[first + i] = static_cast<float>(largest * (2 * random.uniform() - 1));
    }
    weights[first + static_cast<int64_t>(random.below(kKbitBlock))] = static_cast<float>(largest);
  }
  return weights;
}

std::vector<float> normal_weights(int64_t count, Random& random) {
  std::vector<float> weights(count);
  for (float& weight : weights) weight = static_cast<float>(random.normal());
  return weights;
}

struct Errors {
  double worst = 0;  // of an error, in parts of the bound of its block
  double signal = 0;
  double noise = 0;

  double db() const { return 10 * std::log10(signal / noise); }
};

Errors errors_of(const std::vector<float>& weights, int bits, const ScaleError& scale,
                 ThreadPool& pool) {
  const auto read_row = [&](int64_t row, float* out) {
    std::copy_n(weights.data() + row * kCols, kCols, out);
  };
  KbitOptions options;
  options.bits = bits;
  options.scales.format = scale.format;
  const int64_t rows = std::ssize(weights) / kCols;
  const auto matrix = quantize_kbit(rows, kCols, options, read_row, pool);
  const Dequantizer dequantizer(matrix->view);
  const double relative = half_gap(bits) + scale.error + 1e-6;
  Errors errors;
  std::vector<double> row(kCols);
  for (int64_t n = 0; n < rows; ++n) {
    dequantizer.row(n, row.data());
    const float* const from = weights.data() + n * kCols;
    for (int64_t first = 0; first < kCols; first += kKbitBlock) {
      double largest = 0;
      double worst = 0;
      for (int64_t k = first; k < first + kKbitBlock; ++k) {
        const double error = std::fabs(row[k] - from[k]);
        largest = std::max(largest, std::fabs(double{from[k]}));
        worst = std::max(worst, error);
        errors.signal += double{from[k]} * from[k];
        errors.noise += error * error;
      }
      if (largest > 0) errors.worst = std::max(errors.worst, worst / (relative * largest));
    }
  }
  return errors;
}

int run(int64_t count) {
  ThreadPool pool(0);
  bool holds = true;
  fmt::print("| bits | scales | worst error / bound | dB, normal weights |\n|---|---|---|---|\n");
  for (int bits = 2; bits <= 5; ++bits) {
    Random random(static_cast<uint64_t>(bits));
    const std::vector<float> spread = uniform_blocks(count, random);
    const std::vector<float> normal = normal_weights(count, random);
    for (const ScaleError& scale : kScales) {
      const Errors bounded = errors_of(spread, bits, scale, pool);
      holds = holds && bounded.worst <= 1;
      fmt::print("| {} | {} | {:.4f} | {:.2f} |\n", bits, info(scale.format).name, bounded.worst,
                 errors_of(normal, bits, scale, pool).db());
    }
  }
  return holds ? 0 : 1;
}

}  // namespace
}  // namespace subbyte

int main(int argc, char** argv) {
  const int64_t wanted = argc > 1 ? std::atoll(argv[1]) : 10'000'000;
  return subbyte::run((std::max<int64_t>(wanted, 1) + 4095) / 4096 * 4096);
}
