#include "bench/measure_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "bench/timing.h"
#include "foreign_layouts/flashinfer.h"
#include "group_gemm/group_gemm.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/read_bandwidth.h"

namespace subbyte::bench {
namespace {

constexpr std::size_t kBandwidthBytes = std::size_t{1} << 30;
constexpr int64_t kRowsOfGroup = 4;  // a group begins at multiples of it

using Bytes = std::vector<std::byte>;

/// The weights of all groups, with both kinds of scales.
struct Experts {
  Bytes codes, plain_scales, swizzled_scales;
  std::vector<MatrixView> views;

  explicit Experts(const GroupRun& run) {
    const FlashinferShape shape = {run.n, run.k};
    const int64_t code_bytes = run.n * run.k / 2;
    const int64_t scale_bytes = run.n * run.k / 32;
    codes.resize(run.groups * code_bytes);
    plain_scales.resize(run.groups * scale_bytes);
    swizzled_scales.resize(run.groups * shape.scale_bytes());
    Random random(1);
    for (std::byte& code : codes) code = static_cast<std::byte>(random.below(256));
    for (std::byte& scale : plain_scales) scale = static_cast<std::byte>(115 + random.below(4));
    for (int64_t row = 0; row < run.groups * run.n; ++row) {  // of padding: zeros
      const int64_t padding = run.k - run.inputs;
      std::fill_n(codes.begin() + ((row + 1) * run.k - padding) / 2, padding / 2, std::byte{0});
      std::fill_n(plain_scales.begin() + ((row + 1) * run.k - padding) / 32, padding / 32,
                  std::byte{0});
    }
    for (int64_t i = 0; i < run.groups; ++i) {
      const std::byte* const scales = plain_scales.data() + i * scale_bytes;
      pack_flashinfer_scales(swizzled_scales.data() + i * shape.scale_bytes(), scales, shape);
      MatrixView& view = views.emplace_back();
      view.format = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
      view.rows = run.n;
      view.cols = run.k;
      view.codes = {codes.data() + i * code_bytes, static_cast<std::size_t>(code_bytes)};
      view.scales = {scales, static_cast<std::size_t>(scale_bytes)};
    }
  }
  int64_t bytes() const { return std::ssize(codes) + std::ssize(plain_scales); }
};

/// Both products with `m` rows a group.
class Products {
 public:
  Products(const GroupRun& run, const Experts& experts, int64_t m)
      : x_(run.groups * m * run.k), y_(run.groups * m * run.n) {
    Random random(2);
    for (float& number : x_) number = static_cast<float>(random.normal());
    const auto size = static_cast<std::size_t>(m);
    for (int64_t i = 0; i < run.groups; ++i) {
      linear_.push_back({.y = {y_.data() + i * m * run.n, size * run.n},
                         .x = {x_.data() + i * m * run.k, size * run.k},
                         .m = m,
                         .weights = &experts.views[i]});
    }
    fill_group_gemm(run, experts, m, random);
  }

  Result<double> time_linear(Execution& execution) const {
    const double start = now();
    SUBBYTE_CHECK(linear_group(execution, linear_));
    return now() - start;
  }
  Result<double> time_group_gemm(Execution& execution) const {
    const double start = now();
    SUBBYTE_CHECK(group_gemm::group_gemm_mxfp8_mxfp4_nt_groupwise(gemm_, execution));
    return now() - start;
  }

 private:
  void fill_group_gemm(const GroupRun& run, const Experts& experts, int64_t m, Random& random) {
    const int64_t rows = (m + kRowsOfGroup - 1) / kRowsOfGroup * kRowsOfGroup;
    for (int64_t i = 0; i <= run.groups; ++i) m_indptr_.push_back(static_cast<int32_t>(i * rows));
    a_.resize(run.groups * rows * run.k);
    for (int64_t row = 0; row < run.groups * rows; ++row) {
      if (row % rows >= m) continue;
      for (int64_t i = 0; i < run.k; ++i) {
        a_[row * run.k + i] = static_cast<std::byte>(random.below(2) << 7 | random.below(0x7F));
      }
    }
    a_scale_.assign(flashinfer_group_row(m_indptr_, run.groups) * run.k / 32, std::byte{120});
    out_.resize(run.groups * rows * run.n * 2);
    gemm_.a = a_;
    gemm_.b = experts.codes;
    gemm_.a_scale = a_scale_;
    gemm_.b_scale = experts.swizzled_scales;
    gemm_.m_indptr = m_indptr_;
    gemm_.out = out_;
    gemm_.n = run.n;
    gemm_.k = run.k;
  }

  std::vector<float> x_, y_;
  std::vector<LinearProduct> linear_;
  std::vector<int32_t> m_indptr_;
  Bytes a_, a_scale_, out_;
  group_gemm::GroupGemm gemm_;
};

struct Samples {
  std::vector<double> bandwidth, linear, linear_bf16, group_gemm;
};

void print_row(int threads, int64_t m, int64_t bytes, const Samples& samples) {
  const double b = median(samples.bandwidth);
  const double one = median(samples.linear);
  const double bf16 = median(samples.linear_bf16);
  const double group = median(samples.group_gemm);
  const double rate = static_cast<double>(bytes) / group;
  fmt::print(
      "{:>7} {:>5} {:>8.1f} {:>10.2f} {:>11.2f} {:>10.2f} {:>8.1f} {:>7.0f} {:>8.2f} {:>8.2f}\n",
      threads, m, b / 1e9, 1e3 * one, 1e3 * bf16, 1e3 * group, rate / 1e9, 100 * rate / b,
      one / group, bf16 / group);
  std::fflush(stdout);
}

Status measure_threads(ExecutionOptions options, const GroupRun& run, const Experts& experts,
                       std::span<const std::byte> memory) {
  options.precision = cpu::Precision::kF32;
  SUBBYTE_TRY(const auto execution, Execution::create(options));
  options.precision = cpu::Precision::kBF16;
  SUBBYTE_TRY(const auto rounding, Execution::create(options));
  for (const int64_t m : {1, 4, 16, 128}) {
    const Products products(run, experts, m);
    Samples samples;
    for (int round = -1; round < run.rounds; ++round) {
      if (round == 0) samples = {};  // the first one found no buffers
      samples.bandwidth.push_back(
          cpu::measure_read_bandwidth(memory, execution->pool(), 1).bytes_per_second);
      SUBBYTE_TRY(const double linear, products.time_linear(*execution));
      SUBBYTE_TRY(const double bf16, products.time_linear(*rounding));
      SUBBYTE_TRY(const double group, products.time_group_gemm(*execution));
      samples.linear.push_back(linear);
      samples.linear_bf16.push_back(bf16);
      samples.group_gemm.push_back(group);
    }
    print_row(execution->pool().size(), m, experts.bytes(), samples);
  }
  return {};
}

}  // namespace

Status measure_group_gemm(const ExecutionOptions& options, const GroupRun& run) {
  const Experts experts(run);
  const auto buffer = allocate_bytes(kBandwidthBytes);
  std::memset(buffer.get(), 1, kBandwidthBytes);
  fmt::print(
      "group GEMM of MXFP8 by MXFP4, {} groups of {} x {}, M rows each, beside linear() with the "
      "same weights,\nMXFP4 in plain rows, activations f32 and bf16; medians of {}\n",
      run.groups, run.n, run.k, run.rounds);
  fmt::print("{:>7} {:>5} {:>8} {:>10} {:>11} {:>10} {:>8} {:>7} {:>8} {:>8}\n", "threads", "M",
             "B GB/s", "linear ms", "with bf16", "group ms", "GB/s", "% of B", "ratio", "to bf16");
  ExecutionOptions one = options;
  one.num_threads = 1;
  const std::span<const std::byte> memory(buffer.get(), kBandwidthBytes);
  SUBBYTE_CHECK(measure_threads(one, run, experts, memory));
  if (options.num_threads != 1) {
    SUBBYTE_CHECK(measure_threads(options, run, experts, memory));
  }
  fmt::print("\n");
  return {};
}

}  // namespace subbyte::bench
