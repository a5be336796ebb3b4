#include "bench/cuda/group_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "bench/cuda/contents.h"
#include "bench/cuda/device_memory.h"
#include "bench/cuda/device_times.h"
#include "bench/cuda/graph_timer.h"
#include "kernels/cuda/group_gemm/group_gemm.h"

namespace subbyte::bench {
namespace {

constexpr int64_t kRowsOfGroup = 4;      // a group begins at multiples of it
constexpr int64_t kScaleRows = 128;      // a swizzled tile of scales
constexpr int64_t kScaleInputs = 32;     // of one scale
constexpr int kOne = 127;                // E8M0
constexpr unsigned kNoNan = 0x77777777;  // no E4M3 code of these bits is NaN

int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// From 0 to m, groups as even as multiples of kRowsOfGroup are.
std::vector<int32_t> even_groups(int64_t m, int64_t groups) {
  std::vector<int32_t> begins;
  for (int64_t i = 0; i <= groups; ++i) {
    begins.push_back(static_cast<int32_t>(m / kRowsOfGroup * i / groups * kRowsOfGroup));
  }
  begins.back() = static_cast<int32_t>(m);
  return begins;
}

/// The buffers of a group GEMM, and of cuBLAS for the same.
class GroupTable {
 public:
  GroupTable(const GroupSuite& suite, const cuda::GroupGemm& gemm, DeviceTimes& times,
             Cublas* cublas)
      : suite_(suite),
        gemm_(gemm),
        stream_(times.stream()),
        bandwidth_(times.read_bandwidth()),
        cublas_(cublas),
        most_(*std::ranges::max_element(suite.m)),
        a_(most_ * padded_k()),
        a_scale_(round_up(most_ + (kScaleRows - 1) * suite.groups, kScaleRows) * padded_k() /
                 kScaleInputs),
        begins_((suite.groups + 1) * 4),
        weights_(gemm.weight_bytes()),
        workspace_(gemm.workspace_bytes(most_)),
        out_(most_ * suite.n * 2) {
    fill_random(a_.data(), most_ * padded_k(), 1, kNoNan, stream_);
    must(cudaMemsetAsync(a_scale_.data(), kOne, a_scale_.bytes(), stream_), "scales");
    if (cublas == nullptr) return;
    const int64_t bytes = suite.groups * suite.n * suite.k * 2;
    dense_ = std::make_unique<DeviceMemory>(bytes);
    dense_x_ = std::make_unique<DeviceMemory>(most_ * suite.k * 2);
    fill_random(dense_->data(), bytes, 2, kNearOne, stream_);
    fill_random(dense_x_->data(), most_ * suite.k * 2, 3, kNearOne, stream_);
  }

  Status prepare() {
    const DeviceMemory codes(suite_.groups * suite_.n * suite_.k / 2);
    const DeviceMemory scales(suite_.groups * suite_.n * suite_.k / kScaleInputs);
    const DeviceMemory memory(std::max<int64_t>(gemm_.prepare_bytes(), 256));
    fill_random(codes.data(), suite_.groups * suite_.n * suite_.k / 2, 4, ~0u, stream_);
    must(cudaMemsetAsync(scales.data(), kOne, scales.bytes(), stream_), "scales");
    SUBBYTE_CHECK(
        gemm_.prepare(weights_.data(), codes.data(), scales.data(), memory.data(), stream_));
    must(cudaStreamSynchronize(stream_), "prepare");
    return {};
  }

  Status measure(int64_t m) {
    const std::vector<int32_t> begins = even_groups(m, suite_.groups);
    must(cudaMemcpy(begins_.data(), begins.data(), begins.size() * 4, cudaMemcpyHostToDevice),
         "groups");
    cuda::GroupGemmCall call;
    call.a = a_.data();
    call.a_scale = a_scale_.data();
    call.m_indptr = reinterpret_cast<const int32_t*>(begins_.data());
    call.m = m;
    call.weights = weights_.data();
    call.out = out_.data();
    Status status;
    const auto run = [&](int) {
      if (status.ok()) status = gemm_.run(call, workspace_.data(), stream_);
    };
    const int calls = m > 4096 ? 6 : 24;
    const double us = time_calls(calls, suite_.replays, stream_, run);
    SUBBYTE_CHECK(status);
    const auto bytes = static_cast<double>(gemm_.weight_bytes());
    const double work = 2.0 * static_cast<double>(m * suite_.n * suite_.k);
    fmt::print("| {} | {:.1f} | {:.0f} | {:.0f} |", m, us, 100 * bytes / bandwidth_ * 1e6 / us,
               work / us * 1e-6);
    print_vendor(begins, calls, us);
    return {};
  }

 private:
  int64_t padded_k() const { return round_up(suite_.k, 128); }

  void print_vendor(const std::vector<int32_t>& begins, int calls, double us) {
    if (cublas_ == nullptr) {
      fmt::print(" - | - |\n");
      return;
    }
    const double vendor = time_calls(calls, suite_.replays, stream_, [&](int) {
      for (int64_t i = 0; i < suite_.groups; ++i) multiply_by_cublas(i, begins);
    });
    fmt::print(" {:.1f} | {:.2f}x |\n", vendor, vendor / us);
  }

  void multiply_by_cublas(int64_t group, const std::vector<int32_t>& begins) {
    const int64_t first = begins[group];
    const int64_t m = begins[group + 1] - first;
    if (m == 0) return;
    const bool ok = cublas_->multiply(
        out_.data() + first * suite_.n * 2, dense_x_->data() + first * suite_.k * 2,
        dense_->data() + group * suite_.n * suite_.k * 2, m, suite_.n, suite_.k, stream_);
    if (!ok) must(cudaErrorUnknown, "cublasGemmEx");
  }

  const GroupSuite& suite_;
  const cuda::GroupGemm& gemm_;
  cudaStream_t stream_;
  double bandwidth_;
  Cublas* cublas_;
  int64_t most_;
  DeviceMemory a_, a_scale_, begins_, weights_, workspace_, out_;
  std::unique_ptr<DeviceMemory> dense_, dense_x_;
};

}  // namespace

Status run_group_suite(const GroupSuite& suite) {
  for (const int64_t m : suite.m) {
    if (m % kRowsOfGroup == 0) continue;
    return Error{"bench.m",
                 fmt::format("--m: expected multiples of {}, found {}", kRowsOfGroup, m)};
  }
  std::string why = "not wanted";
  const auto cublas = suite.no_cublas ? nullptr : Cublas::load(why);
  if (cublas == nullptr) fmt::print("cuBLAS: {}\n", why);
  DeviceTimes times(suite.replays);
  SUBBYTE_TRY(const cuda::Device device, cuda::query_device());
  SUBBYTE_TRY(const cuda::GroupGemm gemm,
              cuda::GroupGemm::create(
                  {suite.groups, suite.n, suite.k, cuda::GroupWeights::kCheckpoint}, device));
  GroupTable table(suite, gemm, times, cublas.get());
  SUBBYTE_CHECK(table.prepare());
  fmt::print(
      "B = {:.0f} GB/s; {} groups of even sizes, weights {} x {} each, bf16 out\n\n| rows | us | % "
      "of B | TFLOP/s | cuBLAS f16, us | of cuBLAS |\n|---|---|---|---|---|---|\n",
      times.read_bandwidth() * 1e-9, suite.groups, suite.n, suite.k);
  for (const int64_t m : suite.m) SUBBYTE_CHECK(table.measure(m));
  return {};
}

}  // namespace subbyte::bench
