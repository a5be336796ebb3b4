#include "bench/cuda/shapes_suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <thread>

#include "base/random.h"
#include "bench/cuda/contents.h"
#include "bench/cuda/device_times.h"
#include "bench/cuda/formats.h"
#include "bench/cuda/graph_timer.h"
#include "bench/cuda/marlin.h"

namespace subbyte::bench {
namespace {

constexpr int64_t kLeast = 512;
constexpr int64_t kMost = 32768;
constexpr int64_t kMostWeights = int64_t{1} << 28;
/// The first of them for all shapes, the others for every fourth.
const std::vector<std::string> kOfSuite = {"int4",  "mxfp4", "nvfp4", "fp8", "kbit2",
                                           "kbit3", "q4_k",  "q6_k",  "u5"};

int64_t draw(Random& random, int64_t grain) {
  const double octaves = std::log2(static_cast<double>(kMost) / kLeast);
  const double size = kLeast * std::exp2(octaves * random.uniform());
  return std::clamp(std::llround(size / static_cast<double>(grain)) * grain,
                    static_cast<long long>(kLeast), static_cast<long long>(kMost));
}

/// Ratios of the shapes, above 1 is better, by tokens.
class Summary {
 public:
  explicit Summary(std::string what) : what_(std::move(what)) {}
  void add(int64_t m, double ratio) {
    if (std::isfinite(ratio) && ratio > 0) ratios_[m].push_back(ratio);
  }
  void print() const {
    if (ratios_.empty()) return;
    fmt::print("\n{}\n\n| M | shapes | median | 5 % | worst |\n|---|---|---|---|---|\n", what_);
    for (const auto& [m, unsorted] : ratios_) {
      std::vector<double> ratios = unsorted;
      std::sort(ratios.begin(), ratios.end());
      fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.2f} |\n", m, ratios.size(),
                 ratios[ratios.size() / 2], ratios[ratios.size() / 20], ratios.front());
    }
  }

 private:
  std::string what_;
  std::map<int64_t, std::vector<double>> ratios_;
};

/// Of one format.
struct Summaries {
  Summary cublas;
  Summary marlin;
  Summary limit;
  Summary one_token;
  Summary best;

  explicit Summaries(const std::string& format)
      : cublas("time of cuBLAS in f16 / " + format),
        marlin("time of Marlin / " + format),
        limit("limit (bytes / B) / " + format),
        one_token("time of one token / " + format),
        best("best plan / plan taken of " + format) {}
  void print() const {
    for (const Summary* summary : {&cublas, &marlin, &limit, &one_token, &best}) summary->print();
  }
};

class ShapesBench {
 public:
  explicit ShapesBench(const ShapesSuite& suite)
      : suite_(suite), times_(suite.replays), device_(*cuda::query_device()) {
    std::string why = suite.no_cublas ? "" : times_.load_cublas();
    if (!why.empty()) fmt::print("cuBLAS: {}\n", why);
    if (suite.marlin.empty()) return;
    marlin_ = Marlin::load(suite.marlin, why);
    if (marlin_ == nullptr) fmt::print("Marlin: {}\n", why);
  }

  void run() {
    bandwidth_ = times_.read_bandwidth();
    fmt::print("seed {}, {} shapes, B = {:.0f} GB/s; us (cuBLAS / ours{})\n", suite_.seed,
               suite_.count, bandwidth_ * 1e-9, marlin_ == nullptr ? "" : "; Marlin / ours");
    const std::vector<DrawnShape> shapes = draw_shapes(suite_.seed, suite_.count);
    for (const std::string& name : kOfSuite) {
      const auto& wanted = suite_.formats;
      if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end())
        continue;
      const auto& source = *std::find_if(kFormats.begin(), kFormats.end(),
                                         [&](const NamedFormat& f) { return f.name == name; });
      measure_format(source, shapes);
    }
  }

 private:
  void measure_format(const NamedFormat& source, const std::vector<DrawnShape>& shapes) {
    const bool is_first = source.name == kOfSuite.front();
    Summaries all(source.name);
    fmt::print("\n{}\n\n| K | N | MB |", source.name);
    for (const int64_t m : suite_.m) fmt::print(" {} |", m);
    fmt::print("\n|---|---|---|");
    for (std::size_t i = 0; i < suite_.m.size(); ++i) fmt::print("---|");
    fmt::print("\n");
    for (std::size_t i = 0; i < shapes.size(); i += is_first ? 1 : 4) {
      measure_shape(source, shapes[i], all);
      std::fflush(stdout);
    }
    all.print();
  }

  void measure_shape(const NamedFormat& source, const DrawnShape& shape, Summaries& all) {
    const cuda::PackedFormat format = format_of(source.format, shape.rows, shape.cols);
    fmt::print("| {} | {} | {:.1f} |", shape.cols, shape.rows,
               static_cast<double>(format.bytes) * 1e-6);
    double one_token = 0;
    for (const int64_t m : suite_.m) {
      const double vendor = times_.vendor_product(m, shape.rows, shape.cols);
      times_.pool().fill(format);
      const double ours = measure(format, m, all);
      const double marlin = source.name == kOfSuite.front() ? measure_marlin(shape, m) : 0;
      if (m == 1) one_token = ours;
      all.cublas.add(m, vendor / ours);
      all.marlin.add(m, marlin / ours);
      all.limit.add(m, 1e6 * static_cast<double>(format.bytes) / bandwidth_ / ours);
      all.one_token.add(m, one_token / ours);
      fmt::print(" {:.1f} ({:.2f}{}) |", ours, vendor / ours,
                 marlin == 0 ? "" : fmt::format("; {:.2f}", marlin / ours));
      if (ours > 500) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    fmt::print("\n");
  }

  /// Of the plan taken. With `sweep` of all that should take at most three times as long, each in a
  /// line on standard error.
  double measure(const cuda::PackedFormat& format, int64_t m, Summaries& all) {
    const cuda::Problem problem = {format, cuda::Number::kF16, m};
    double taken = 0;
    double best = 0;
    double expected = 0;
    for (const cuda::Plan& plan : cuda::plan_candidates(problem, device_, {})) {
      if (taken > 0 && (!suite_.sweep || plan.microseconds > 3 * expected)) break;
      const double us = times_.our_product({plan, format}, m);
      if (suite_.sweep) fmt::print(stderr, "{:8.2f} us  {}\n", us, to_string(problem, plan));
      if (taken == 0) {
        taken = us;
        expected = plan.microseconds;
      }
      best = best == 0 ? us : std::min(best, us);
    }
    if (suite_.sweep) all.best.add(m, best / taken);
    return taken;
  }

  /// 0 where it has no kernel.
  double measure_marlin(const DrawnShape& shape, int64_t m) {
    if (marlin_ == nullptr || !Marlin::has(shape.rows, shape.cols)) return 0;
    const int64_t bytes = Marlin::bytes(shape.rows, shape.cols);
    const int64_t codes = Marlin::code_bytes(shape.rows, shape.cols);
    const int copies = static_cast<int>(static_cast<int64_t>(times_.pool().bytes()) / bytes);
    for (int i = 0; i < copies; ++i) {
      fill_random(times_.pool().data() + i * bytes, codes, i + 1, ~0u, times_.stream());
      fill_random(times_.pool().data() + i * bytes + codes, bytes - codes, i + 99, 0x23ff23ffu,
                  times_.stream());
    }
    return times_.rotate(bytes, m, shape.rows, shape.cols, [&](int i) {
      if (!marlin_->multiply(times_.y(), times_.x(), times_.pool().data() + i % copies * bytes, m,
                             shape.rows, shape.cols, times_.stream())) {
        must(cudaErrorUnknown, "marlin_cuda");
      }
    });
  }

  const ShapesSuite& suite_;
  DeviceTimes times_;
  cuda::Device device_;
  std::unique_ptr<Marlin> marlin_;
  double bandwidth_ = 0;
};

}  // namespace

std::vector<DrawnShape> draw_shapes(uint64_t seed, int64_t count) {
  Random random(seed);
  std::vector<DrawnShape> shapes;
  while (static_cast<int64_t>(shapes.size()) < count) {
    const bool is_free = shapes.size() % 3 == 2;
    const DrawnShape shape = {draw(random, is_free ? 32 : 128), draw(random, is_free ? 8 : 128)};
    const bool in_128s = shape.cols % 128 == 0 && shape.rows % 128 == 0;
    if (shape.cols * shape.rows <= kMostWeights && in_128s != is_free) shapes.push_back(shape);
  }
  return shapes;
}

Status run_shapes_suite(const ShapesSuite& suite) {
  for (const std::string& name : suite.formats) {
    if (std::find(kOfSuite.begin(), kOfSuite.end(), name) != kOfSuite.end()) continue;
    return Error{"bench.format", "shapes: no format \"" + name + "\"; there are " +
                                     fmt::format("{}", fmt::join(kOfSuite, " "))};
  }
  ShapesBench(suite).run();
  return {};
}

}  // namespace subbyte::bench
