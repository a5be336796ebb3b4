#include "codebook/vq.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/checked.h"
#include "base/float16.h"
#include "codebook/kbit_codes.h"
#include "kernels/cpu/execution.h"
#include "quantize/kbit.h"

namespace subbyte::codebook {
namespace {

std::vector<float> values_of(std::span<const uint16_t> codebook) {
  std::vector<float> values;
  for (const uint16_t bits : codebook) values.push_back(to_float(Float16{bits}));
  return values;
}

/// The bytes of a block have an order that kbit has, too: as so many planes.
KbitShape shape_of(int64_t rows, int64_t cols, int p, KbitOrder order) {
  return {rows, cols, 8 / p, order};
}

/// The first of the nearest vectors.
uint32_t nearest(const float* x, const std::vector<float>& values, int p) {
  uint32_t best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (uint32_t code = 0; code < kVectors; ++code) {
    float distance = 0;
    for (int i = 0; i < p; ++i) {
      const float difference = x[i] - values[code * static_cast<uint32_t>(p) + i];
      distance += difference * difference;
    }
    if (distance < least) {
      least = distance;
      best = code;
    }
  }
  return best;
}

float load_scale(const VqCodes& codes, int64_t block) {
  if (codes.absmax_dtype == Format::kF16) {
    return load_number(codes.absmax.data(), block, Format::kF16);
  }
  uint32_t byte = std::to_integer<uint32_t>(codes.absmax[static_cast<std::size_t>(block)]);
  if (codes.absmax_dtype == Format::kF32) {
    byte = encode_e4m4_as_bitsandbytes(load_number(codes.absmax.data(), block, Format::kF32));
  }
  return static_cast<float>(info(Format::kE4M4).decode(byte));
}

Status check_codes(const VqCodes& codes, const KbitShape& shape) {
  SUBBYTE_CHECK(check_vq_codebook(codes.codebook, codes.p));
  SUBBYTE_CHECK(check_kbit_shape(shape));
  if (codes.absmax_dtype != Format::kE4M4) {
    SUBBYTE_CHECK(number_bytes("absmax", codes.absmax_dtype));
  }
  const auto width = static_cast<std::size_t>(info(codes.absmax_dtype).bits / 8);
  const int64_t blocks = kbit_blocks(shape);
  SUBBYTE_CHECK(check_buffer("packed", codes.packed.size(), blocks * shape.bits));
  return check_buffer("absmax", codes.absmax.size() / width, blocks);
}

/// Weights [rows][cols], the products rounded to f32.
Result<std::vector<float>> weights_of(const VqCodes& codes, const KbitShape& shape) {
  SUBBYTE_CHECK(check_codes(codes, shape));
  const std::vector<float> values = values_of(codes.codebook);
  const int64_t groups = shape.cols / kBlock;
  std::vector<float> weights;
  weights.reserve(static_cast<std::size_t>(shape.rows * shape.cols));
  for (int64_t n = 0; n < shape.rows; ++n) {
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t block = kbit_block(shape, n, group);
      const float scale = load_scale(codes, block);
      const uint32_t* words = codes.packed.data() + block * shape.bits;
      for (int i = 0; i < kBlock / codes.p; ++i) {
        const uint32_t code = words[i / 4] >> (8 * (i % 4)) & 0xFF;
        for (int j = 0; j < codes.p; ++j) {
          weights.push_back(values[code * static_cast<uint32_t>(codes.p) + j] * scale);
        }
      }
    }
  }
  return weights;
}

Status dequantize(const VqCodes& codes, const KbitShape& shape, Format dtype,
                  std::span<std::byte> out) {
  SUBBYTE_TRY(const int64_t width, number_bytes("out", dtype));
  SUBBYTE_TRY(const std::vector<float> weights, weights_of(codes, shape));
  SUBBYTE_CHECK(
      check_buffer("out", out.size() / static_cast<std::size_t>(width), std::ssize(weights)));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const uint32_t bits = info(dtype).encode(weights[i], Rounding::kNearestEven);
    std::memcpy(out.data() + i * static_cast<std::size_t>(width), &bits,
                static_cast<std::size_t>(width));
  }
  return {};
}

Status multiply_all(const KbitProduct& product, const VqCodes& codes, KbitOrder order, int64_t m,
                    Executor& executor) {
  SUBBYTE_TRY(const auto execution, Execution::create({.executor = &executor}));
  SUBBYTE_TRY(const std::vector<float> weights,
              weights_of(codes, shape_of(product.n, product.k_dim, codes.p, order)));
  MatrixView dense;
  dense.rows = product.n;
  dense.cols = product.k_dim;
  dense.codes = std::as_bytes(std::span(weights));
  return multiply(product, dense, 0, m, *execution);
}

}  // namespace

Status check_vq_codebook(std::span<const uint16_t> codebook, int p) {
  if (p != 2 && p != 4) {
    return Error{"vq.p", "vq: expected 2 or 4 weights for an index, found " + std::to_string(p)};
  }
  const bool finite = std::ranges::all_of(
      codebook, [](uint16_t bits) { return std::isfinite(to_float(Float16{bits})); });
  if (finite && codebook.size() == static_cast<std::size_t>(kVectors * p)) return {};
  return Error{"kbit.codebook", "vq: codebook: expected 256 vectors of " + std::to_string(p) +
                                    " finite numbers in f16, found " +
                                    std::to_string(codebook.size()) + " numbers"};
}

Result<Matrix> to_matrix(const VqCodes& codes, int64_t rows, int64_t cols, KbitOrder order) {
  const KbitShape shape = shape_of(rows, cols, codes.p, order);
  SUBBYTE_CHECK(check_codes(codes, shape));
  const auto values = std::make_shared<const std::vector<float>>(values_of(codes.codebook));
  const bool is_f16 = codes.absmax_dtype == Format::kF16;
  const auto width = static_cast<std::size_t>(is_f16 ? 2 : 1);
  const int64_t groups = cols / kBlock;
  const auto block_bytes = static_cast<std::size_t>(kBlock / codes.p);
  const auto blocks = static_cast<std::size_t>(rows * groups);
  auto bytes = allocate_bytes(blocks * (block_bytes + width));
  std::byte* to = bytes.get();
  std::byte* scale = bytes.get() + blocks * block_bytes;
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t group = 0; group < groups; ++group, to += block_bytes, scale += width) {
      const int64_t block = kbit_block(shape, n, group);
      std::memcpy(to, codes.packed.data() + block * shape.bits, block_bytes);
      if (codes.absmax_dtype == Format::kF32) {
        *scale = std::byte{
            encode_e4m4_as_bitsandbytes(load_number(codes.absmax.data(), block, Format::kF32))};
      } else {
        std::memcpy(scale, codes.absmax.data() + static_cast<std::size_t>(block) * width, width);
      }
    }
  }
  Matrix matrix;
  matrix.view.format = {codes.p == 2 ? Format::kVQ4 : Format::kVQ2,
                        is_f16 ? Format::kF16 : Format::kE4M4, Zero::kNone, kBlock};
  matrix.view.rows = rows;
  matrix.view.cols = cols;
  matrix.view.codes = {bytes.get(), blocks * block_bytes};
  matrix.view.scales = {bytes.get() + blocks * block_bytes, blocks * width};
  matrix.view.codebook = *values;
  matrix.owners = {std::move(bytes), values};
  return matrix;
}

Status quantize_vq(std::span<const std::byte> a, Format dtype, std::span<const uint16_t> codebook,
                   int p, std::span<uint32_t> packed, std::span<uint8_t> absmax) {
  SUBBYTE_TRY(const int64_t width, number_bytes("a", dtype));
  SUBBYTE_CHECK(check_vq_codebook(codebook, p));
  const int64_t n = std::ssize(a) / width;
  const auto blocks = static_cast<int64_t>(ceil_div(n, kBlock));
  SUBBYTE_CHECK(check_buffer("a", static_cast<std::size_t>(n), 1));
  SUBBYTE_CHECK(check_buffer("packed", packed.size(), blocks * 8 / p));
  SUBBYTE_CHECK(check_buffer("absmax", absmax.size(), blocks));
  const std::vector<float> values = values_of(codebook);
  std::ranges::fill(packed, 0u);
  std::ranges::fill(absmax, uint8_t{0});
  for (int64_t block = 0; block < blocks; ++block) {
    float x[kBlock] = {};
    float largest = 0;
    for (int64_t i = 0; i < std::min(kBlock, n - block * kBlock); ++i) {
      x[i] = load_number(a.data(), block * kBlock + i, dtype);
      if (!std::isfinite(x[i])) {
        return Error{"quantize.not_finite", "vq: a: expected finite numbers, found " +
                                                std::to_string(x[i]) + " at " +
                                                std::to_string(block * kBlock + i)};
      }
      largest = std::max(largest, std::fabs(x[i]));
    }
    absmax[static_cast<std::size_t>(block)] = encode_e4m4_as_bitsandbytes(largest);
    for (float& value : x) value /= std::max(largest, 1e-8f);
    for (int64_t i = 0; i < kBlock / p; ++i) {
      const int64_t byte = block * kBlock / p + i;
      packed[static_cast<std::size_t>(byte / 4)] |= nearest(x + i * p, values, p)
                                                    << (8 * (byte % 4));
    }
  }
  return {};
}

Status dequantize_vq(const VqCodes& codes, int64_t n, Format dtype, std::span<std::byte> out) {
  const auto blocks = static_cast<int64_t>(ceil_div(n, kBlock));
  SUBBYTE_CHECK(check_vq_codebook(codes.codebook, codes.p));
  return dequantize(codes, shape_of(blocks, kBlock, codes.p, KbitOrder::kFlat), dtype, out);
}

Status dequantize_vq_tiled(const VqCodes& codes, int64_t k_dim, int64_t n, Format dtype,
                           std::span<std::byte> out) {
  SUBBYTE_CHECK(check_vq_codebook(codes.codebook, codes.p));
  return dequantize(codes, shape_of(n, k_dim, codes.p, KbitOrder::kTiled), dtype, out);
}

Status repack_vq(std::span<const uint32_t> packed_flat, std::span<const uint8_t> absmax_flat,
                 int64_t k_dim, int64_t n, int p, std::span<uint32_t> packed,
                 std::span<uint8_t> absmax) {
  if (p != 2 && p != 4) {
    return Error{"vq.p", "vq: expected 2 or 4 weights for an index, found " + std::to_string(p)};
  }
  return repack_kbit(packed_flat, absmax_flat, k_dim, n, 8 / p, packed, absmax);
}

Status vq_gemm_prod(const KbitProduct& product, const VqCodes& tiled, Executor& executor) {
  SUBBYTE_TRY(const int64_t m, count_rows(product));
  SUBBYTE_CHECK(check_vq_codebook(tiled.codebook, tiled.p));
  return multiply_all(product, tiled, KbitOrder::kTiled, m, executor);
}

Status vq_scalar_gemv(const KbitProduct& product, const VqCodes& flat, Executor& executor) {
  SUBBYTE_TRY(const int64_t m, count_rows(product));
  SUBBYTE_CHECK(check_scalar_rows(m));
  SUBBYTE_CHECK(check_vq_codebook(flat.codebook, flat.p));
  return multiply_all(product, flat, KbitOrder::kFlat, m, executor);
}

}  // namespace subbyte::codebook
