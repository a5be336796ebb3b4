#include "bench/cuda/device_times.h"

#include <algorithm>

#include "bench/cuda/contents.h"
#include "bench/cuda/graph_timer.h"
#include "kernels/cuda/read.h"
#include "kernels/cuda/w8a8.h"

namespace subbyte::bench {
namespace {

constexpr std::size_t kActivations = std::size_t{256} << 20;
constexpr std::size_t kMaxRead = std::size_t{640} << 20;
/// Twice what the caches of a Hopper GPU hold.
constexpr std::size_t kMoreThanCaches = std::size_t{120} << 20;

}  // namespace

DeviceTimes::DeviceTimes(int replays) : replays_(replays), pool_(std::size_t{700} << 20) {
  must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  must(cudaMalloc(reinterpret_cast<void**>(&x_), kActivations), "activations");
  must(cudaMalloc(reinterpret_cast<void**>(&y_), kActivations), "results");
  must(cudaMalloc(reinterpret_cast<void**>(&workspace_), kActivations), "workspace");
  must(cudaMalloc(reinterpret_cast<void**>(&sink_), 4), "sink");
  fill_random(x_, kActivations, 5, kNearOne, nullptr);
  must(cudaDeviceSynchronize(), "set-up");
}

DeviceTimes::~DeviceTimes() {
  cublas_.reset();
  cudaFree(x_);
  cudaFree(y_);
  cudaFree(workspace_);
  cudaFree(sink_);
  cudaStreamDestroy(stream_);
}

double DeviceTimes::read(std::size_t bytes, bool dependent_launch) {
  const std::size_t size = bytes / 16 * 16;
  const int count = static_cast<int>(std::max<std::size_t>(1, pool_.bytes() / size));
  return time_calls(std::max(count, 10), replays_, stream_, [&](int i) {
    cuda::run_read(pool_.data() + i % count * size, static_cast<int64_t>(size), sink_,
                   dependent_launch, stream_);
  });
}

double DeviceTimes::read_bandwidth() {
  return 1e6 * static_cast<double>(kMaxRead) / read(kMaxRead, false);
}

std::string DeviceTimes::load_cublas() {
  std::string why;
  cublas_ = Cublas::load(why);
  return why;
}

double DeviceTimes::vendor_product(int64_t m, int64_t rows, int64_t cols) {
  if (cublas_ == nullptr) return 0;
  const std::size_t bytes = rows * cols * 2;
  const int count = static_cast<int>(std::max<std::size_t>(1, pool_.bytes() / bytes));
  fill_random(pool_.data(), pool_.bytes(), 11, kNearOne, stream_);
  return rotate(bytes, m, rows, cols, [&](int i) {
    if (!cublas_->multiply(y_, x_, pool_.data() + i % count * bytes, m, rows, cols, stream_)) {
      must(cudaErrorUnknown, "cublasGemmEx");
    }
  });
}

double DeviceTimes::our_product(const OurProduct& product, int64_t m) {
  const cuda::PackedFormat& format = product.format;
  return rotate(format.bytes, m, format.rows, format.cols, [&](int i) { launch(product, m, i); });
}

void DeviceTimes::launch(const OurProduct& product, int64_t m, const std::byte* weights) {
  const cuda::PackedFormat& format = product.format;
  cuda::LinearCall call;
  call.weights = cuda::weight_arguments(weights, format, 1, product.number);
  call.format = &format;
  call.x = x_;
  call.y = y_;
  call.x_stride = format.cols;
  call.y_stride = format.rows;
  call.m = m;
  call.dependent_launch = product.dependent;
  const auto run = product.rounds_inputs ? &cuda::run_w8a8 : &cuda::run_linear;
  const Status status = run(product.plan, call, product.number, workspace_, stream_);
  if (status.ok()) return;
  std::fprintf(stderr, "subbyte_gpu_bench: %s\n", status.error().message.c_str());
  std::exit(1);
}

double DeviceTimes::rotate(std::size_t bytes, int64_t m, int64_t rows, int64_t cols,
                           const std::function<void(int)>& launch) {
  const double work = 2.0 * static_cast<double>(m) * static_cast<double>(rows * cols);
  const int least = work > 2e11 ? 8 : 40;
  return time_calls(std::max(least, static_cast<int>(kMoreThanCaches / bytes)), replays_, stream_,
                    launch);
}

}  // namespace subbyte::bench
