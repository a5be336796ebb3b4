#include <algorithm>
#include <vector>

#include "base/float16.h"
#include "bitsandbytes/kbit.h"
#include "bitsandbytes/kbit_codes.h"
#include "cpu_backend/linear.h"
#include "kernels/cpu/block_kernels.h"

namespace subbyte::bitsandbytes {
namespace {

constexpr int64_t kScalarRows = 4;

/// M, which both buffers must have.
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

std::vector<float> floats_of(std::span<const std::byte> numbers, Format dtype) {
  std::vector<float> floats(numbers.size() / 2);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    uint16_t bits = 0;
    __builtin_memcpy(&bits, numbers.data() + 2 * i, 2);
    floats[i] = dtype == Format::kF16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
  }
  return floats;
}

/// Rows [first, first + m) of a times the weights whose blocks begin at `first_block`.
Status multiply(const KbitProduct& p, const KbitCodes& codes, const KbitShape& shape,
                int64_t first_block, int64_t first, int64_t m, Execution& execution) {
  SUBBYTE_TRY(const Matrix weights, to_matrix(codes, shape, first_block));
  SUBBYTE_CHECK(check_linear(execution, weights.view));
  const std::vector<float> x = floats_of(p.a.subspan(static_cast<std::size_t>(first * p.k_dim * 2),
                                                     static_cast<std::size_t>(m * p.k_dim * 2)),
                                         p.dtype);
  std::vector<float> y(static_cast<std::size_t>(m * p.n));
  SUBBYTE_CHECK(linear(execution, y, x, m, weights.view));
  const auto element =
      p.dtype == Format::kF16 ? cpu::BufferElement::kF16 : cpu::BufferElement::kBF16;
  const auto store = execution.kernels().vectors->blocks->store[static_cast<int>(element)];
  store(p.out.data() + first * p.n * 2, y.data(), m * p.n);
  return {};
}

Status multiply(const KbitProduct& product, const KbitCodes& codes, KbitOrder order, int64_t m,
                Executor& executor) {
  SUBBYTE_TRY(const auto execution, Execution::create({.executor = &executor}));
  return multiply(product, codes, {product.n, product.k_dim, codes.k, order}, 0, 0, m, *execution);
}

Status check_offsets(std::span<const int32_t> offsets, int64_t m) {
  const bool rise = std::ranges::is_sorted(offsets);
  if (offsets.size() >= 2 && offsets.front() == 0 && rise && offsets.back() == m) return {};
  return Error{"kbit.offsets", "kbit: expert offsets: expected numbers that rise from 0 to " +
                                   std::to_string(m) + ", one more than there are experts"};
}

}  // namespace

Status kbit_gemm_prod(const KbitProduct& product, const KbitCodes& tiled, int /*k_chunks*/,
                      Executor& executor) {
  SUBBYTE_TRY(const int64_t m, count_rows(product));
  return multiply(product, tiled, KbitOrder::kTiled, m, executor);
}

Status kbit_scalar_gemv(const KbitProduct& product, const KbitCodes& flat, Executor& executor) {
  SUBBYTE_TRY(const int64_t m, count_rows(product));
  if (m > kScalarRows) {
    return Error{"kbit.rows",
                 "kbit: kbit_scalar_gemv: expected 1 to 4 rows of a, found " + std::to_string(m)};
  }
  return multiply(product, flat, KbitOrder::kFlat, m, executor);
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
    SUBBYTE_CHECK(multiply(product, tiled, shape, static_cast<int64_t>(e) * kbit_blocks(shape),
                           offsets[e], rows, *execution));
  }
  return {};
}

}  // namespace subbyte::bitsandbytes
