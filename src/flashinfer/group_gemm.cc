#include "flashinfer/group_gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "foreign_layouts/flashinfer.h"

namespace subbyte::flashinfer {
namespace {

constexpr int64_t kBlock = 32;

Error refuse(std::string_view code, const std::string& argument, const std::string& expected,
             const std::string& found) {
  return {code, "group_gemm: " + argument + ": expected " + expected + ", found " + found};
}

Status check_hint(std::string_view code, const char* name, int value,
                  std::initializer_list<int> allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return {};
  std::string expected;
  for (const int one : allowed) expected += (expected.empty() ? "" : ", ") + std::to_string(one);
  return refuse(code, name, expected, std::to_string(value));
}

Status check_bytes(std::string_view code, const char* name, std::size_t found, int64_t expected) {
  if (found == static_cast<std::size_t>(expected)) return {};
  return refuse(code, name, std::to_string(expected) + " bytes", std::to_string(found));
}

std::string name_of(Format format) {
  return format == Format::kNone ? "none" : std::string(info(format).name);
}

Status check_shape(const GroupGemm& g) {
  constexpr int64_t kMaxSize = int64_t{1} << 24;
  if (g.n < 8 || g.n > kMaxSize || g.n % 8 != 0) {
    return refuse("group_gemm.n", "n", "a multiple of 8 up to 2^24", std::to_string(g.n));
  }
  if (g.k < 128 || g.k > kMaxSize || g.k % 128 != 0) {
    return refuse("group_gemm.k", "k", "a multiple of 128 up to 2^24", std::to_string(g.k));
  }
  if (g.a_dtype != Format::kE4M3 && g.a_dtype != Format::kE5M2) {
    return refuse("group_gemm.a_dtype", "a_dtype", "e4m3 or e5m2", name_of(g.a_dtype));
  }
  if (g.out_dtype != Format::kBF16 && g.out_dtype != Format::kF16) {
    return refuse("group_gemm.out_dtype", "out_dtype", "bf16 or f16", name_of(g.out_dtype));
  }
  if (const Status groups = check_flashinfer_groups(g.m_indptr); !groups.ok()) {
    return Error{"group_gemm.m_indptr", "group_gemm: " + groups.error().message};
  }
  return {};
}

int64_t groups_of(const GroupGemm& g) {
  return static_cast<int64_t>(g.m_indptr.size()) - 1;
}

template <int kCodes>
std::array<float, kCodes> values_of(Format format) {
  std::array<float, kCodes> values;
  for (int code = 0; code < kCodes; ++code) {
    values[code] = static_cast<float>(info(format).decode(static_cast<uint32_t>(code)));
  }
  return values;
}

double scale_at(std::span<const std::byte> scales, int64_t at) {
  return info(Format::kE8M0).decode(std::to_integer<uint32_t>(scales[at]));
}

/// The elements of a and, for one row of weights at a time, of b, as numbers.
class Multiplier {
 public:
  explicit Multiplier(const GroupGemm& gemm) : g_(gemm), a_(gemm.a.size()) {
    const std::array<float, 256> values = values_of<256>(gemm.a_dtype);
    for (std::size_t i = 0; i < a_.size(); ++i) {
      a_[i] = values[std::to_integer<uint32_t>(gemm.a[i])];
    }
  }

  /// Output `n` of all rows of a group. `weights` has k floats, `scales` k / 32.
  void column(int64_t group, int64_t n, float* weights, double* scales) const {
    const int64_t begin = g_.m_indptr[group];
    const int64_t end = g_.m_indptr[group + 1];
    if (begin == end) return;
    decode_row(group, n, weights, scales);
    const int64_t scale_row = flashinfer_group_row(g_.m_indptr, group);
    const std::span<const std::byte> a_scale = g_.a_scale.subspan(scale_row * (g_.k / kBlock));
    for (int64_t m = begin; m < end; ++m) {
      double sum = 0;
      for (int64_t block = 0; block < g_.k / kBlock; ++block) {
        const float* const x = a_.data() + m * g_.k + block * kBlock;
        const float* const w = weights + block * kBlock;
        double products = 0;  // of 6 and 3 bits: exact, and so are their sums
        for (int i = 0; i < kBlock; ++i) products += double{x[i]} * w[i];
        sum += products * scale_at(a_scale, flashinfer_scale_byte(m - begin, block, g_.k)) *
               scales[block];
      }
      const auto code =
          static_cast<uint16_t>(info(g_.out_dtype).encode(sum, Rounding::kNearestEven));
      std::memcpy(g_.out.data() + (m * g_.n + n) * 2, &code, 2);
    }
  }

 private:
  void decode_row(int64_t group, int64_t n, float* weights, double* scales) const {
    const std::span<const std::byte> codes = g_.b.subspan((group * g_.n + n) * (g_.k / 2));
    for (int64_t i = 0; i < g_.k / 2; ++i) {
      const auto byte = std::to_integer<uint32_t>(codes[i]);
      weights[2 * i] = e2m1_[byte & 15];
      weights[2 * i + 1] = e2m1_[byte >> 4];
    }
    const int64_t expert = FlashinferShape{g_.n, g_.k}.scale_bytes();
    const std::span<const std::byte> of_group = g_.b_scale.subspan(group * expert);
    for (int64_t block = 0; block < g_.k / kBlock; ++block) {
      scales[block] = scale_at(of_group, flashinfer_scale_byte(n, block, g_.k));
    }
  }

  const GroupGemm& g_;
  std::vector<float> a_;
  std::array<float, 16> e2m1_ = values_of<16>(Format::kE2M1);
};

}  // namespace

Status check_group_gemm(const GroupGemm& g) {
  SUBBYTE_CHECK(check_shape(g));
  SUBBYTE_CHECK(check_hint("group_gemm.mma_sm", "mma_sm", g.mma_sm, {1, 2}));
  SUBBYTE_CHECK(check_hint("group_gemm.tile_m", "tile_m", g.tile_m, {128}));
  SUBBYTE_CHECK(check_hint("group_gemm.tile_n", "tile_n", g.tile_n, {32, 64, 128, 192, 256}));
  SUBBYTE_CHECK(check_hint("group_gemm.tile_k", "tile_k", g.tile_k, {128, 256}));
  const int64_t groups = groups_of(g);
  const int64_t m = g.m_indptr.back();
  const int64_t a_scale_rows = flashinfer_group_row(g.m_indptr, groups);
  SUBBYTE_CHECK(check_bytes("group_gemm.a", "a", g.a.size(), m * g.k));
  SUBBYTE_CHECK(check_bytes("group_gemm.b", "b", g.b.size(), groups * g.n * (g.k / 2)));
  SUBBYTE_CHECK(check_bytes("group_gemm.a_scale", "a_scale", g.a_scale.size(),
                            a_scale_rows * (g.k / kBlock)));
  SUBBYTE_CHECK(check_bytes("group_gemm.b_scale", "b_scale", g.b_scale.size(),
                            groups * FlashinferShape{g.n, g.k}.scale_bytes()));
  return check_bytes("group_gemm.out", "out", g.out.size(), m * g.n * 2);
}

Status group_gemm_mxfp8_mxfp4_nt_groupwise(const GroupGemm& gemm, Executor& executor) try {
  SUBBYTE_CHECK(check_group_gemm(gemm));
  const Multiplier multiplier(gemm);
  const int64_t blocks = gemm.k / kBlock;
  std::vector<float> weights(executor.size() * gemm.k);
  std::vector<double> scales(executor.size() * blocks);
  const int64_t columns = groups_of(gemm) * gemm.n;
  executor.parallel_for(columns, 8, [&](int64_t begin, int64_t end, int task) {
    for (int64_t i = begin; i < end; ++i) {
      multiplier.column(i / gemm.n, i % gemm.n, weights.data() + task * gemm.k,
                        scales.data() + task * blocks);
    }
  });
  return {};
} catch (const std::bad_alloc&) {
  return Error{"group_gemm.out_of_memory", "group_gemm: no memory for the activations as floats"};
}

}  // namespace subbyte::flashinfer
