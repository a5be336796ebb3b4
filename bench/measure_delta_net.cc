#include "bench/measure_delta_net.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "bench/rotating_weights.h"
#include "bench/timing.h"
#include "cpu_backend/delta_net.h"
#include "kernels/cpu/linear.h"

namespace subbyte::bench {
namespace {

struct Layer {
  std::string_view name;
  int64_t hidden, inner, value_heads;
};

constexpr Layer kLayers[] = {{"0.8b", 1024, 3584, 16}, {"4b", 2560, 9216, 32}};

struct Weights {
  std::string_view name;
  WeightFormat format;
};

constexpr Weights kWeights[] = {
    {"int4", {Format::kU4, Format::kF16, Zero::kU8, 128}},
    {"fp8", {Format::kE4M3, Format::kF32, Zero::kNone, 128}},
    {"bf16", {Format::kBF16, Format::kNone, Zero::kNone, 0}},
};

std::vector<float> random_numbers(int64_t count) {
  Random random(count);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = static_cast<float>(random.normal());
  return numbers;
}

/// Seconds of the convolution, norms, gates and recurrence of a layer.
double time_delta_net(Execution& execution, const Layer& layer, int64_t tokens, int rounds) {
  const DeltaNetShape shape = {16, layer.value_heads, 128, 128, 4};
  const std::vector<float> qkvz = random_numbers(tokens * (shape.channels() + shape.value_width()));
  const std::vector<float> ba = random_numbers(tokens * 2 * shape.value_heads);
  const std::vector<float> filters = random_numbers(shape.taps * shape.channels());
  const std::vector<float> gates(shape.value_heads, 0.5f), norm(shape.value_size, 1.0f);
  const std::vector<float> from(shape.state_size(), 0.1f);
  std::vector<float> to(shape.state_size()), y(tokens * shape.value_width());
  const StatePart part = {tokens, from.data(), to.data()};
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const double start = now();
    gated_delta_net(execution, y, qkvz, ba, {&part, 1}, shape, {filters, gates, gates, norm});
    times.push_back(now() - start);
  }
  return median(times);
}

/// Seconds of the products of a layer: projections, the results of heads, gate and up, down.
Result<double> time_products(Execution& execution, const Layer& layer, const WeightFormat& format,
                             int64_t tokens, int rounds) {
  const int64_t values = layer.value_heads * 128;
  struct Shape {
    int64_t rows, cols;
  };
  double all = 0;
  for (const Shape& shape :
       {Shape{2 * 16 * 128 + 2 * values, layer.hidden}, Shape{layer.hidden, values},
        Shape{2 * layer.inner, layer.hidden}, Shape{layer.hidden, layer.inner}}) {
    RotatingWeights weights(format, shape.rows, shape.cols, std::size_t{256} << 20);
    const std::vector<float> x = random_numbers(tokens * shape.cols);
    std::vector<float> y(tokens * shape.rows);
    SUBBYTE_CHECK(linear(execution, y, x, tokens, weights.next()));
    std::vector<double> times;
    for (int i = 0; i < rounds; ++i) {
      const double start = now();
      SUBBYTE_CHECK(linear(execution, y, x, tokens, weights.next()));
      times.push_back(now() - start);
    }
    all += median(times);
  }
  return all;
}

}  // namespace

Status measure_delta_nets(const ExecutionOptions& options, const DeltaNetRun& run) {
  SUBBYTE_TRY(const auto execution, Execution::create(options));
  ExecutionOptions invariant = options;
  invariant.batch_invariant = true;
  SUBBYTE_TRY(const auto one_by_one, Execution::create(invariant));
  fmt::print(
      "a layer with a gated delta net, us: its recurrence, with convolution, norms and gates, "
      "token "
      "by token as in batch-invariant mode, and as it is, which the share is of\n");
  fmt::print("{:<6} {:>7} {:>6} {:>12} {:>12} {:>12} {:>8}\n", "shape", "weights", "tokens",
             "one by one", "as it is", "products", "share");
  for (const Layer& layer : kLayers) {
    for (const int64_t tokens : {int64_t{1}, run.tokens}) {
      const double recurrence = time_delta_net(*one_by_one, layer, tokens, run.rounds);
      const double net = time_delta_net(*execution, layer, tokens, run.rounds);
      for (const Weights& weights : kWeights) {
        SUBBYTE_TRY(const double products,
                    time_products(*execution, layer, weights.format, tokens, run.rounds));
        fmt::print("{:<6} {:>7} {:>6} {:>12.1f} {:>12.1f} {:>12.1f} {:>6.0f} %\n", layer.name,
                   weights.name, tokens, 1e6 * recurrence, 1e6 * net, 1e6 * products,
                   100 * net / (net + products));
        std::fflush(stdout);
      }
    }
  }
  return {};
}

}  // namespace subbyte::bench
