#include "group_gemm/exact_products.h"

#include <cstring>

#include "foreign_layouts/flashinfer.h"

namespace subbyte::group_gemm {
namespace {

double scale_of(std::byte code) {
  return info(Format::kE8M0).decode(std::to_integer<uint32_t>(code));
}

float weight_of(std::byte code) {
  return static_cast<float>(info(Format::kE2M1).decode(std::to_integer<uint32_t>(code)));
}

}  // namespace

ExactProducts::ExactProducts(const GroupGemm& gemm, const Rows& rows)
    : gemm_(gemm), rows_(rows), weights_(gemm.k), scales_(gemm.k / kBlockInputs) {}

void ExactProducts::multiply(int64_t group, int64_t n, std::span<const int64_t> rows_of_a) {
  const GroupGemm& g = gemm_;
  decode_weights(group, n);
  const int64_t first = flashinfer_group_row(g.m_indptr, group);
  const std::byte* const scales = g.a_scale.data() + first * (g.k / kBlockInputs);
  for (const int64_t m : rows_of_a) {
    const double sum = product(g.a.data() + m * g.k, scales, m - g.m_indptr[group]);
    const auto code = static_cast<uint16_t>(info(g.out_dtype).encode(sum, Rounding::kNearestEven));
    std::memcpy(g.out.data() + (m * g.n + n) * 2, &code, 2);
  }
}

double ExactProducts::product(const std::byte* codes, const std::byte* scales, int64_t row) const {
  double sum = 0;
  for (int64_t block = 0; block < gemm_.k / kBlockInputs; ++block) {
    double products = 0;  // of 4 and 2 bits: exact, and so are their sums
    for (int64_t i = block * kBlockInputs; i < (block + 1) * kBlockInputs; ++i) {
      products += double{rows_.value(codes[i])} * weights_[i];
    }
    sum += products * scale_of(scales[flashinfer_scale_byte(row, block, gemm_.k)]) * scales_[block];
  }
  return sum;
}

void ExactProducts::decode_weights(int64_t group, int64_t n) {
  const GroupGemm& g = gemm_;
  const std::byte* const codes = g.b.data() + (group * g.n + n) * (g.k / 2);
  for (int64_t i = 0; i < g.k / 2; ++i) {
    weights_[2 * i] = weight_of(codes[i] & std::byte{15});
    weights_[2 * i + 1] = weight_of(codes[i] >> 4);
  }
  const std::byte* const scales =
      g.b_scale.data() + group * FlashinferShape{g.n, g.k}.scale_bytes();
  for (int64_t block = 0; block < g.k / kBlockInputs; ++block) {
    scales_[block] = scale_of(scales[flashinfer_scale_byte(n, block, g.k)]);
  }
}

}  // namespace subbyte::group_gemm
