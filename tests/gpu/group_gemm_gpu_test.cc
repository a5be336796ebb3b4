// FlashInfer's group GEMM in device memory: the bits of the one in host memory where sums are
// exact, else within a bound of sums in double precision.

#include "kernels/cuda/group_gemm/group_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "device_bytes.h"
#include "foreign_layouts/flashinfer.h"
#include "group_gemm/group_gemm.h"
#include "support/flashinfer_scales.h"
#include "support/group_gemm_oracle.h"
#include "support/value_of.h"

namespace subbyte {
namespace {

using cuda::GroupWeights;
using testing::DeviceBytes;
using testing::expect_ok;
using testing::GroupGemmOracle;
using testing::multiply_in_double;
using testing::output_of;
using testing::rounds_to;
using testing::value_of;
using Bytes = std::vector<std::byte>;

/// What codes and scales may be.
struct Contents {
  std::vector<uint8_t> a;  // E4M3 or E5M2
  int first_scale;
  int num_scales;
};

/// 0, 1, 2, 3 and 4 with both signs: sums of their products with E2M1 are exact in float32.
const Contents kExact = {{0x00, 0x38, 0x40, 0x44, 0x48, 0xB8, 0xC0, 0xC4, 0xC8}, 126, 3};
const Contents kExactE5M2 = {{0x00, 0x3C, 0x40, 0x42, 0x44, 0xBC, 0xC0, 0xC2, 0xC4}, 126, 3};

/// All finite codes of E4M3.
Contents any_numbers() {
  Contents all = {{}, 110, 30};
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) != 0x7F) all.a.push_back(static_cast<uint8_t>(code));
  }
  return all;
}

/// A GEMM in host memory, and the same weights in the order of checkpoints.
struct Problem {
  std::vector<int32_t> m_indptr;
  int64_t n, k;
  Format a_dtype = Format::kE4M3;
  Format out_dtype = Format::kBF16;
  Bytes a, a_scale, b, b_scale, plain_scales;

  Problem(std::vector<int32_t> groups, int64_t rows, int64_t cols, const Contents& contents)
      : m_indptr(std::move(groups)), n(rows), k(cols) {
    Random random(n + k + m());
    const FlashinferShape shape = {n, k};
    a.resize(m() * k);
    for (std::byte& code : a) code = std::byte{contents.a[random.below(contents.a.size())]};
    b.resize(groups_count() * n * k / 2);
    for (std::byte& code : b) code = static_cast<std::byte>(random.below(256));
    const auto scales = [&](int64_t size) {
      Bytes bytes(size);
      for (std::byte& code : bytes) {
        code = static_cast<std::byte>(contents.first_scale + random.below(contents.num_scales));
      }
      return bytes;
    };
    const Bytes of_a = scales(m() * k / 32);
    a_scale.resize(flashinfer_group_row(m_indptr, groups_count()) * k / 32);
    pack_flashinfer_activation_scales(a_scale.data(), of_a.data(), m_indptr, k);
    plain_scales = scales(groups_count() * n * k / 32);
    b_scale.resize(groups_count() * shape.scale_bytes());
    for (int64_t i = 0; i < groups_count(); ++i) {
      pack_flashinfer_scales(b_scale.data() + i * shape.scale_bytes(),
                             plain_scales.data() + i * n * k / 32, shape);
    }
  }

  int64_t m() const { return m_indptr.back(); }
  int64_t groups_count() const { return std::ssize(m_indptr) - 1; }

  group_gemm::GroupGemm gemm() const {
    group_gemm::GroupGemm gemm;
    gemm.a = a, gemm.b = b, gemm.a_scale = a_scale, gemm.b_scale = b_scale;
    gemm.m_indptr = m_indptr;
    gemm.n = n, gemm.k = k, gemm.a_dtype = a_dtype;
    gemm.out_dtype = out_dtype;
    return gemm;
  }

  Bytes on_cpu() const {
    Bytes out(m() * n * 2);
    group_gemm::GroupGemm gemm = this->gemm();
    gemm.out = out;
    ThreadPool pool(0);
    const Status status = group_gemm::group_gemm_mxfp8_mxfp4_nt_groupwise(gemm, pool);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    return out;
  }
};

/// `hints` changes the call.
template <class Hints>
Bytes on_gpu(const Problem& p, GroupWeights order, const Hints& hints) {
  const auto gemm = value_of(
      cuda::GroupGemm::create({p.groups_count(), p.n, p.k, order}, value_of(cuda::query_device())));
  const DeviceBytes a(p.a);
  const DeviceBytes a_scale(p.a_scale);
  const DeviceBytes b(p.b);
  const DeviceBytes b_scale(order == GroupWeights::kFlashinfer ? p.b_scale : p.plain_scales);
  const DeviceBytes m_indptr(std::as_bytes(std::span(p.m_indptr)));
  const DeviceBytes weights(gemm.weight_bytes());
  const DeviceBytes memory(gemm.prepare_bytes());
  const DeviceBytes workspace(gemm.workspace_bytes(p.m()));
  const DeviceBytes out(p.m() * p.n * 2);
  Status status = gemm.prepare(weights.data(), b.data(), b_scale.data(), memory.data(), nullptr);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  cuda::GroupGemmCall call = {.a = a.data(),
                              .a_scale = a_scale.data(),
                              .m_indptr = reinterpret_cast<const int32_t*>(m_indptr.data()),
                              .m = p.m(),
                              .weights = weights.data(),
                              .out = out.data(),
                              .a_dtype = p.a_dtype,
                              .out_dtype = p.out_dtype};
  hints(call);
  status = gemm.run(call, workspace.data(), nullptr);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  expect_ok(cudaDeviceSynchronize());
  for (const DeviceBytes* bytes : {&weights, &memory, &workspace, &out}) {
    EXPECT_TRUE(bytes->canaries_are_whole());
  }
  return out.read();
}

Bytes on_gpu(const Problem& p, GroupWeights order = GroupWeights::kFlashinfer) {
  return on_gpu(p, order, [](cuda::GroupGemmCall&) {});
}

std::vector<int32_t> groups_of(const std::vector<int>& rows) {
  std::vector<int32_t> m_indptr = {0};
  for (const int count : rows) m_indptr.push_back(m_indptr.back() + count);
  return m_indptr;
}

TEST(GpuGroupGemm, is_that_of_the_cpu_where_sums_are_exact) {
  const std::vector<std::vector<int>> all_rows = {
      {4},          {52, 32, 40},   {0, 4, 0, 8, 0},     {256, 0, 4, 124},
      {1000, 1048}, {20, 4, 0, 12}, {64, 64, 64, 64, 64}};
  for (const std::vector<int>& rows : all_rows) {
    for (const auto& [n, k] : {std::pair{8, 128}, {264, 256}, {720, 2944}}) {
      Problem problem(groups_of(rows), n, k, kExact);
      EXPECT_EQ(on_gpu(problem), problem.on_cpu())
          << n << " x " << k << ", " << problem.groups_count() << " groups of " << problem.m();
    }
  }
}

TEST(GpuGroupGemm, takes_e5m2) {
  Problem problem(groups_of({12, 0, 300}), 136, 384, kExactE5M2);
  problem.a_dtype = Format::kE5M2;
  EXPECT_EQ(on_gpu(problem), problem.on_cpu());
}

/// Sums of every kernel, rounded once; some are infinite in f16.
TEST(GpuGroupGemm, gives_f16) {
  for (const std::vector<int>& rows : {std::vector{4, 8}, {40, 0, 60}, {600, 700}, {1000, 1048}}) {
    for (const int n : {264, 328}) {
      Problem problem(groups_of(rows), n, 640, kExact);
      problem.out_dtype = Format::kF16;
      EXPECT_EQ(on_gpu(problem), problem.on_cpu()) << n << " of " << problem.m();
    }
  }
}

/// Products of two numbers are exact in float32. Each of k additions may cut the sum, at most that
/// of all magnitudes, at 2^-23 of it: tensor cores cut, hence not 2^-24. Then it is rounded once.
double cut_bound(const GroupGemmOracle& oracle, int64_t i, int64_t k) {
  return static_cast<double>(k) * 0x1p-23 * 1.01 * oracle.magnitudes[i];
}

TEST(GpuGroupGemm, is_near_the_exact_sums_for_any_numbers) {
  for (const std::vector<int>& rows : {std::vector{4, 8}, {40, 0, 60}, {600, 700}}) {
    const Problem problem(groups_of(rows), 328, 640, any_numbers());
    const GroupGemmOracle oracle = multiply_in_double(problem.gemm());
    const Bytes found = on_gpu(problem);
    for (int64_t i = 0; i < problem.m() * problem.n; ++i) {
      const double y = output_of(problem.gemm(), found, i);
      ASSERT_TRUE(rounds_to(Format::kBF16, oracle.sums[i], cut_bound(oracle, i, problem.k), y))
          << i << ": " << y << ", expected " << oracle.sums[i];
    }
  }
}

/// The sums of magnitudes of those products whose weight is below 2^-126.
std::vector<double> subnormal_part(const Problem& problem) {
  Problem part = problem;
  for (int64_t i = 0; i < std::ssize(part.b); ++i) {
    const double scale =
        info(Format::kE8M0).decode(std::to_integer<uint32_t>(part.plain_scales[i / 16]));
    for (const int shift : {0, 4}) {
      const auto code = std::to_integer<uint32_t>(part.b[i]) >> shift & 15;
      const bool is_subnormal = std::fabs(info(Format::kE2M1).decode(code)) * scale < 0x1p-126;
      if (!is_subnormal) part.b[i] &= static_cast<std::byte>(0xF0 >> shift);
    }
  }
  return multiply_in_double(part.gemm()).magnitudes;
}

/// Every E4M3 code by every scale of weights. Scales 0 to 127 are those of the outputs of the first
/// group, whose activations have the scale 2^60, the others those of the second, with 2^-60, so
/// that sums are normal float32 numbers. What may differ is what BF16 does not hold: weights below
/// 2^-126 may count as 0, and rows with weights of 2^128 and more may be infinite, or NaN where two
/// such meet. Rows of a with codes for NaN are NaN.
TEST(GpuGroupGemm, all_codes_of_activations_by_all_scales_of_weights) {
  for (const int rows : {4, 64, 600}) {
    Problem problem(groups_of({rows, rows}), 128, 256, any_numbers());
    const FlashinferShape shape = {problem.n, problem.k};
    for (int64_t row = 0; row < 2 * rows; ++row) {
      for (int64_t i = 0; i < problem.k; ++i) {
        const bool is_nan = (i & 0x7F) == 0x7F;
        problem.a[row * problem.k + i] =
            is_nan && row % rows != rows - 1 ? std::byte{0x7E} : static_cast<std::byte>(i);
      }
    }
    const int64_t second = flashinfer_group_row(problem.m_indptr, 1) * (problem.k / 32);
    std::fill(problem.a_scale.begin(), problem.a_scale.begin() + second, std::byte{127 + 60});
    std::fill(problem.a_scale.begin() + second, problem.a_scale.end(), std::byte{127 - 60});
    for (int64_t i = 0; i < std::ssize(problem.plain_scales); ++i) {
      problem.plain_scales[i] = static_cast<std::byte>(i / (problem.k / 32));
    }
    for (int64_t i = 0; i < 2; ++i) {
      pack_flashinfer_scales(problem.b_scale.data() + i * shape.scale_bytes(),
                             problem.plain_scales.data() + i * 128 * problem.k / 32, shape);
    }
    const std::vector<double> lost = subnormal_part(problem);
    const group_gemm::GroupGemm gemm = problem.gemm();
    const GroupGemmOracle oracle = multiply_in_double(gemm);
    const Bytes found = on_gpu(problem);
    for (int64_t i = 0; i < 2 * rows * problem.n; ++i) {
      const int64_t row = i / problem.n;
      const int64_t scale = row / rows * 128 + i % problem.n;
      const double y = output_of(gemm, found, i);
      if (scale == 255 || row % rows == rows - 1) {
        ASSERT_TRUE(std::isnan(y)) << row << " by scale " << scale;
      } else if (scale < 253 || std::isfinite(y)) {
        const double bound = cut_bound(oracle, i, problem.k) + lost[i];
        ASSERT_TRUE(rounds_to(Format::kBF16, oracle.sums[i], bound, y))
            << row << " by scale " << scale << ": " << y << ", expected " << oracle.sums[i];
      }
    }
  }
}

TEST(GpuGroupGemm, takes_the_weights_of_checkpoints) {
  const Problem problem(groups_of({60, 4}), 264, 256, any_numbers());
  EXPECT_EQ(on_gpu(problem, GroupWeights::kCheckpoint), on_gpu(problem));
}

TEST(GpuGroupGemm, hints_change_no_bit) {
  const Problem problem(groups_of({60, 4, 200}), 264, 256, any_numbers());
  const Bytes expected = on_gpu(problem);
  for (const bool swap_ab : {false, true}) {
    for (const int tile_n : {32, 64, 192, 256}) {
      EXPECT_EQ(expected, on_gpu(problem, GroupWeights::kFlashinfer, [&](auto& call) {
                  call.swap_ab = swap_ab;
                  call.mma_sm = 2;
                  call.tile_n = tile_n;
                  call.tile_k = 256;
                }));
    }
  }
}

TEST(GpuGroupGemm, scales_of_all_values) {
  Problem problem(groups_of({256}), 256, 128, kExact);
  const FlashinferShape shape = {256, 128};
  for (int row = 0; row < 256; ++row) {  // of a, with that of the weights in the middle
    for (int group = 0; group < 4; ++group) {
      problem.a_scale[flashinfer_scale_byte(row, group, 128)] = static_cast<std::byte>(row);
      problem.b_scale[flashinfer_scale_byte(row, group, 128)] =
          static_cast<std::byte>(row == 255 ? 255 : 127);
    }
  }
  ASSERT_EQ(shape.scale_bytes(), std::ssize(problem.b_scale));
  const Bytes expected = problem.on_cpu();
  const Bytes found = on_gpu(problem);
  for (int64_t i = 0; i < 256 * 256; ++i) {
    const double y = output_of(problem.gemm(), expected, i);
    const double z = output_of(problem.gemm(), found, i);
    if (std::isnan(y)) {
      EXPECT_TRUE(i / 256 == 255 || i % 256 == 255);
      EXPECT_TRUE(std::isnan(z)) << i;
    } else if (i / 256 >= 9 && i / 256 < 240) {  // all products are normal numbers
      EXPECT_EQ(y, z) << i;
    }
  }
}

TEST(GpuGroupGemm, wrong_groups_write_nothing_else) {
  Problem problem(groups_of({40, 24}), 64, 128, kExact);
  const Bytes whole = on_gpu(problem);
  for (const auto& wrong : {std::vector<int32_t>{0, 4000, 64}, {-8, 40, 1 << 30}, {0, 64, 20}}) {
    Problem other = problem;
    other.m_indptr = wrong;
    other.m_indptr.back() = wrong.back();
    const DeviceBytes m_indptr(std::as_bytes(std::span(wrong)));
    const Bytes found = on_gpu(problem, GroupWeights::kFlashinfer, [&](auto& call) {
      call.m_indptr = reinterpret_cast<const int32_t*>(m_indptr.data());
    });
    EXPECT_EQ(found.size(), whole.size());  // the canaries have been looked at
  }
}

TEST(GpuGroupGemm, refuses_by_name) {
  const auto device = cuda::query_device();
  ASSERT_TRUE(device.ok());
  const auto code_of = [&](int64_t groups, int64_t n, int64_t k, GroupWeights order) {
    const auto gemm = cuda::GroupGemm::create({groups, n, k, order}, *device);
    return gemm.ok() ? std::string() : std::string(gemm.error().code);
  };
  EXPECT_EQ(code_of(0, 8, 128, GroupWeights::kFlashinfer), "group_gemm.groups");
  EXPECT_EQ(code_of(1, 12, 128, GroupWeights::kFlashinfer), "group_gemm.n");
  EXPECT_EQ(code_of(1, 8, 160, GroupWeights::kFlashinfer), "group_gemm.k");
  EXPECT_EQ(code_of(1, 8, 160, GroupWeights::kCheckpoint), "");
  const auto gemm = cuda::GroupGemm::create({1, 8, 128, GroupWeights::kFlashinfer}, *device);
  ASSERT_TRUE(gemm.ok());
  const DeviceBytes bytes(4096);
  const auto refusal = [&](auto change) {
    cuda::GroupGemmCall call = {.a = bytes.data(),
                                .a_scale = bytes.data(),
                                .m_indptr = reinterpret_cast<const int32_t*>(bytes.data()),
                                .m = 4,
                                .weights = bytes.data(),
                                .out = bytes.data()};
    change(call);
    const Status status = gemm->run(call, bytes.data(), nullptr);
    return status.ok() ? std::string() : std::string(status.error().code);
  };
  EXPECT_EQ(refusal([](auto& c) { c.a = nullptr; }), "group_gemm.a");
  EXPECT_EQ(refusal([](auto& c) { c.m = -1; }), "group_gemm.m");
  EXPECT_EQ(refusal([](auto& c) { c.a_dtype = Format::kF16; }), "group_gemm.a_dtype");
  EXPECT_EQ(refusal([](auto& c) { c.out_dtype = Format::kF32; }), "group_gemm.out_dtype");
  EXPECT_EQ(refusal([](auto& c) { c.mma_sm = 3; }), "group_gemm.mma_sm");
  EXPECT_EQ(refusal([](auto& c) { c.tile_n = 48; }), "group_gemm.tile_n");
}

}  // namespace
}  // namespace subbyte
