#include "bench/cuda/calls_suite.h"

#include <fmt/format.h>
#include <subbyte/subbyte.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "bench/cuda/device_memory.h"
#include "bench/cuda/graph_timer.h"
#include "kernels/cuda/read.h"

namespace subbyte::bench {
namespace {

constexpr int64_t kGroup = 128;
constexpr int kCalls = 100;  // fewer than a stream's queue holds
constexpr int kRounds = 41;  // of which the median is taken

void must(int status) {
  if (status == SUBBYTE_OK) return;
  fmt::print(stderr, "subbyte_gpu_bench: {} [{}]\n", subbyte_last_error(),
             subbyte_last_error_code());
  std::exit(1);
}

/// Weights of one matrix, of any bits that are scales near one, and activations of zeros.
class Suite {
 public:
  explicit Suite(const CallsSuite& options)
      : options_(options),
        codes_(options.rows * options.cols / 2),
        groups_(options.rows * (options.cols / kGroup) * 2),
        x_(largest_m() * options.cols * 2),
        y_(largest_m() * options.rows * 2),
        residual_(largest_m() * options.rows * 2) {
    bench::must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    bench::must(cudaMemset(codes_.data(), 0x01, codes_.bytes()), "memory");
    bench::must(cudaMemset(groups_.data(), 0x01, groups_.bytes()), "memory");
    bench::must(cudaMemset(x_.data(), 0, x_.bytes()), "memory");
    bench::must(cudaMemset(residual_.data(), 0, residual_.bytes()), "memory");
    must(subbyte_context_create(nullptr, &context_));
    make_matrix();
  }
  ~Suite() {
    subbyte_matrix_destroy(matrix_);
    subbyte_context_destroy(context_);
    cudaStreamDestroy(stream_);
  }
  Suite(const Suite&) = delete;
  Suite& operator=(const Suite&) = delete;

  void run() {
    sink_ = reinterpret_cast<unsigned*>(y_.data());
    bare_ = time([&] { cuda::run_read(x_.data(), 16, sink_, false, stream_); });
    fmt::print("a bare launch: {:.2f} us of the host\n\n", bare_);
    fmt::print("| M | call | us of the host | beyond the launch |\n|---|---|---|---|\n");
    for (const int64_t m : options_.m) {
      measure("product", m, SUBBYTE_LINEAR, false);
      measure("with bias, ReLU and residual", m, SUBBYTE_RELU, true);
      measure("with bias, GELU and residual", m, SUBBYTE_GELU, true);
    }
  }

 private:
  int64_t largest_m() const { return *std::ranges::max_element(options_.m); }

  void make_matrix() {
    subbyte_weights w = {};
    w.struct_size = sizeof w;
    w.element = SUBBYTE_U4;
    w.scale = SUBBYTE_F16;
    w.zero = SUBBYTE_U8;
    w.group_size = kGroup;
    w.rows = options_.rows;
    w.cols = options_.cols;
    w.codes = codes_.data();
    w.scales = groups_.data();
    w.zeros = groups_.data();
    must(subbyte_matrix_create(context_, &w, stream_, &matrix_));
  }

  void measure(const std::string& name, int64_t m, int32_t activation, bool has_more) {
    subbyte_product p = {};
    p.struct_size = sizeof p;
    p.x = x_.data();
    p.y = y_.data();
    p.bias = has_more ? x_.data() : nullptr;
    p.residual = has_more ? residual_.data() : nullptr;
    p.m = m;
    p.number = SUBBYTE_BF16;
    p.activation = activation;
    p.stream = stream_;
    const double us = time([&] { must(subbyte_multiply(matrix_, &p)); });
    fmt::print("| {} | {} | {:.2f} | {:.2f} |\n", m, name, us, us - bare_);
  }

  /// Microseconds of a call, the queue being empty when the first of them begins.
  template <class Call>
  double time(const Call& call) const {
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i) call();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      bench::must(cudaStreamSynchronize(stream_), "launch");
      times.push_back(seconds.count());
    }
    std::ranges::nth_element(times, times.begin() + kRounds / 2);
    return times[kRounds / 2] / kCalls * 1e6;
  }

  CallsSuite options_;
  DeviceMemory codes_;
  DeviceMemory groups_;
  DeviceMemory x_;
  DeviceMemory y_;
  DeviceMemory residual_;
  cudaStream_t stream_ = nullptr;
  subbyte_context* context_ = nullptr;
  subbyte_matrix* matrix_ = nullptr;
  unsigned* sink_ = nullptr;
  double bare_ = 0;
};

}  // namespace

void run_calls_suite(const CallsSuite& options) {
  Suite(options).run();
}

}  // namespace subbyte::bench
