// What quantizers take: a matrix of normal numbers in bf16 becomes each format of `quantize`.
//
//   quantize_time [FORMAT] [ROWS] [COLS] [THREADS]     all formats, 2048, 4096, all processors
//
// Prints GB of bf16 for each second of a processor, the median of five, and a checksum of codes and
// scales, which changes when a quantizer gives other bits.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "quantize/loss.h"
#include "quantize/quantize_rows.h"
#include "transform/format_hints.h"
#include "transform/matrix_rows.h"

namespace subbyte {
namespace {

constexpr int kRounds = 5;

struct Timed {
  std::vector<double> seconds;
  std::vector<double> check_seconds;  // of the comparison with the floats that follows
  uint64_t checksum = 0;

  static double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values.empty() ? NAN : values[values.size() / 2];
  }
};

/// Of all processors together, so that others who are at work do not count.
double now() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

uint64_t add(uint64_t sum, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) sum = (sum ^ static_cast<uint64_t>(byte)) * 0x100000001B3u;
  return sum;
}

Result<Timed> measure(const QuantizeFormat& format, const QuantizeForm& form,
                      const QuantizeInput& input, Executor& pool) {
  Timed timed;
  for (int round = 0; round < kRounds; ++round) {
    const double start = now();
    SUBBYTE_TRY(const Matrix matrix, format.quantize(input, form, pool));
    timed.seconds.push_back(now() - start);
    const double middle = now();
    const double noise = quantization_error(matrix.view, input.read_row, pool).noise;
    timed.check_seconds.push_back(now() - middle);
    timed.checksum = add(add(add(0xCBF29CE484222325u, matrix.view.codes), matrix.view.scales),
                         std::as_bytes(std::span(&noise, 1)));
  }
  return timed;
}

int run(const std::string& only, int64_t rows, int64_t cols, int threads) {
  ThreadPool pool(threads);
  std::vector<BFloat16> weights(static_cast<std::size_t>(rows * cols));
  Random random(1);
  for (BFloat16& weight : weights) weight = to_bfloat16(static_cast<float>(random.normal()));
  const RowReader read_row = [&](int64_t row, float* out) {
    const BFloat16* const from = weights.data() + row * cols;
    for (int64_t k = 0; k < cols; ++k) out[k] = to_float(from[k]);
  };
  const double largest = largest_magnitude(rows, cols, read_row, pool);
  const double gb = 2e-9 * static_cast<double>(rows * cols);
  fmt::print("{} x {}, {} threads\n{:<24} {:>4} {:>10} {:>12} {:>16}\n", rows, cols, pool.size(),
             "format", "bits", "GB/s", "error GB/s", "checksum");
  for (const QuantizeFormat* const each : quantize_formats()) {
    const QuantizeFormat& format = *each;
    if (!only.empty() && format.name != only) continue;
    for (const int bits : format.bits) {
      if (!format.series.empty() && bits != format.default_bits) continue;
      const QuantizeForm form = {bits, format.default_group, format.symmetry != Symmetry::kNever,
                                 Format::kNone};
      const auto timed = measure(format, form, {rows, cols, read_row, largest}, pool);
      if (!timed.ok()) {
        fmt::print(stderr, "quantize_time: {}\n", timed.error().message);
        return 1;
      }
      fmt::print("{:<24} {:>4} {:>10.3f} {:>12.3f} {:016x}\n", format.name, bits,
                 gb / Timed::median(timed->seconds), gb / Timed::median(timed->check_seconds),
                 timed->checksum);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace subbyte

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  const std::string only = argc > 1 && std::string(argv[1]) != "all" ? argv[1] : "";
  return subbyte::run(only, number(2, 2048), number(3, 4096), number(4, 0));
}
