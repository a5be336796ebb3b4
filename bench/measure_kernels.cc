#include "bench/measure_kernels.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "base/random.h"
#include "bench/rotating_weights.h"
#include "bench/timing.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/read_bandwidth.h"

namespace subbyte::bench {
namespace {

constexpr std::size_t kRotation = std::size_t{1} << 30;
constexpr int kCalls = 24;  // products of one sample

struct Subject {
  std::string_view name;
  WeightFormat format;
  bool own_codebook = false;
};

/// What the issue trackers ask about, one line each.
std::vector<Subject> subjects() {
  using enum Format;
  return {
      {"INT4 g128", {kU4, kF16, Zero::kU8, 128}},   {"INT4 g32", {kU4, kF16, Zero::kU8, 32}},
      {"INT4 per row", {kU4, kF16, Zero::kU8, 0}},  {"INT3 g128", {kU3, kF16, Zero::kU8, 128}},
      {"INT2 g128", {kU2, kF16, Zero::kU8, 128}},   {"INT5 g128", {kU5, kF16, Zero::kU8, 128}},
      {"INT6 g128", {kU6, kF16, Zero::kU8, 128}},   {"INT7 g128", {kU7, kF16, Zero::kU8, 128}},
      {"INT8 g128", {kU8, kF16, Zero::kU16, 128}},  {"bf16", {kBF16, kNone, Zero::kNone, 0}},
      {"MXFP4", {kE2M1, kE8M0, Zero::kNone, 32}},   {"NVFP4", {kE2M1, kE4M3, Zero::kNone, 16}},
      {"NF4 g64", {kNF4, kF32, Zero::kNone, 64}},   {"kbit 2", {kNFL2, kE4M4, Zero::kNone, 32}},
      {"kbit 3", {kNFL3, kE4M4, Zero::kNone, 32}},  {"kbit 4", {kNFL4, kE4M4, Zero::kNone, 32}},
      {"kbit 5", {kNFL5, kE4M4, Zero::kNone, 32}},  {"vq2", {kVQ2, kE4M4, Zero::kNone, 32, 256}},
      {"vq4", {kVQ4, kE4M4, Zero::kNone, 32, 256}},
  };
}

std::vector<float> random_inputs(int64_t count) {
  Random random(7);
  std::vector<float> x(count);
  for (float& value : x) value = static_cast<float>(random.normal());
  return x;
}

/// Seconds for one product of M = m rows, mean over `calls` copies of the weights.
double time_products(Execution& execution, RotatingWeights& weights, int64_t m, int calls,
                     const std::vector<float>& x, std::vector<float>& y) {
  const double start = now();
  for (int i = 0; i < calls; ++i) {
    const MatrixView& view = weights.next();
    const Status status = linear(execution, {y.data(), static_cast<std::size_t>(m * view.rows)},
                                 {x.data(), static_cast<std::size_t>(m * view.cols)}, m, view);
    if (!status.ok()) return NAN;  // check_linear() has refused it before
  }
  return (now() - start) / calls;
}

double measure_bandwidth(Execution& execution, std::span<const std::byte> memory) {
  return cpu::measure_read_bandwidth(memory, execution.pool(), 1).bytes_per_second;
}

}  // namespace

Status measure_decode_kernels(Execution& execution, const KernelRun& run) {
  const std::vector<int64_t> batch = {1, 2, 4, 8, 16};
  const int64_t rows = run.rows, cols = run.cols;
  const std::vector<float> x = random_inputs(16 * cols);
  std::vector<float> y(16 * rows);
  const auto buffer = allocate_bytes(kRotation);
  std::memset(buffer.get(), 1, kRotation);
  fmt::print("decode kernels, {} x {}, weights rotated over 1 GiB, medians of {}\n", rows, cols,
             run.rounds);
  fmt::print("{:<14} {:>6} {:>8} {:>8} {:>8} {:>7} {:>8} {:>8} {:>8} {:>8}\n", "format", "bits",
             "B GB/s", "us M=1", "GB/s", "% of B", "t2/t1", "t4/t1", "t8/t1", "t16/t1");
  for (const Subject& subject : subjects()) {
    if (!run.only.empty() && subject.name.find(run.only) == std::string_view::npos) continue;
    RotatingWeights weights(subject.format, rows, cols, kRotation, subject.own_codebook);
    SUBBYTE_CHECK(check_linear(execution, weights.next()));
    std::vector<double> bandwidth;
    std::map<int64_t, std::vector<double>> seconds;
    for (int round = 0; round < run.rounds; ++round) {
      bandwidth.push_back(measure_bandwidth(execution, {buffer.get(), kRotation}));
      for (const int64_t m : batch) {
        seconds[m].push_back(time_products(execution, weights, m, kCalls, x, y));
      }
    }
    const double one = median(seconds[1]);
    const double rate = static_cast<double>(weights.bytes()) / one;
    const double b = median(bandwidth);
    fmt::print("{:<14} {:>6.3f} {:>8.1f} {:>8.1f} {:>8.1f} {:>7.0f}", subject.name,
               bits_per_weight(subject.format, cols), b / 1e9, 1e6 * one, rate / 1e9,
               100 * rate / b);
    for (const int64_t m : {2, 4, 8, 16}) fmt::print(" {:>8.2f}", median(seconds[m]) / one);
    fmt::print("\n");
    std::fflush(stdout);
  }
  return {};
}

Status measure_prefill_kernels(Execution& execution, const KernelRun& run) {
  constexpr int64_t kTokens = 512;
  const std::vector<float> x = random_inputs(kTokens * run.cols);
  std::vector<float> y(kTokens * run.rows);
  fmt::print("\nprefill kernels, M = {}, {} x {}, medians of {}; peak: {}\n", kTokens, run.rows,
             run.cols, run.rounds, run.peak_name);
  fmt::print("{:<14} {:>10} {:>10} {:>10}\n", "format", "ms", "GFLOP/s", "% of peak");
  for (const Subject& subject : subjects()) {
    if (!run.only.empty() && subject.name.find(run.only) == std::string_view::npos) continue;
    RotatingWeights weights(subject.format, run.rows, run.cols, 0, subject.own_codebook);
    SUBBYTE_CHECK(check_linear(execution, weights.next()));
    std::vector<double> seconds;
    seconds.reserve(static_cast<std::size_t>(run.rounds));
    for (int round = 0; round < run.rounds; ++round) {
      seconds.push_back(time_products(execution, weights, kTokens, 1, x, y));
    }
    const double flop = 2.0 * kTokens * static_cast<double>(run.rows * run.cols);
    const double time = median(seconds);
    fmt::print("{:<14} {:>10.1f} {:>10.0f} {:>10.0f}\n", subject.name, 1e3 * time,
               flop / time / 1e9, 100 * flop / time / run.peak);
    std::fflush(stdout);
  }
  return {};
}

Status measure_odd_shapes(Execution& execution, const KernelRun& run) {
  constexpr int kShapes = 50;
  constexpr std::size_t kBytes = std::size_t{160} << 20;
  const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, 32};
  Random random(50);
  std::vector<double> ratios;
  std::string worst;
  for (int i = 0; i < kShapes; ++i) {
    const int64_t rows = 1000 + 2 * static_cast<int64_t>(random.below(2000)) + 1;
    const int64_t cols = 32 * (2 * static_cast<int64_t>(random.below(60)) + 33);
    RotatingWeights odd(format, rows, cols, kBytes);
    RotatingWeights even(format, rows / 64 * 64, cols / 128 * 128, kBytes);
    const std::vector<float> x = random_inputs(cols);
    std::vector<float> y(rows);
    std::vector<double> samples;
    // One product of each in turn, so that what else the machine does meets both.
    for (int round = 0; round < 8 * run.rounds; ++round) {
      const double a = time_products(execution, odd, 1, 1, x, y);
      const double b = time_products(execution, even, 1, 1, x, y);
      samples.push_back(static_cast<double>(odd.bytes()) / a /
                        (static_cast<double>(even.bytes()) / b));
    }
    const double ratio = median(samples);
    if (ratios.empty() || ratio < *std::ranges::min_element(ratios)) {
      worst = fmt::format("{} x {}", rows, cols);
    }
    ratios.push_back(ratio);
  }
  const auto within = std::ranges::count_if(ratios, [](double r) { return r >= 0.9; });
  fmt::print(
      "\n{} odd shapes against their aligned neighbours, bytes per second: median {:.3f}, worst "
      "{:.3f} ({}), {} of {} at least 0.9\n",
      kShapes, median(ratios), *std::ranges::min_element(ratios), worst, within, kShapes);
  return {};
}

Status measure_batch_invariance(ExecutionOptions options, const KernelRun& run) {
  SUBBYTE_TRY(const auto normal, Execution::create(options));
  options.batch_invariant = true;
  SUBBYTE_TRY(const auto invariant, Execution::create(options));
  const std::vector<float> x = random_inputs(512 * run.cols);
  std::vector<float> y(512 * run.rows);
  fmt::print("\nbatch-invariant mode, INT4 g128: time over that of the usual mode\n");
  for (const int64_t m : {1, 2, 4, 8, 16, 64, 512}) {
    RotatingWeights weights({Format::kU4, Format::kF16, Zero::kU8, 128}, run.rows, run.cols,
                            std::size_t{256} << 20);
    std::vector<double> ratios;
    const int calls = m > 16 ? 1 : 8;
    for (int round = 0; round < run.rounds; ++round) {
      const double a = time_products(*invariant, weights, m, calls, x, y);
      const double b = time_products(*normal, weights, m, calls, x, y);
      ratios.push_back(a / b);
    }
    fmt::print("  M = {:<4} {:.2f}\n", m, median(ratios));
  }
  fmt::print("\n");
  return {};
}

}  // namespace subbyte::bench
