#include "foreign_layouts/int4pack.h"

#include <cmath>
#include <string>

namespace subbyte {
namespace {

constexpr int kMiddle = 8;
constexpr int kMaxZero = 16;  // GPTQ version 1 can mean it

int64_t tile_width(CpuTile tile) {
  switch (tile) {
    case CpuTile::kHalves64:
      return 64;
    case CpuTile::kHalves32:
    case CpuTile::kPairs32:
      return 32;
    case CpuTile::kPairs16:
      break;
  }
  return 16;
}

Error shape_error(std::string_view what, int64_t rows, int64_t cols) {
  return {"layout.shape", std::string(what) + ", found " + std::to_string(rows) + " outputs and " +
                              std::to_string(cols) + " inputs"};
}

/// Output and group for messages.
std::string place_of(int64_t n, int64_t g) {
  return " of output " + std::to_string(n) + ", group " + std::to_string(g);
}

uint32_t load(const std::byte* from, int64_t width) {
  uint32_t bits = 0;
  __builtin_memcpy(&bits, from, static_cast<std::size_t>(width));
  return bits;
}

void store(std::byte* to, uint32_t bits, int64_t width) {
  __builtin_memcpy(to, &bits, static_cast<std::size_t>(width));
}

bool is_float(Format type) {
  return type == Format::kF16 || type == Format::kBF16 || type == Format::kF32;
}

/// (8 - zero) * s rounded once: the product of a small integer and a float is exact in a double.
/// Adding 0 makes -0 a 0.
uint32_t offset_of(const FormatInfo& type, double scale, int zero) {
  return type.encode((kMiddle - zero) * scale + 0.0, Rounding::kNearestEven);
}

/// The zero point whose offset is z, or -1. Offsets of different ones differ by a whole scale.
int zero_of(const FormatInfo& type, double scale, double z) {
  if (scale == 0) return z == 0 ? kMiddle : -1;
  const double nearest = kMiddle - std::nearbyint(z / scale);
  if (!(nearest >= 0 && nearest <= kMaxZero)) return -1;
  const int zero = static_cast<int>(nearest);
  return type.decode(offset_of(type, scale, zero)) == z ? zero : -1;
}

}  // namespace

Status check_int4pack_cpu_shape(int64_t rows, int64_t cols) {
  if (rows > 0 && cols > 0 && rows % 16 == 0 && cols % 2 == 0) return {};
  return shape_error("int4pack for CPUs needs outputs in 16s and inputs in 2s", rows, cols);
}

NibblePlace int4pack_cpu_place(int64_t n, int64_t k, int64_t rows, int64_t cols, CpuTile tile) {
  const int64_t full = tile_width(tile);
  const int64_t first = n / full * full;
  const int64_t width = std::min(full, rows - first);
  const int64_t r = n - first;
  const int64_t row = first * cols / 2 + k * width / 2;
  const bool halves = tile == CpuTile::kHalves64 || tile == CpuTile::kHalves32;
  if (halves && width == full) return {row + r % (width / 2), r < width / 2 ? 0 : 4};
  return {row + r / 2, static_cast<int>(r % 2 * 4)};
}

void pack_int4_cpu(std::byte* to, const std::byte* codes, int64_t rows, int64_t cols,
                   CpuTile tile) {
  pack_nibbles(to, codes, rows, cols,
               [=](int64_t n, int64_t k) { return int4pack_cpu_place(n, k, rows, cols, tile); });
}

void unpack_int4_cpu(std::byte* codes, const std::byte* from, int64_t rows, int64_t cols,
                     CpuTile tile) {
  unpack_nibbles(codes, from, rows, cols,
                 [=](int64_t n, int64_t k) { return int4pack_cpu_place(n, k, rows, cols, tile); });
}

Status check_int4pack_cuda_shape(int64_t rows, int64_t cols, int inner_k_tiles) {
  const bool known = inner_k_tiles == 2 || inner_k_tiles == 4 || inner_k_tiles == 8;
  if (!known) {
    return Error{"layout.shape",
                 "expected 2, 4 or 8 for inner_k_tiles, found " + std::to_string(inner_k_tiles)};
  }
  if (rows > 0 && cols > 0 && rows % 8 == 0 && cols % (16 * inner_k_tiles) == 0) return {};
  return shape_error("int4pack for CUDA needs outputs in 8s and inputs in " +
                         std::to_string(16 * inner_k_tiles) + "s",
                     rows, cols);
}

NibblePlace int4pack_cuda_place(int64_t n, int64_t k, int64_t cols, int inner_k_tiles) {
  const int64_t tile_inputs = 16 * inner_k_tiles;
  const int64_t tile = n / 8 * (cols / tile_inputs) + k / tile_inputs;
  const int64_t lane = n % 8 * 4 + k % 8 / 2;
  const int64_t word = (tile * 32 + lane) * (inner_k_tiles / 2) + k % tile_inputs / 32;
  const int64_t nibble = k % 2 * 4 + k % 32 / 8;
  return {word * 4 + nibble / 2, static_cast<int>(nibble % 2 * 4)};
}

void pack_int4_cuda(std::byte* to, const std::byte* codes, int64_t rows, int64_t cols,
                    int inner_k_tiles) {
  pack_nibbles(to, codes, rows, cols, [=](int64_t n, int64_t k) {
    return int4pack_cuda_place(n, k, cols, inner_k_tiles);
  });
}

void unpack_int4_cuda(std::byte* codes, const std::byte* from, int64_t rows, int64_t cols,
                      int inner_k_tiles) {
  unpack_nibbles(codes, from, rows, cols, [=](int64_t n, int64_t k) {
    return int4pack_cuda_place(n, k, cols, inner_k_tiles);
  });
}

Result<std::vector<std::byte>> pack_scales_and_zeros(const MatrixView& matrix, Format type,
                                                     OffsetScale offset) {
  if (matrix.format.element != Format::kU4 || matrix.format.zero != Zero::kU8 ||
      !is_float(matrix.format.scale) || !is_float(type) || matrix.tensor_scale != 1) {
    return Error{
        "layout.format",
        "scales_and_zeros are of u4 with zero points and scales in f16, bf16 or f32, not " +
            to_string(matrix.format)};
  }
  const FormatInfo& from = info(matrix.format.scale);
  const FormatInfo& to = info(type);
  const int64_t width = to.bits / 8;
  const int64_t groups = matrix.groups();
  std::vector<std::byte> tensor(2 * matrix.rows * groups * width);
  for (int64_t n = 0; n < matrix.rows; ++n) {
    for (int64_t g = 0; g < groups; ++g) {
      const std::byte* at = matrix.scales.data() + (n * groups + g) * (from.bits / 8);
      const double stored = from.decode(load(at, from.bits / 8));
      const uint32_t scale = to.encode(stored, Rounding::kNearestEven);
      const double rounded = to.decode(scale);
      const int zero = std::to_integer<int>(matrix.zeros[n * groups + g]);
      if (zero > kMaxZero) {
        return Error{"layout.zero_range",
                     "zero point " + std::to_string(zero) + place_of(n, g) + ": expected 0 to 16"};
      }
      const uint32_t z = offset_of(to, offset == OffsetScale::kStored ? stored : rounded, zero);
      if (!std::isfinite(rounded) || !std::isfinite(to.decode(z))) {
        return Error{"layout.scale_range", "the scale" + place_of(n, g) +
                                               ", or its offset, is beyond what " +
                                               std::string(to.name) + " holds"};
      }
      std::byte* pair = tensor.data() + (g * matrix.rows + n) * 2 * width;
      store(pair, scale, width);
      store(pair + width, z, width);
    }
  }
  return tensor;
}

Result<std::vector<std::byte>> pack_scales_and_zeros(const MatrixView& matrix) {
  const WeightFormat& format = matrix.format;
  if (!is_offset(format.zero)) {
    return pack_scales_and_zeros(matrix, format.scale, OffsetScale::kStored);
  }
  if (format.element != Format::kI4 || format.scale != offset_format(format.zero) ||
      matrix.tensor_scale != 1) {
    return Error{"layout.format",
                 "scales_and_zeros with offsets are of i4 with scales of the same type, not " +
                     to_string(format)};
  }
  const int64_t width = info(format.scale).bits / 8;
  std::vector<std::byte> tensor(matrix.scales.size() + matrix.zeros.size());
  for (int64_t n = 0; n < matrix.rows; ++n) {
    for (int64_t g = 0; g < matrix.groups(); ++g) {
      const int64_t index = n * matrix.groups() + g;
      std::byte* pair = tensor.data() + (g * matrix.rows + n) * 2 * width;
      store(pair, load(matrix.scales.data() + index * width, width), width);
      store(pair + width, load(matrix.zeros.data() + index * width, width), width);
    }
  }
  return tensor;
}

Result<ScalesAndZeros> unpack_scales_and_zeros(std::span<const std::byte> tensor, Format type,
                                               int64_t rows, int64_t groups) {
  if (!is_float(type)) {
    return Error{"layout.format",
                 "expected f16, bf16 or f32, found " + std::string(info(type).name)};
  }
  const FormatInfo& number = info(type);
  const int64_t width = number.bits / 8;
  if (static_cast<int64_t>(tensor.size()) != 2 * rows * groups * width) {
    return shape_error("scales_and_zeros of " + std::to_string(tensor.size()) + " bytes", rows,
                       groups);
  }
  ScalesAndZeros result;
  result.scales.resize(tensor.size() / 2);
  result.zeros.resize(rows * groups);
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t g = 0; g < groups; ++g) {
      const std::byte* from = tensor.data() + (g * rows + n) * 2 * width;
      const uint32_t scale = load(from, width);
      const double z = number.decode(load(from + width, width));
      const int zero = zero_of(number, number.decode(scale), z);
      if (zero < 0) {
        return Error{"layout.zero_range",
                     "offset " + std::to_string(z) + place_of(n, g) +
                         " is no multiple of the scale that a zero point of 0 to 16 gives"};
      }
      store(result.scales.data() + (n * groups + g) * width, scale, width);
      result.zeros[n * groups + g] = std::byte(zero);
    }
  }
  return result;
}

Result<ScalesAndZeros> unpack_scales_and_offsets(std::span<const std::byte> tensor, Format type,
                                                 int64_t rows, int64_t groups) {
  if (!is_float(type)) {
    return Error{"layout.format",
                 "expected offsets in f16, bf16 or f32, found " + std::string(info(type).name)};
  }
  const int64_t width = info(type).bits / 8;
  if (static_cast<int64_t>(tensor.size()) != 2 * width * rows * groups) {
    return shape_error("scales_and_zeros of " + std::to_string(tensor.size()) + " bytes", rows,
                       groups);
  }
  ScalesAndZeros result;
  result.scales.resize(tensor.size() / 2);
  result.zeros.resize(tensor.size() / 2);
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t g = 0; g < groups; ++g) {
      const std::byte* from = tensor.data() + (g * rows + n) * 2 * width;
      const int64_t to = (n * groups + g) * width;
      store(result.scales.data() + to, load(from, width), width);
      store(result.zeros.data() + to, load(from + width, width), width);
    }
  }
  return result;
}

void pack_int4_xpu_groups(std::byte* to, const std::byte* from, int64_t rows, int64_t groups,
                          int width) {
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t n = 0; n < rows; ++n) {
      std::copy_n(from + (n * groups + g) * width, width, to + (g * rows + n) * width);
    }
  }
}

void unpack_int4_xpu_groups(std::byte* to, const std::byte* from, int64_t rows, int64_t groups,
                            int width) {
  pack_int4_xpu_groups(to, from, groups, rows, width);
}

}  // namespace subbyte
