#include "kernels/gpu/packed_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "base/checked.h"
#include "base/float16.h"
#include "matrix/codebook.h"

namespace subbyte::gpu {
namespace {

constexpr uint64_t kAlignment = 256;

/// An element that the kernels read, and by what.
struct Element {
  Format id;
  DecoderKind decoder;
};

constexpr Element kElements[] = {
    {Format::kU2, DecoderKind::kIntegers},   {Format::kU3, DecoderKind::kIntegers},
    {Format::kU4, DecoderKind::kIntegers},   {Format::kU5, DecoderKind::kIntegers},
    {Format::kU6, DecoderKind::kIntegers},   {Format::kU8, DecoderKind::kIntegers},
    {Format::kI2, DecoderKind::kIntegers},   {Format::kI3, DecoderKind::kIntegers},
    {Format::kI4, DecoderKind::kIntegers},   {Format::kI5, DecoderKind::kIntegers},
    {Format::kI6, DecoderKind::kIntegers},   {Format::kI8, DecoderKind::kIntegers},
    {Format::kE2M1, DecoderKind::kE2M1},     {Format::kNF4, DecoderKind::kCodebook},
    {Format::kNFL2, DecoderKind::kCodebook}, {Format::kNFL3, DecoderKind::kCodebook},
    {Format::kNFL4, DecoderKind::kCodebook}, {Format::kNFL5, DecoderKind::kCodebook},
    {Format::kF16, DecoderKind::kFloats},    {Format::kBF16, DecoderKind::kFloats},
    {Format::kE4M3, DecoderKind::kE4M3},     {Format::kVQ2, DecoderKind::kVectors},
    {Format::kVQ4, DecoderKind::kVectors},   {Format::kIQ4, DecoderKind::kCodebook},
};

const Element* find_element(Format format) {
  const auto* found = std::find_if(std::begin(kElements), std::end(kElements),
                                   [&](const Element& element) { return element.id == format; });
  return found == std::end(kElements) ? nullptr : found;
}

bool supports_group(const Element& element, int64_t group) {
  switch (element.decoder) {
    case DecoderKind::kIntegers:
      if (info(element.id).bits == 5) return group == 32;
      if (info(element.id).bits == 6) return group == 16;
      return group == 16 || group == 32 || (group >= 0 && group % kTileCols == 0);
    case DecoderKind::kE2M1:
      return group == 16 || group == 32;
    case DecoderKind::kE4M3:
      return group >= 0 && group % kTileCols == 0;
    case DecoderKind::kFloats:
      return group == 0;
    case DecoderKind::kVectors:
      return group == 32;
    default:
      return group == 32 || (group == 64 && info(element.id).bits == 4);
  }
}

bool is_signed_integer(const Element& element) {
  return element.decoder == DecoderKind::kIntegers && info(element.id).min < 0;
}

/// Beside scales of two levels there are offsets of two levels or none, as superblock.h says.
bool supports_two_levels(const WeightFormat& format) {
  const int64_t group = format.group_size;
  switch (format.element) {
    case Format::kU2:
      return group == 16 && format.scale == Format::kU4 && format.zero == Zero::kOffsetU4;
    case Format::kU4:
    case Format::kU5:
      return group == 32 && has_two_levels(format.zero);
    case Format::kI3:
    case Format::kI6:
      return group == 16 && format.zero == Zero::kNone;
    case Format::kNFL3:
      return (group == 16 || group == 32) && format.zero == Zero::kNone;
    case Format::kIQ4:
    case Format::kNFL4:
      return group == 32 && format.zero == Zero::kNone;
    default:
      return false;
  }
}

/// Zero points stand beside unsigned integers, offsets of 16 bits beside all.
bool supports_zero(const Element& element, Zero zero) {
  if (zero == Zero::kNone) return true;
  if (element.decoder != DecoderKind::kIntegers || zero == Zero::kF32 || has_two_levels(zero)) {
    return false;
  }
  return is_offset(zero) || !is_signed_integer(element);
}

bool supports(const Element& element, const WeightFormat& format) {
  if (has_two_levels(format.scale)) return supports_two_levels(format);
  return supports_group(element, format.group_size) && supports_zero(element, format.zero);
}

Error unsupported(const WeightFormat& format) {
  return {"cuda.format",
          "the CUDA kernels have no " + to_string(format) +
              "; they have u2 u3 u4 u8 (with or without zero points) and i2 i3 i4 i8, g16, g32, "
              "groups of multiples of 64 or per row, u5 i5 g32 and u6 i6 g16, all with offsets of "
              "16 bits too; e2m1 g16 g32; e4m3 in groups of multiples of 64 or per row; nf4 nfl4 "
              "iq4 g32 g64; nfl2 nfl3 nfl5 g32; vq2 vq4 g32 without act-order, rotated or not; "
              "scales f32 f16 bf16 e8m0 e4m3 e4m4; of two levels u4 u5 g32 and u2 g16 with "
              "offsets, i3 i6 g16, iq4 and nfl4 g32, nfl3 g16 g32 without"};
}

Error wrong_shape(const MatrixView& matrix, const std::string& what) {
  return {"cuda.shape", "a matrix of " + std::to_string(matrix.rows) + " x " +
                            std::to_string(matrix.cols) + ", " + to_string(matrix.format) + ": " +
                            what};
}

Status check_size(const MatrixView& matrix, const std::string& name, std::size_t found,
                  int64_t expected) {
  if (found == static_cast<std::size_t>(expected)) return {};
  return wrong_shape(matrix, "expected " + std::to_string(expected) + " bytes of " + name +
                                 ", found " + std::to_string(found));
}

Status check_dimensions(const MatrixView& matrix, RowOrder row_order) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() - kTileCols;
  constexpr int64_t kMaxCols = int64_t{1} << 22;  // see blocks_per_tile
  if (matrix.rows < 1 || matrix.cols < 1 || matrix.rows > kMax || matrix.cols > kMaxCols) {
    return wrong_shape(matrix, "expected 1 to " + std::to_string(kMax) + " rows and 1 to " +
                                   std::to_string(kMaxCols) + " columns");
  }
  if (row_order != RowOrder::kNatural && matrix.rows % 2 != 0) {
    return wrong_shape(matrix, "expected an even number of rows, gate and up");
  }
  return {};
}

/// Of dimensions that check_dimensions() has found sound.
Status check_sizes(const MatrixView& matrix) {
  // Both factors are below 2^31: no product of these wraps.
  const int64_t rows = matrix.rows;
  SUBBYTE_CHECK(check_size(matrix, "codes", matrix.codes.size(), rows * matrix.row_bytes()));
  SUBBYTE_CHECK(
      check_size(matrix, "scales", matrix.scales.size(), rows * matrix.scale_row_bytes()));
  SUBBYTE_CHECK(
      check_size(matrix, "zero points", matrix.zeros.size(), rows * matrix.zero_row_bytes()));
  if (matrix.input_order.empty()) return {};
  return check_size(matrix, "input order", matrix.input_order.size_bytes(), matrix.cols * 4);
}

template <class Code>
uint32_t largest_code(std::span<const std::byte> bytes) {
  Code largest = 0;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Code)) {
    Code code = 0;
    std::memcpy(&code, bytes.data() + at, sizeof code);
    largest = std::max(largest, code);
  }
  return largest;
}

double largest_value(std::span<const float> codebook) {
  double largest = 0;
  for (const float value : codebook) largest = std::max(largest, std::fabs(double{value}));
  return largest;
}

/// The values of codes are numbers of the activations' type.
Status check_codebook(const MatrixView& matrix) {
  const Format element = matrix.format.element;
  if (matrix.codebook.empty() && !needs_codebook(element)) return {};
  const std::string fault = may_have_codebook(element) ? codebook_fault(matrix.codebook, element)
                                                       : "none beside such codes";
  if (!fault.empty()) {
    return Error{"cuda.format", "codebook of " + to_string(matrix.format) + ": expected " + fault};
  }
  const double largest = largest_value(matrix.codebook);
  const double most = info(Format::kF16).max;
  if (largest <= most) return {};
  return Error{"cuda.format", "codebook of " + to_string(matrix.format) +
                                  ": expected values of at most " + std::to_string(most) +
                                  ", found " + std::to_string(largest)};
}

/// The decoders are exact up to 2^bits, which GPTQ v1 can mean.
uint32_t most_zero(const WeightFormat& format) {
  return 1u << info(format.element).bits;
}

void find_large_zero(const MatrixView& matrix, PackedFacts& facts) {
  if (matrix.zeros.empty() || is_offset(matrix.format.zero)) return;
  const std::size_t width = zero_bytes(matrix.format.zero);
  const uint32_t most = most_zero(matrix.format);
  const uint32_t largest =
      width == 1 ? largest_code<uint8_t>(matrix.zeros) : largest_code<uint16_t>(matrix.zeros);
  if (largest <= most) return;
  uint32_t zero = 0;
  std::size_t index = 0;
  for (; zero <= most; ++index) {
    std::memcpy(&zero, matrix.zeros.data() + index * width, width);
  }
  facts.large_zero = static_cast<int64_t>(index) - 1;
  facts.large_zero_value = zero;
}

Status check_facts(const MatrixView& matrix, const PackedFacts& facts) {
  if (facts.largest_input >= matrix.cols) {
    return wrong_shape(matrix, "input_order holds " + std::to_string(facts.largest_input));
  }
  if (facts.large_zero < 0) return {};
  return Error{"cuda.format", "zero point " + std::to_string(facts.large_zero) + " of " +
                                  to_string(matrix.format) + " is " +
                                  std::to_string(facts.large_zero_value) + ", expected at most " +
                                  std::to_string(most_zero(matrix.format))};
}

void set_partition(PackedFormat* format, bool interleaves) {
  const int64_t group = format->source.group_size;
  const int64_t rows_of_strips = interleaves ? format->rows / 2 : format->rows;
  format->strips =
      static_cast<int64_t>(ceil_div(rows_of_strips, interleaves ? kStripRows / 2 : kStripRows));
  format->tiles = static_cast<int64_t>(ceil_div(format->cols, kTileCols));
  if (group > 0 && group < kTileCols) {
    format->groups_per_tile = kTileCols / static_cast<int>(group);
    if (in_superblocks(*format)) format->tiles_per_block = kSuperblockTiles;
  } else {
    const int64_t tiles = group == 0 ? format->tiles : group / kTileCols;
    format->tiles_per_block = std::min(tiles, format->tiles);
  }
  format->blocks = static_cast<int64_t>(ceil_div(format->tiles, format->tiles_per_block));
}

/// Of the 256 vectors.
int64_t vector_bytes(const PackedFormat& format) {
  return int64_t{kVectors} * info(format.source.element).vector_size * 4;
}

void set_places(PackedFormat* format, bool gathers) {
  const int64_t blocks = format->strips * format->blocks;
  const int64_t groups = blocks * format->groups_per_tile * kStripRows;
  const auto align = [](int64_t bytes) {
    return static_cast<int64_t>(round_up(bytes, kAlignment));
  };
  format->scales_begin = align(format->strips * format->tiles * tile_bytes(format->bits));
  int64_t end = align(format->scales_begin + blocks * scale_block_bytes(*format));
  const int64_t zeros = end;
  end = align(end + groups * format->zero_bytes);
  const int64_t gather = end;
  if (gathers) end = align(end + format->cols * 4);
  const int64_t vectors = end;
  if (format->decoder == DecoderKind::kVectors) end = align(end + vector_bytes(*format));
  format->bytes = end;
  format->vectors_begin = vectors;
  format->gather_begin = gathers ? gather : vectors;
  format->zeros_begin = format->zero_bytes != 0 ? zeros : format->gather_begin;
}

/// Of codes whose order is that of their magnitudes, but for the sign: IEEE numbers. Decoding each
/// would take longer than all else that loading does on the host.
template <class Code>
double largest_ieee(std::span<const std::byte> numbers, const FormatInfo& type) {
  const auto magnitude = static_cast<Code>(static_cast<Code>(~Code{0}) >> 1);
  const auto infinity = static_cast<Code>(type.encode(INFINITY, Rounding::kNearestEven));
  Code largest = 0;
  for (std::size_t at = 0; at < numbers.size(); at += sizeof(Code)) {
    Code code = 0;
    std::memcpy(&code, numbers.data() + at, sizeof code);
    code &= magnitude;
    largest = std::max(largest, code < infinity ? code : Code{0});
  }
  return type.decode(largest);
}

/// Of codes of a byte.
double largest_of_bytes(std::span<const std::byte> numbers, const FormatInfo& type) {
  std::array<bool, 256> seen{};
  for (const std::byte code : numbers) seen[std::to_integer<uint8_t>(code)] = true;
  std::array<uint32_t, 8> bits{};
  for (uint32_t code = 0; code < seen.size(); ++code) {
    bits[code / 32] |= uint32_t{seen[code]} << code % 32;
  }
  return largest_seen(bits, type);
}

double largest_finite(std::span<const std::byte> numbers, const FormatInfo& type) {
  if (type.bits == 8) return largest_of_bytes(numbers, type);
  return type.bits == 16 ? largest_ieee<uint16_t>(numbers, type)
                         : largest_ieee<uint32_t>(numbers, type);
}

/// Of numbers of two levels, which are bytes and factors.
double largest_product(const MatrixView& matrix, std::span<const std::byte> numbers,
                       const FormatInfo& type) {
  const int64_t superblocks = num_superblocks(matrix.cols);
  const int64_t of_superblock = kSuperblock / matrix.group_size();
  const int zero = type.min < 0 ? 1 << (type.bits - 1) : 0;
  float largest = 0;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const std::byte* const integers =
        numbers.data() + row * (matrix.groups() + superblocks * int64_t{sizeof(Float16)});
    for (int64_t i = 0; i < superblocks; ++i) {
      const int64_t end = std::min((i + 1) * of_superblock, matrix.groups());
      int integer = 0;
      for (int64_t g = i * of_superblock; g < end; ++g) {
        integer = std::max(integer, std::abs(std::to_integer<int>(integers[g]) - zero));
      }
      Float16 factor = {};
      std::memcpy(&factor, integers + matrix.groups() + i * sizeof factor, sizeof factor);
      const float product = static_cast<float>(integer) * std::fabs(to_float(factor));
      if (product <= std::numeric_limits<float>::max()) largest = std::max(largest, product);
    }
  }
  return largest;
}

PackedFacts facts_of(const MatrixView& matrix) {
  PackedFacts facts;
  const FormatInfo& scale = info(matrix.format.scale);
  if (has_two_levels(matrix.format.scale)) {
    facts.largest_scale = largest_product(matrix, matrix.scales, scale);
  } else {
    facts.largest_scale = largest_finite(matrix.scales, scale);
  }
  if (has_two_levels(matrix.format.zero)) {
    const FormatInfo& offset = info(offset_format(matrix.format.zero));
    facts.largest_offset = largest_product(matrix, matrix.zeros, offset);
  } else if (is_offset(matrix.format.zero)) {
    facts.largest_offset = largest_finite(matrix.zeros, info(offset_format(matrix.format.zero)));
  }
  find_large_zero(matrix, facts);
  for (const uint32_t input : matrix.input_order) {
    facts.largest_input = std::max(facts.largest_input, input);
  }
  return facts;
}

double largest_finite_scale(const MatrixView& matrix, const PackedFacts& facts) {
  const bool is_iq4 = matrix.format.element == Format::kIQ4;
  const double value = is_iq4 ? -info(Format::kIQ4).min : largest_value(matrix.codebook);
  const double scale = facts.largest_scale * std::max(1.0, value);
  return std::max(scale, std::ldexp(facts.largest_offset, 1 - info(matrix.format.element).bits));
}

uint16_t number_of(double value, Number number) {
  const FormatInfo& type = info(number == Number::kF16 ? Format::kF16 : Format::kBF16);
  return static_cast<uint16_t>(type.encode(value, Rounding::kNearestEven));
}

/// Zero points of 8 bits may be 256.
int packed_zero_bytes(Zero zero, int bits) {
  if (zero == Zero::kNone || has_two_levels(zero)) return 0;
  return bits == 8 || is_offset(zero) ? 2 : 1;
}

/// What follows from format and dimensions.
Result<PackedFormat> layout_of(const MatrixView& matrix, RowOrder row_order, bool gathers) {
  const Element* element = find_element(matrix.format.element);
  const auto scale_kind = scale_kind_of(matrix.format.scale);
  if (element == nullptr || !scale_kind || !supports(*element, matrix.format)) {
    return unsupported(matrix.format);
  }
  const bool is_vectors = element->decoder == DecoderKind::kVectors;
  const bool is_whole = matrix.cols % kStepCols == 0;
  if (is_vectors ? gathers || !is_whole : matrix.format.rotation != 0) {
    return unsupported(matrix.format);
  }
  SUBBYTE_CHECK(check_dimensions(matrix, row_order));
  PackedFormat format;
  format.source = matrix.format;
  format.row_order = row_order;
  format.decoder = element->decoder;
  format.bits = info(element->id).bits;
  format.scale_kind = *scale_kind;
  format.zero_bytes = packed_zero_bytes(matrix.format.zero, format.bits);
  format.zero = is_signed_integer(*element) ? 1 << (format.bits - 1) : 0;
  if (format.decoder == DecoderKind::kCodebook) {
    for (uint32_t code = 0; code < 1u << format.bits; ++code) {
      format.codebook[code] = static_cast<float>(matrix.value_of(code));
    }
  }
  format.rows = matrix.rows;
  format.cols = matrix.cols;
  set_partition(&format, row_order != RowOrder::kNatural);
  const int64_t scales = format.strips * format.blocks * format.groups_per_tile * kStripRows;
  if (std::max(scales, format.strips * format.tiles) > int64_t{UINT32_MAX}) {
    return wrong_shape(matrix, "expected fewer than 2^32 groups and tiles of 16 x 64");
  }
  set_places(&format, gathers);
  return format;
}

/// What an integer of two levels is stored as, less its canonical code.
int bias_of(Format integer) {
  const FormatInfo& type = info(integer);
  return integer == Format::kU4 || integer == Format::kU6 ? 128 : 128 - (1 << (type.bits - 1));
}

}  // namespace

std::optional<ScaleKind> scale_kind_of(Format scale) {
  if (has_two_levels(scale)) return ScaleKind::kTwoLevels;
  switch (scale) {
    case Format::kF32:
      return ScaleKind::kF32;
    case Format::kF16:
      return ScaleKind::kF16;
    case Format::kBF16:
      return ScaleKind::kBF16;
    case Format::kE8M0:
      return ScaleKind::kE8M0;
    case Format::kE4M3:
      return ScaleKind::kE4M3;
    case Format::kE4M4:
      return ScaleKind::kE4M4;
    default:
      return std::nullopt;
  }
}

CanonicalNumbers canonical_numbers(const MatrixView& matrix) {
  CanonicalNumbers numbers = {};
  numbers.scales = reinterpret_cast<const uint8_t*>(matrix.scales.data());
  numbers.offsets = reinterpret_cast<const uint8_t*>(matrix.zeros.data());
  numbers.groups = matrix.groups();
  numbers.superblocks = num_superblocks(matrix.cols);
  numbers.scale_bias = bias_of(matrix.format.scale);
  if (is_offset(matrix.format.zero)) {
    numbers.offset_bias = bias_of(offset_format(matrix.format.zero));
  }
  return numbers;
}

double largest_seen(const std::array<uint32_t, 8>& seen, const FormatInfo& type) {
  double largest = 0;
  for (uint32_t code = 0; code < 256; ++code) {
    const bool is_there = (seen[code / 32] >> code % 32 & 1) != 0;
    const double value = is_there ? std::fabs(type.decode(code)) : 0;
    if (value <= std::numeric_limits<float>::max()) largest = std::max(largest, value);
  }
  return largest;
}

Result<PackedFormat> packed_format(const MatrixView& matrix, RowOrder row_order) {
  SUBBYTE_CHECK(
      layout_of(matrix, row_order, false));  // facts_of() reads as many bytes as these say
  SUBBYTE_CHECK(check_sizes(matrix));
  return packed_format(matrix, row_order, facts_of(matrix));
}

Result<PackedFormat> packed_format(const MatrixView& matrix, RowOrder row_order,
                                   const PackedFacts& facts) {
  SUBBYTE_TRY(PackedFormat format, layout_of(matrix, row_order, !matrix.input_order.empty()));
  SUBBYTE_CHECK(check_sizes(matrix));
  SUBBYTE_CHECK(check_facts(matrix, facts));
  SUBBYTE_CHECK(check_codebook(matrix));
  format.largest_scale = largest_finite_scale(matrix, facts);
  return format;
}

Result<int64_t> packed_bytes(const WeightFormat& format, int64_t rows, int64_t cols, bool gathers) {
  MatrixView shape;
  shape.format = format;
  shape.rows = rows;
  shape.cols = cols;
  SUBBYTE_TRY(const PackedFormat layout, layout_of(shape, RowOrder::kNatural, gathers));
  return layout.bytes;
}

std::array<uint16_t, 32> codebook_of(const PackedFormat& format, Number number) {
  std::array<uint16_t, 32> values{};
  for (std::size_t code = 0; code < values.size(); ++code) {
    values[code] = number_of(format.codebook[code], number);
  }
  return values;
}

}  // namespace subbyte::gpu
