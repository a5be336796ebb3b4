#include "codebook/kbit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/float16.h"
#include "codebook/kbit_codes.h"
#include "kernels/cpu/blocks.h"
#include "matrix/codebook.h"
#include "quantize/codebook_encoder.h"
#include "quantize/kbit.h"

namespace subbyte::codebook {
namespace {

int64_t count_blocks(int64_t n) {
  return static_cast<int64_t>(ceil_div(n, kBlock));
}

/// Blocks of a flat buffer, as a matrix of one block a row.
KbitShape flat_blocks(int64_t blocks, int k) {
  return {blocks, kBlock, k, KbitOrder::kFlat};
}

std::span<std::byte> add_buffer(Matrix& matrix, int64_t size) {
  const auto bytes = allocate_bytes(static_cast<std::size_t>(size));
  matrix.owners.push_back(bytes);
  return {bytes.get(), static_cast<std::size_t>(size)};
}

/// body(begin, end) for parts of the outputs.
void for_rows(Executor* executor, int64_t rows, FunctionRef<void(int64_t, int64_t)> body) {
  constexpr int64_t kGrain = 16;
  if (executor == nullptr) return body(0, rows);
  executor->parallel_for(rows, kGrain, [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

/// What is not E4M4 or F16 becomes E4M4.
void put_scales(Matrix& matrix, const KbitCodes& codes, const KbitShape& shape, int64_t first_block,
                Executor* executor) {
  MatrixView& view = matrix.view;
  view.format.scale = codes.absmax_dtype == Format::kF16 ? Format::kF16 : Format::kE4M4;
  const int width = view.format.scale == Format::kF16 ? 2 : 1;
  const std::span<std::byte> scales = add_buffer(matrix, view.rows * view.groups() * width);
  view.scales = scales;
  if (codes.absmax_dtype != Format::kF32) {
    for_rows(executor, shape.rows, [&](int64_t begin, int64_t end) {
      unpack_kbit_scales_of_rows(scales.data(), codes.absmax.data() + first_block * width, shape,
                                 width, begin, end);
    });
    return;
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(kbit_blocks(shape)));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const float scale =
        load_number(codes.absmax.data(), first_block + static_cast<int64_t>(i), Format::kF32);
    bytes[i] = std::byte{encode_e4m4_as_bitsandbytes(scale)};
  }
  unpack_kbit_scales(scales.data(), bytes.data(), shape, 1);
}

Status dequantize(const KbitCodes& codes, const KbitShape& shape, Format dtype,
                  std::span<std::byte> out, Executor& executor) {
  SUBBYTE_TRY(const int64_t width, number_bytes("out", dtype));
  SUBBYTE_CHECK(check_kbit_shape(shape));
  SUBBYTE_CHECK(
      check_buffer("out", out.size() / static_cast<std::size_t>(width), shape.rows * shape.cols));
  SUBBYTE_TRY(const Matrix matrix, to_matrix(codes, shape, 0, &executor));
  SUBBYTE_TRY(const cpu::Kernels* kernels, cpu::select_kernels());
  return cpu::dequantize(matrix.view, dtype, out.data(), *kernels, executor);
}

/// Zeros after the blocks.
void pad(std::span<uint32_t> packed, std::span<uint8_t> absmax, int64_t blocks, int k) {
  std::ranges::fill(packed.subspan(static_cast<std::size_t>(blocks * k)), 0u);
  std::ranges::fill(absmax.subspan(static_cast<std::size_t>(blocks)), uint8_t{0});
}

Status reorder(std::span<const uint32_t> packed_from, std::span<const uint8_t> absmax_from,
               const KbitShape& from, const KbitShape& to, std::span<uint32_t> packed,
               std::span<uint8_t> absmax) {
  SUBBYTE_CHECK(check_kbit_shape(from));
  SUBBYTE_CHECK(check_kbit_shape(to));
  SUBBYTE_CHECK(check_buffer("packed", packed_from.size(), kbit_blocks(from) * from.bits));
  SUBBYTE_CHECK(check_buffer("absmax", absmax_from.size(), kbit_blocks(from)));
  const int64_t blocks = kbit_blocks(to);
  SUBBYTE_CHECK(check_buffer("packed of the result", packed.size(), (blocks + 1) * to.bits));
  SUBBYTE_CHECK(check_buffer("absmax of the result", absmax.size(), blocks + 1));
  std::ranges::fill(packed, 0u);
  std::ranges::fill(absmax, uint8_t{0});
  for (int64_t n = 0; n < from.rows; ++n) {
    for (int64_t group = 0; group < from.cols / kBlock; ++group) {
      const int64_t source = kbit_block(from, n, group);
      const int64_t target = kbit_block(to, n, group);
      std::copy_n(packed_from.data() + source * from.bits, from.bits,
                  packed.data() + target * to.bits);
      absmax[target] = absmax_from[source];
    }
  }
  return {};
}

}  // namespace

Status check_buffer(std::string_view name, std::size_t found, int64_t expected) {
  if (expected >= 0 && found >= static_cast<std::size_t>(expected)) return {};
  return Error{"kbit.buffer", "kbit: " + std::string(name) + ": expected at least " +
                                  std::to_string(expected) + " elements, found " +
                                  std::to_string(found)};
}

Result<int64_t> number_bytes(std::string_view name, Format dtype, bool halves) {
  if (dtype == Format::kF16 || dtype == Format::kBF16 || (dtype == Format::kF32 && !halves)) {
    return info(dtype).bits / 8;
  }
  return Error{"kbit.dtype", "kbit: " + std::string(name) + ": expected f16" +
                                 (halves ? " or" : ",") + " bf16" + (halves ? "" : " or f32") +
                                 ", found " +
                                 (dtype == Format::kNone ? "none" : std::string(info(dtype).name))};
}

Status check_e4m4_range(std::span<const std::byte> numbers, Format dtype) {
  constexpr float kEnd = 32;
  float largest = 0;  // of those that are finite: the quantizers name others
  for (int64_t i = 0; i < std::ssize(numbers) * 8 / info(dtype).bits; ++i) {
    const float magnitude = std::fabs(load_number(numbers.data(), i, dtype));
    if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
  }
  if (largest >= kEnd) {
    return Error{"quantize.scale_overflow",
                 "kbit: expected numbers below 32, as scales of E4M4 hold, found one of " +
                     std::to_string(largest)};
  }
  if (largest == 0 || encode_e4m4_as_bitsandbytes(largest) != 0) return {};
  return Error{"quantize.loss",
               "kbit: expected numbers from 2^-15 on, as scales of E4M4 hold, found none among "
               "those that are not 0"};
}

float load_number(const std::byte* from, int64_t i, Format dtype) {
  uint32_t bits = 0;
  const int64_t width = info(dtype).bits / 8;
  std::memcpy(&bits, from + i * width, width);
  if (dtype == Format::kF16) return to_float(Float16{static_cast<uint16_t>(bits)});
  if (dtype == Format::kBF16) return to_float(BFloat16{static_cast<uint16_t>(bits)});
  return std::bit_cast<float>(bits);
}

Result<std::array<float, 31>> kbit_thresholds(std::span<const float> codebook, int k) {
  if (k < 2 || k > 5) {
    return Error{"quantize.bits", "kbit of " + std::to_string(k) + " bits, expected 2 to 5"};
  }
  const std::string fault = codebook_fault(codebook, kbit_element(k));
  if (!fault.empty()) return Error{"quantize.codebook", "codebook of kbit: expected " + fault};
  std::array<float, 31> thresholds = {};
  std::ranges::copy(CodebookEncoder(codebook).thresholds(), thresholds.begin());
  return thresholds;
}

Result<Matrix> to_matrix(const KbitCodes& codes, const KbitShape& shape, int64_t first_block,
                         Executor* executor) {
  SUBBYTE_CHECK(check_kbit_shape(shape));
  const std::string fault = codebook_fault(codes.codebook, kbit_element(shape.bits));
  if (!fault.empty()) return Error{"kbit.codebook", "kbit: codebook: expected " + fault};
  const int64_t end = first_block + kbit_blocks(shape);
  if (codes.absmax_dtype != Format::kE4M4) {
    SUBBYTE_CHECK(number_bytes("absmax", codes.absmax_dtype));
  }
  const auto width = static_cast<std::size_t>(info(codes.absmax_dtype).bits / 8);
  SUBBYTE_CHECK(check_buffer("packed", codes.packed.size(), end * shape.bits));
  SUBBYTE_CHECK(check_buffer("absmax", codes.absmax.size() / width, end));
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.format = {kbit_element(shape.bits), Format::kE4M4, Zero::kNone, kBlock};
  view.rows = shape.rows;
  view.cols = shape.cols;
  const std::span<std::byte> canonical = add_buffer(matrix, view.rows * view.row_bytes());
  const auto planes =
      std::as_bytes(codes.packed.subspan(static_cast<std::size_t>(first_block * shape.bits)));
  for_rows(executor, view.rows, [&](int64_t row, int64_t last) {
    unpack_kbit_rows(canonical.data(), planes.data(), shape, row, last);
  });
  view.codes = canonical;
  put_scales(matrix, codes, shape, first_block, executor);
  if (!std::ranges::equal(codes.codebook, default_codebook(view.format.element))) {
    view.codebook = codes.codebook;
  }
  return matrix;
}

int64_t kbit_packed_words(int64_t n, int k) {
  return (count_blocks(n) + 1) * k;
}

int64_t kbit_absmax_elements(int64_t n) {
  return count_blocks(n) + 1;
}

Status quantize_kbit(std::span<const std::byte> a, Format dtype, std::span<const float> codebook,
                     int k, std::span<uint32_t> packed, std::span<uint8_t> absmax,
                     Executor& executor, bool nearest_scales) {
  SUBBYTE_TRY(const int64_t width, number_bytes("a", dtype));
  const int64_t n = std::ssize(a) / width;
  const int64_t blocks = count_blocks(n);
  SUBBYTE_CHECK(check_buffer("a", a.size() / static_cast<std::size_t>(width), 1));
  SUBBYTE_CHECK(check_buffer("packed", packed.size(), kbit_packed_words(n, k)));
  SUBBYTE_CHECK(check_buffer("absmax", absmax.size(), kbit_absmax_elements(n)));
  const auto read_block = [&](int64_t block, float* out) {
    for (int64_t i = 0; i < kBlock; ++i) {
      const int64_t at = block * kBlock + i;
      out[i] = at < n ? load_number(a.data(), at, dtype) : 0;
    }
  };
  KbitOptions options;
  options.bits = k;
  options.rule = nearest_scales ? KbitRule::kStoredScale : KbitRule::kBitsandbytes;
  options.codebook = codebook;
  SUBBYTE_TRY(const Matrix matrix,
              subbyte::quantize_kbit(blocks, kBlock, options, read_block, executor));
  pack_kbit(std::as_writable_bytes(packed).data(), matrix.view.codes.data(),
            flat_blocks(blocks, k));
  std::memcpy(absmax.data(), matrix.view.scales.data(), static_cast<std::size_t>(blocks));
  pad(packed, absmax, blocks, k);
  return {};
}

Status dequantize_kbit(const KbitCodes& codes, int64_t n, Format dtype, std::span<std::byte> out,
                       Executor& executor) {
  return dequantize(codes, flat_blocks(count_blocks(n), codes.k), dtype, out, executor);
}

Status dequantize_kbit_tiled(const KbitCodes& codes, int64_t k_dim, int64_t n, Format dtype,
                             std::span<std::byte> out, Executor& executor) {
  return dequantize(codes, {n, k_dim, codes.k, KbitOrder::kTiled}, dtype, out, executor);
}

Status repack_kbit(std::span<const uint32_t> packed_flat, std::span<const uint8_t> absmax_flat,
                   int64_t k_dim, int64_t n, int k, std::span<uint32_t> packed,
                   std::span<uint8_t> absmax) {
  return reorder(packed_flat, absmax_flat, {n, k_dim, k, KbitOrder::kFlat},
                 {n, k_dim, k, KbitOrder::kTiled}, packed, absmax);
}

Status flatten_kbit(std::span<const uint32_t> packed_tiled, std::span<const uint8_t> absmax_tiled,
                    int64_t k_dim, int64_t n, int k, std::span<uint32_t> packed,
                    std::span<uint8_t> absmax) {
  return reorder(packed_tiled, absmax_tiled, {n, k_dim, k, KbitOrder::kTiled},
                 {n, k_dim, k, KbitOrder::kFlat}, packed, absmax);
}

}  // namespace subbyte::codebook
