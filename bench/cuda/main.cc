// ./dev gpu-bench: the GPU's own read bandwidth, cuBLAS and our kernels in one process, as tables
// in Markdown. Weights rotate over far more bytes than the caches hold. Whole models are another
// file's (model_suite.h).

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/command_line.h"
#include "bench/cuda/decoder_time.h"
#include "bench/cuda/device_times.h"
#include "bench/cuda/formats.h"
#include "bench/cuda/graph_timer.h"
#include "bench/cuda/suite_options.h"
#include "kernels/cuda/read.h"
#include "kernels/cuda/w8a8.h"

namespace subbyte::bench {
namespace {

struct Shape {
  std::string name;
  int64_t cols;  // K
  int64_t rows;  // N
};

const std::vector<Shape> kShapes = {
    {"qkv", 4096, 6144},      {"o", 4096, 4096},       {"gate_up", 4096, 24576},
    {"down", 12288, 4096},    {"8192", 8192, 8192},    {"oss_gate_up", 2880, 5760},
    {"oss_down", 2880, 2880}, {"odd_up", 7392, 10952}, {"odd_down", 10944, 7400},
    {"70b_up", 8192, 28672},
};

struct Options {
  std::vector<std::string> shapes;
  std::vector<std::string> formats;
  std::vector<int64_t> m = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096};
  std::string kernel;
  bool dependent = false;
  bool batch_invariant = false;
  bool sweep = false;
  bool bf16 = false;
  bool no_cublas = false;
  bool print_plan = false;
  bool chain = false;
  bool decoders = false;
  int replays = 9;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), times_(options.replays), device_(*cuda::query_device()) {
    const std::string why = options.no_cublas ? "" : times_.load_cublas();
    if (!why.empty()) fmt::print("cuBLAS: {}\n\n", why);
  }

  void run() {
    measure_bandwidth();
    for (const Shape& shape : kShapes) {
      if (wanted(options_.shapes, shape.name)) measure_shape(shape);
    }
  }

  /// The four products of a layer of Qwen3 8B one after the other.
  void measure_chain() {
    const cuda::Number number = cuda::Number::kF16;
    std::vector<cuda::PackedFormat> formats;
    std::vector<cuda::Plan> plans;
    double bytes = 0;
    for (int i = 0; i < 4; ++i) {
      formats.push_back(format_of(kFormats[0].format, kShapes[i].rows, kShapes[i].cols));
      cuda::PlanOptions plan_options;
      plan_options.kernel = options_.kernel;
      const cuda::Problem problem = {formats.back(), number, 1};
      plans.push_back(*cuda::plan_linear(problem, device_, plan_options));
      print_plan(problem, plans.back());
      bytes += static_cast<double>(formats.back().bytes);
    }
    pool_.fill(formats[2]);  // scales of all in places of their own would not be read faster
    for (const bool dependent : {false, true}) {
      const double us = 4 * time_calls(40, options_.replays, stream_, [&](int i) {
                          const cuda::PackedFormat& format = formats[i % 4];
                          times_.launch({plans[i % 4], format, number, dependent}, 1, i);
                        });
      fmt::print(
          "chain of qkv, o, gate_up, down ({:.0f} MB), M = 1, {}: {:.1f} us, {:.0f} % of B\n",
          bytes * 1e-6, dependent ? "dependent launches" : "plain launches", us,
          100 * bytes / us * 1e6 / bandwidth_);
    }
  }

  /// Packing on the GPU beside a copy of as many bytes.
  void measure_packing() {
    const WeightFormat source = kFormats[0].format;
    const cuda::PackedFormat format = format_of(source, 8192, 8192);
    pool_.fill(format);
    MatrixView view;
    view.format = source;
    view.rows = format.rows;
    view.cols = format.cols;
    const std::size_t codes = view.rows * view.row_bytes();
    const std::size_t groups = view.rows * view.groups();
    const double us = time_calls(8, options_.replays, stream_, [&](int i) {
      const std::byte* from = pool_.copy(2 * i);
      view.codes = {from, codes};
      view.scales = {from + codes, groups * 2};
      view.zeros = {from + codes + groups * 2, groups};
      const Status status = cuda::pack_on_device(const_cast<std::byte*>(pool_.copy(2 * i + 1)),
                                                 view, format, stream_);
      if (!status) must(cudaErrorUnknown, "pack_on_device");
    });
    const double copy = time_calls(8, options_.replays, stream_, [&](int i) {
      must(cudaMemcpyAsync(const_cast<std::byte*>(pool_.copy(2 * i + 1)), pool_.copy(2 * i),
                           format.bytes, cudaMemcpyDeviceToDevice, stream_),
           "copy");
    });
    fmt::print(
        "packing 8192 x 8192 int4: {:.1f} us; a copy of its bytes: {:.1f} us; {:.0f} % of "
        "the copy's bandwidth\n",
        us, copy, 100 * copy / us);
  }

  /// Decoders without anything else: bits against tables. A clock of a scheduler is what one
  /// instruction of a warp takes at best, so it compares with tools/count_sass.py.
  void measure_decoders() {
    const int blocks = device_.multiprocessors * kDecodeBlocks;
    const int warps = kDecodeBlocks * kDecodeThreads / 32;  // of a multiprocessor
    const DecodeCall call = {4096, reinterpret_cast<int64_t*>(workspace_), sink_, 0x51ed270b};
    std::vector<int64_t> cycles(blocks);
    double loop[9] = {};  // by bits
    fmt::print(
        "| decoder | clocks of a scheduler for a pair | less the loop | weights for a clock of a "
        "multiprocessor | ps for a weight |\n|---|---|---|---|---|\n");
    for (const TimedDecoder& decoder : timed_decoders()) {
      const double us = time_calls(3, options_.replays, stream_,
                                   [&](int) { decoder.launch(blocks, call, stream_); });
      must(cudaMemcpy(cycles.data(), call.cycles, blocks * 8, cudaMemcpyDeviceToHost), "cycles");
      const double clocks = static_cast<double>(*std::max_element(cycles.begin(), cycles.end()));
      const double weights = 1.0 * warps * call.tiles * kDecodeTileWeights;
      const double of_pair = clocks * 4 * 64 / weights;  // 4 schedulers, 32 lanes
      if (decoder.is_loop) loop[decoder.bits] = of_pair;
      fmt::print("| {} | {:.2f} | {:.2f} | {:.1f} | {:.5f} |\n", decoder.name, of_pair,
                 of_pair - loop[decoder.bits], weights / clocks,
                 us * 1e6 / (weights * device_.multiprocessors));
    }
  }

  /// Host time of a call, beside that of a bare launch.
  void measure_host() {
    const cuda::PackedFormat format = format_of(kFormats[0].format, 64, 256);
    for (const int64_t m : {1, 100}) {
      const cuda::Plan plan = *cuda::plan_linear({format, number(), m}, device_, {});
      const double ours = host_time([&] {
        times_.launch({plan, format, number()}, m, pool_.data());
      });
      const double bare =
          host_time([&] { cuda::run_read(pool_.data(), 16, sink_, false, stream_); });
      fmt::print("host time of a call, {} tokens: {:.2f} us; of a bare launch: {:.2f} us\n", m,
                 ours, bare);
    }
  }

 private:
  template <typename Call>
  double host_time(const Call& call) {
    constexpr int kCalls = 200;  // fewer than a stream's queue holds
    std::vector<double> times;
    for (int i = 0; i < 21; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      for (int j = 0; j < kCalls; ++j) call();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      must(cudaStreamSynchronize(stream_), "launch");
      times.push_back(seconds.count());
    }
    std::nth_element(times.begin(), times.begin() + 10, times.end());
    return times[10] / kCalls * 1e6;
  }

  static bool wanted(const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  }

  void measure_bandwidth() {
    for (const std::size_t size :
         {std::size_t{640} << 20, std::size_t{53500000}, std::size_t{26700000},
          std::size_t{13400000}, std::size_t{8900000}}) {
      fmt::print("read {:.1f} MB: {:.2f} us, {:.2f} us with dependent launches\n",
                 static_cast<double>(size) * 1e-6, times_.read(size, false),
                 times_.read(size, true));
    }
    bandwidth_ = times_.read_bandwidth();
    fmt::print("B = {:.0f} GB/s\n", bandwidth_ * 1e-9);
  }

  void measure_shape(const Shape& shape) {
    fmt::print("\n{}: K = {}, N = {}; us, and % of the limit (bytes / B){}\n\n| M | cuBLAS |",
               shape.name, shape.cols, shape.rows,
               options_.dependent ? ", dependent launches" : "");
    for (const NamedFormat& format : kFormats) {
      if (wanted(options_.formats, format.name)) fmt::print(" {} |", format.name);
    }
    fmt::print("\n|---|---|");
    std::vector<std::vector<std::string>> columns;
    std::vector<double> vendor;
    for (const int64_t m : options_.m) {
      vendor.push_back(times_.vendor_product(m, shape.rows, shape.cols));
    }
    for (const NamedFormat& format : kFormats) {
      if (!wanted(options_.formats, format.name)) continue;
      fmt::print("---|");
      columns.push_back(measure_format(shape, format, vendor));
    }
    fmt::print("\n");
    for (std::size_t i = 0; i < options_.m.size(); ++i) {
      fmt::print("| {} | {} |", options_.m[i],
                 vendor[i] == 0 ? "-" : fmt::format("{:.1f}", vendor[i]));
      for (const auto& column : columns) fmt::print(" {} |", column[i]);
      fmt::print("\n");
    }
    std::fflush(stdout);
  }

  /// After long products of many tokens the clock is lower for a while.
  static void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(400)); }

  std::vector<std::string> measure_format(const Shape& shape, const NamedFormat& source,
                                          const std::vector<double>& vendor) {
    const cuda::PackedFormat format = format_of(source.format, shape.rows, shape.cols);
    rounds_inputs_ = source.rounds_inputs && cuda::has_w8a8_products(format);
    if (source.rounds_inputs && !rounds_inputs_) {
      return std::vector<std::string>(options_.m.size(), "-");
    }
    pool_.fill(format);
    rest();
    std::vector<std::string> cells;
    for (std::size_t i = 0; i < options_.m.size(); ++i) {
      const int64_t m = options_.m[i];
      const double limit = 1e6 * static_cast<double>(format.bytes) / bandwidth_;
      const double us = options_.sweep ? sweep(format, m) : measure_best(format, m);
      cells.push_back(cell(us, limit, vendor[i]));
    }
    return cells;
  }

  /// Times of 0 are those of what could not be measured, or is not wanted.
  static std::string cell(double us, double limit, double vendor) {
    if (us == 0) return "-";
    const std::string ratio = vendor == 0 ? "" : fmt::format(", {:.2f}x", vendor / us);
    return fmt::format("{:.1f} ({:.0f} %{})", us, 100 * limit / us, ratio);
  }

  cuda::Number number() const { return options_.bf16 ? cuda::Number::kBF16 : cuda::Number::kF16; }

  double measure_best(const cuda::PackedFormat& format, int64_t m) {
    cuda::PlanOptions plan_options;
    plan_options.kernel = options_.kernel;
    plan_options.batch_invariant = options_.batch_invariant;
    const cuda::Problem problem = {format, number(), m};
    const Result<cuda::Plan> plan = rounds_inputs_
                                        ? cuda::plan_w8a8(problem, device_)
                                        : cuda::plan_linear(problem, device_, plan_options);
    if (!plan) {
      fmt::print(stderr, "subbyte_gpu_bench: {}\n", plan.error().message);
      return 0;
    }
    print_plan(problem, *plan);
    return times_.our_product(ours(*plan, format), m);
  }

  void print_plan(const cuda::Problem& problem, const cuda::Plan& plan) const {
    if (options_.print_plan) fmt::print(stderr, "{}\n", to_string(problem, plan));
  }

  /// Every candidate, with what the cost model expected: to see where it is wrong.
  double sweep(const cuda::PackedFormat& format, int64_t m) {
    const cuda::Problem problem = {format, number(), m};
    cuda::PlanOptions plan_options;
    plan_options.kernel = options_.kernel;
    double best = 1e9;
    double first = 1e9;
    for (const cuda::Plan& plan : rounds_inputs_
                                      ? cuda::w8a8_candidates(problem, device_)
                                      : cuda::plan_candidates(problem, device_, plan_options)) {
      first = std::min(first, plan.microseconds);
      if (plan.microseconds > 3 * first) break;
      const double us = times_.our_product(ours(plan, format), m);
      fmt::print(stderr, "{:8.2f} us  {}\n", us, to_string(problem, plan));
      best = std::min(best, us);
    }
    return best;
  }

  OurProduct ours(const cuda::Plan& plan, const cuda::PackedFormat& format) const {
    return {plan, format, number(), options_.dependent, rounds_inputs_};
  }

  const Options& options_;
  DeviceTimes times_;
  WeightsPool& pool_ = times_.pool();
  cudaStream_t stream_ = times_.stream();
  std::byte* workspace_ = times_.workspace();
  unsigned* sink_ = times_.sink();
  cuda::Device device_;
  bool rounds_inputs_ = false;  // the format that is measured
  double bandwidth_ = 0;
};

void add_kernels(app::Program& program) {
  auto options = std::make_shared<Options>();
  options->kernel = variable("SUBBYTE_KERNEL");
  options->print_plan = variable("SUBBYTE_PRINT_PLAN") == "1";
  app::Command command = program.add_command("kernels", "The CUDA kernels of products",
                                             "  ./dev gpu-bench --shape qkv --m 1,16");
  command.option("--shape", options->shapes,
                 "qkv o gate_up down 8192 oss_gate_up oss_down; may be given several times");
  command.option("--format", options->formats,
                 "int4 mxfp4 nvfp4 fp8 w8a8 nf4 kbit2 kbit3 kbit4 kbit5 vq2 vq4; may be given "
                 "several times");
  command.option("--m", options->m, "numbers of tokens").between(1, 1 << 20);
  command.option("--kernel", options->kernel,
                 "only this kernel: gemv, small_m8, large_m128, ... (SUBBYTE_KERNEL)");
  command.option("--replays", options->replays, "of which the median is taken").between(1, 1000);
  command.flag("--dependent", options->dependent, "with programmatic dependent launches");
  command.flag("--batch-invariant", options->batch_invariant, "in the batch-invariant mode");
  command.flag("--sweep", options->sweep, "time all plans and print them");
  command.flag("--print-plan", options->print_plan,
               "print what was chosen, on standard error (SUBBYTE_PRINT_PLAN)");
  command.flag("--bf16", options->bf16, "bf16 activations (default: fp16)");
  command.flag("--chain", options->chain,
               "also a layer's four products in a chain, packing, and host time");
  command.flag("--decoders", options->decoders,
               "only the decoders, without loads, products and stores");
  command.flag("--no-cublas", options->no_cublas, "without the vendor's library");
  command.run([options]() -> Result<app::ExitCode> {
    Bench bench(*options);
    if (options->decoders) {
      bench.measure_decoders();
      return app::kOk;
    }
    bench.run();
    if (!options->chain) return app::kOk;
    bench.measure_chain();
    bench.measure_packing();
    bench.measure_host();
    return app::kOk;
  });
}

int run(int argc, char** argv) {
  app::Program program;
  program.name = "subbyte_gpu_bench";
  program.summary =
      "Measures the CUDA kernels beside the GPU's read bandwidth and cuBLAS; without a command, "
      "kernels.";
  add_kernels(program);
  add_suites(program);
  return run_program(program, argc, argv);
}

}  // namespace
}  // namespace subbyte::bench

int main(int argc, char** argv) {
  return subbyte::bench::run(argc, argv);
}
