#include "bench/cuda/moe_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/random.h"
#include "base/thread_pool.h"
#include "bench/cuda/contents.h"
#include "bench/cuda/device_memory.h"
#include "bench/cuda/device_times.h"
#include "bench/cuda/graph_timer.h"
#include "bench/cuda/moe_routes.h"
#include "cuda_backend/experts.h"
#include "cuda_backend/weight_arena.h"

namespace subbyte::bench {
namespace {

constexpr WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
constexpr int kLayers = 3;  // that calls take in turns, so that no cache helps

/// Random codes, scales between 2^-9 and 2^-5.
Matrix random_mxfp4(int64_t rows, int64_t cols, uint64_t seed) {
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.format = kMxfp4;
  view.rows = rows;
  view.cols = cols;
  const int64_t codes = rows * view.row_bytes();
  auto bytes = std::make_shared<std::vector<std::byte>>(codes + rows * view.groups());
  Random random(seed);
  for (int64_t i = 0; i < std::ssize(*bytes); ++i) {
    (*bytes)[i] = static_cast<std::byte>(i < codes ? random.below(256) : 118 + random.below(5));
  }
  view.codes = std::span(*bytes).first(codes);
  view.scales = std::span(*bytes).subspan(codes);
  matrix.owners.push_back(std::move(bytes));
  return matrix;
}

/// The experts of a layer, alike on the host, each with memory of its own on the device.
ExpertMatrices random_experts(const MoeSuite& suite, int64_t count) {
  ExpertMatrices experts;
  experts.gate_up.assign(count, random_mxfp4(2 * suite.intermediate, suite.hidden, 1));
  experts.down.assign(count, random_mxfp4(suite.hidden, suite.intermediate, 2));
  experts.gate_up_bias.resize(count * 2 * suite.intermediate);
  experts.down_bias.resize(count * suite.hidden);
  experts.top_k = suite.top_k;
  experts.swiglu = {1.702f, 7, 1};  // gpt-oss
  return experts;
}

/// One number of experts: its layers, and a table of times by the number of tokens.
class MoeTable {
 public:
  MoeTable(const MoeSuite& suite, int64_t experts, double bandwidth, Cublas* cublas)
      : suite_(suite),
        experts_(experts),
        max_routes_(*std::max_element(suite.tokens.begin(), suite.tokens.end()) * suite.top_k),
        bandwidth_(bandwidth),
        cublas_(cublas),
        x_(max_routes_ * suite.hidden * 2),
        y_(max_routes_ * suite.intermediate * 4),
        moe_(*cuda::query_device(), cuda::Number::kF16, false, suite.mxfp8, stream()) {
    fill_random(x_.data(), max_routes_ * suite.hidden * 2, 5, kNearOne, stream());
    if (cublas == nullptr) return;
    dense_ = std::make_unique<DeviceMemory>(experts * expert_size() * 2);
    fill_random(dense_->data(), experts * expert_size() * 2, 7, kNearOne, stream());
  }

  Status measure() {
    SUBBYTE_CHECK(upload());
    fmt::print(
        "\nMXFP4, {} experts of {} x {}, {} of a token\n\n| tokens | us | experts used | MB | % of "
        "B | TFLOP/s | cuBLAS f16, us | of cuBLAS |\n|---|---|---|---|---|---|---|---|\n",
        experts_, suite_.hidden, suite_.intermediate, suite_.top_k);
    for (const int64_t tokens : suite_.tokens) SUBBYTE_CHECK(measure(tokens));
    return {};
  }

 private:
  cudaStream_t stream() const { return stream_.get(); }
  int64_t expert_size() const { return 3 * suite_.hidden * suite_.intermediate; }

  Status upload() {
    ThreadPool host;
    device::Uploader uploader(host);
    const WeightTarget target = {device::Gpu::current(0, stream(), arena_), uploader,
                                 cuda::Number::kF16};
    for (int i = 0; i < kLayers; ++i) {
      SUBBYTE_TRY(auto layer, upload_experts(random_experts(suite_, experts_), target));
      SUBBYTE_CHECK(moe_.choose_kernels(layer));
      layers_.push_back(std::move(layer));
    }
    return uploader.finish(target.gpu);
  }

  Status measure(int64_t tokens) {
    const int calls = tokens > 512 ? 6 : 24;
    std::vector<MoeRoutes> routes;
    const int64_t logit_count = tokens * experts_;
    const DeviceMemory logits(calls * logit_count * 4);
    for (int i = 0; i < calls; ++i) {
      routes.push_back(draw_routes(tokens, experts_, suite_.top_k, 10 + i));
      must(cudaMemcpy(logits.data() + i * logit_count * 4, routes[i].logits.data(), logit_count * 4,
                      cudaMemcpyHostToDevice),
           "logits");
    }
    Status status;
    const auto call = [&](int i) {
      const auto* of_call = reinterpret_cast<const float*>(logits.data()) + i * logit_count;
      if (status.ok()) status = run(tokens, of_call, layers_[i % kLayers]);
    };
    call(0);  // allocates
    must(cudaStreamSynchronize(stream()), "experts");
    const double us = time_calls(calls, suite_.replays, stream(), call);
    SUBBYTE_CHECK(status);
    print(tokens, us, routes);
    return {};
  }

  Status run(int64_t tokens, const float* logits, const CudaExperts& layer) {
    SUBBYTE_TRY(const cuda::RoutedSum routes,
                moe_.run({x_.data(), tokens, suite_.hidden}, logits, layer));
    cuda::run_add_routes({y_.data(), routes, Element::kF16, tokens, suite_.hidden}, stream());
    return {};
  }

  void print(int64_t tokens, double us, const std::vector<MoeRoutes>& routes) {
    double used = 0;
    for (const MoeRoutes& of_call : routes) {
      used += static_cast<double>(of_call.used_experts()) / static_cast<double>(routes.size());
    }
    const double bytes =
        used / static_cast<double>(experts_) *
        static_cast<double>(layers_[0].gate_up.weights->bytes() + layers_[0].down.weights->bytes());
    const double work = 2.0 * static_cast<double>(tokens * suite_.top_k * expert_size());
    fmt::print("| {} | {:.1f} | {:.1f} | {:.1f} | {:.0f} | {:.0f} |", tokens, us, used,
               bytes * 1e-6, 100 * bytes / bandwidth_ * 1e6 / us, work / us * 1e-6);
    if (cublas_ == nullptr) {
      fmt::print(" - | - |\n");
    } else {
      const double vendor = time_calls(static_cast<int>(routes.size()), suite_.replays, stream(),
                                       [&](int i) { multiply_by_cublas(routes[i]); });
      fmt::print(" {:.1f} | {:.2f}x |\n", vendor, vendor / us);
    }
    std::fflush(stdout);
  }

  /// The products alone, expert after expert, on rows that are already sorted.
  void multiply_by_cublas(const MoeRoutes& routes) {
    const int64_t inner = suite_.intermediate;
    const int64_t hidden = suite_.hidden;
    int64_t first = 0;
    for (int64_t e = 0; e < experts_; ++e) {
      const int64_t m = routes.counts[e];
      if (m == 0) continue;
      const std::byte* const weights = dense_->data() + e * expert_size() * 2;
      std::byte* const x = x_.data() + first * hidden * 2;
      std::byte* const activated = y_.data() + first * inner * 4;
      first += m;
      const bool ok = cublas_->multiply(activated, x, weights, m, 2 * inner, hidden, stream()) &&
                      cublas_->multiply(y_.data(), x, weights + 2 * inner * hidden * 2, m, hidden,
                                        inner, stream());
      if (!ok) must(cudaErrorUnknown, "cublasGemmEx");
    }
  }

  struct OwnStream {
    OwnStream() { must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream"); }
    ~OwnStream() { cudaStreamDestroy(stream); }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;
    cudaStream_t get() const { return stream; }
    cudaStream_t stream = nullptr;
  };

  const MoeSuite& suite_;
  int64_t experts_;
  int64_t max_routes_;
  double bandwidth_;
  Cublas* cublas_;
  OwnStream stream_;
  DeviceMemory x_, y_;
  std::unique_ptr<DeviceMemory> dense_;
  WeightArena arena_;
  CudaMoe moe_;
  std::vector<CudaExperts> layers_;
};

}  // namespace

Status run_moe_suite(const MoeSuite& suite) {
  std::string why = "not wanted";
  const auto cublas = suite.no_cublas ? nullptr : Cublas::load(why);
  if (cublas == nullptr) fmt::print("cuBLAS: {}\n", why);
  const double bandwidth = DeviceTimes(suite.replays).read_bandwidth();
  fmt::print("B = {:.0f} GB/s; uneven routes, which change from call to call\n", bandwidth * 1e-9);
  for (const int64_t experts : suite.experts) {
    SUBBYTE_CHECK(MoeTable(suite, experts, bandwidth, cublas.get()).measure());
  }
  return {};
}

}  // namespace subbyte::bench
