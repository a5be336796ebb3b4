#include <algorithm>
#include <vector>

#include "codebook/kbit.h"
#include "codebook/kbit_codes.h"
#include "kernels/cpu/block_kernels.h"
#include "kernels/cpu/linear.h"

namespace subbyte::codebook {
namespace {

std::vector<float> floats_of(std::span<const std::byte> numbers, Format dtype, Executor& executor) {
  constexpr int64_t kGrain = 1 << 14;
  std::vector<float> floats(numbers.size() / 2);
  executor.parallel_for(std::ssize(floats), kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) floats[i] = load_number(numbers.data(), i, dtype);
  });
  return floats;
}

Status multiply_all(const KbitProduct& product, const KbitCodes& codes, KbitOrder order, int64_t m,
                    Executor& executor) {
  SUBBYTE_TRY(const auto execution, Execution::create({.executor = &executor}));
  SUBBYTE_TRY(const Matrix weights,
              to_matrix(codes, {product.n, product.k_dim, codes.k, order}, 0, &executor));
  return multiply(product, weights.view, 0, m, *execution);
}

}  // namespace

Result<int64_t> count_rows(const KbitProduct& p) {
  SUBBYTE_CHECK(number_bytes("a", p.dtype, true));
  const int64_t row = p.k_dim * 2;
  if (p.k_dim < 1 || p.n < 1 || std::ssize(p.a) % row != 0 || p.a.empty()) {
    return Error{"kbit.buffer", "kbit: a: expected rows of " + std::to_string(p.k_dim) +
                                    " numbers, found " + std::to_string(p.a.size()) + " bytes"};
  }
  const int64_t m = std::ssize(p.a) / row;
  SUBBYTE_CHECK(check_buffer("out", p.out.size() / 2, m * p.n));
  return m;
}

Status check_offsets(std::span<const int32_t> offsets, int64_t m) {
  const bool rise = std::ranges::is_sorted(offsets);
  if (offsets.size() >= 2 && offsets.front() == 0 && rise && offsets.back() == m) return {};
  return Error{"kbit.offsets", "kbit: expert offsets: expected numbers that rise from 0 to " +
                                   std::to_string(m) + ", one more than there are experts"};
}

Status check_scalar_rows(int64_t m) {
  constexpr int64_t kScalarRows = 4;
  if (m <= kScalarRows) return {};
  return Error{"kbit.rows",
               "kbit: a scalar gemv: expected 1 to 4 rows of a, found " + std::to_string(m)};
}

Status multiply(const KbitProduct& p, const MatrixView& weights, int64_t first, int64_t m,
                Execution& execution) {
  SUBBYTE_CHECK(check_linear(execution, weights));
  const std::vector<float> x = floats_of(p.a.subspan(static_cast<std::size_t>(first * p.k_dim * 2),
                                                     static_cast<std::size_t>(m * p.k_dim * 2)),
                                         p.dtype, execution.pool());
  std::vector<float> y(static_cast<std::size_t>(m * p.n));
  SUBBYTE_CHECK(linear(execution, y, x, m, weights));
  const auto element = p.dtype == Format::kF16 ? Element::kF16 : Element::kBF16;
  const auto store = execution.kernels().vectors->blocks->store[static_cast<int>(element)];
  store(p.out.data() + first * p.n * 2, y.data(), m * p.n);
  return {};
}

Status kbit_gemm_prod(const KbitProduct& product, const KbitCodes& tiled, int /*k_chunks*/,
                      Executor& executor) {
  SUBBYTE_TRY(const int64_t m, count_rows(product));
  return multiply_all(product, tiled, KbitOrder::kTiled, m, executor);
}

Status kbit_scalar_gemv(const KbitProduct& product, const KbitCodes& flat, Executor& executor) {
  SUBBYTE_TRY(const int64_t m, count_rows(product));
  SUBBYTE_CHECK(check_scalar_rows(m));
  return multiply_all(product, flat, KbitOrder::kFlat, m, executor);
}

Status kbit_grouped_gemm(const KbitProduct& product, const KbitCodes& tiled,
                         std::span<const int32_t> offsets, Executor& executor) {
  SUBBYTE_TRY(const int64_t m, count_rows(product));
  SUBBYTE_CHECK(check_offsets(offsets, m));
  const KbitShape shape = {product.n, product.k_dim, tiled.k, KbitOrder::kTiled};
  SUBBYTE_CHECK(check_kbit_shape(shape));
  SUBBYTE_TRY(const auto execution, Execution::create({.executor = &executor}));
  for (std::size_t e = 0; e + 1 < offsets.size(); ++e) {
    const int64_t rows = offsets[e + 1] - offsets[e];
    if (rows == 0) continue;
    SUBBYTE_TRY(const Matrix weights,
                to_matrix(tiled, shape, static_cast<int64_t>(e) * kbit_blocks(shape), &executor));
    SUBBYTE_CHECK(multiply(product, weights.view, offsets[e], rows, *execution));
  }
  return {};
}

}  // namespace subbyte::codebook
