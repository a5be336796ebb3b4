// The codes of a block lie in planes of a few bits each. In a plane of b bits that has runs of r
// bytes, byte i of a run holds weights i, r + i, ... of 8 / b * r weights, from its low bits up:
//
//   Q6_K   bytes 0 to 127     4 low bits, runs of 64    byte 0: weight 0 low, weight 64 high nibble
//          bytes 128 to 191   2 high bits, runs of 32   byte 128: weights 0, 32, 64, 96
#include "foreign_layouts/ggml_blocks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>

#include "foreign_layouts/ggml_grids.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;

using ggml::Codes;

struct Plane {
  int begin = 0;  // byte of the block
  int bits = 0;   // 0: no plane
  int run = 1;
  int shift = 0;  // place of its bits in a code
};

struct BlockLayout {
  uint32_t number;  // of the type
  Plane planes[2];
  int scale;        // byte of the block: of f16 or of the scales themselves
  int offset = -1;  // of its f16; -1: none
  /// Reads the integers of two levels, a byte for each group.
  void (*integers)(const uint8_t* block, uint8_t* scales, uint8_t* offsets) = nullptr;
  void (*codes)(const uint8_t* block, Codes& codes) = nullptr;  // where they lie in no planes
  int flip = 0;                                                 // of the bits of codes
  std::span<const float> (*values)() = nullptr;        // of codes, where they are a codebook
  uint16_t (*factor)(const uint8_t* block) = nullptr;  // f16, where `scale` is no place
};

constexpr BlockLayout grid(uint32_t number, decltype(BlockLayout::integers) integers,
                           decltype(BlockLayout::codes) codes, decltype(BlockLayout::values) values,
                           decltype(BlockLayout::factor) factor = nullptr) {
  return {.number = number,
          .planes = {},
          .scale = 0,
          .integers = integers,
          .codes = codes,
          .values = values,
          .factor = factor};
}

void q2_k_integers(const uint8_t* block, uint8_t* scales, uint8_t* offsets) {
  for (int g = 0; g < 16; ++g) {
    scales[g] = block[g] & 15;
    offsets[g] = block[g] >> 4;
  }
}

/// 16 of 6 bits in 12 bytes: the low nibbles, eight then eight, and two high bits for each, four
/// groups a byte.
void q3_k_integers(const uint8_t* block, uint8_t* scales, uint8_t*) {
  const uint8_t* const low = block + 96;
  const uint8_t* const high = low + 8;
  for (int g = 0; g < 16; ++g) {
    const int nibble = low[g % 8] >> (g / 8 * 4) & 15;
    scales[g] = static_cast<uint8_t>(nibble | (high[g % 4] >> (g / 4 * 2) & 3) << 4);
  }
}

/// Eight scales and eight offsets of 6 bits in 12 bytes: the first four of each have a byte, whose
/// two high bits are those of the other four.
void q4_k_integers(const uint8_t* block, uint8_t* scales, uint8_t* offsets) {
  const uint8_t* const bytes = block + 4;
  for (int g = 0; g < 4; ++g) {
    scales[g] = bytes[g] & 63;
    offsets[g] = bytes[4 + g] & 63;
    scales[4 + g] = static_cast<uint8_t>((bytes[8 + g] & 15) | bytes[g] >> 6 << 4);
    offsets[4 + g] = static_cast<uint8_t>(bytes[8 + g] >> 4 | bytes[4 + g] >> 6 << 4);
  }
}

/// Two's complement, where i8 has 128 added.
void q6_k_integers(const uint8_t* block, uint8_t* scales, uint8_t*) {
  for (int g = 0; g < 16; ++g) scales[g] = block[192 + g] ^ 0x80;
}

void iq4_xs_integers(const uint8_t* block, uint8_t* scales, uint8_t*) {
  for (int g = 0; g < 8; ++g) {
    const int low = block[4 + g / 2] >> (g % 2 * 4) & 15;
    const int high = block[2 + g / 4] >> (g % 4 * 2) & 3;
    scales[g] = static_cast<uint8_t>(low | high << 4);
  }
}

/// Five codes of 0 to 2 in a byte, as a fraction of 256 in base 3: times 3^n the byte above it is
/// digit n. 32 bytes, 16 bytes, then 4 that have four each.
void tq1_0_codes(const uint8_t* block, Codes& codes) {
  constexpr int kBytes[] = {32, 16, 4};
  constexpr int kDigits[] = {5, 5, 4};
  std::size_t next = 0;
  for (int part = 0; part < 3; ++part) {
    uint8_t power = 1;
    for (int digit = 0; digit < kDigits[part]; ++digit, power = static_cast<uint8_t>(power * 3)) {
      for (int i = 0; i < kBytes[part]; ++i) {
        const auto fraction = static_cast<uint8_t>(block[i] * power);
        codes[next++] = static_cast<uint8_t>(fraction * 3 >> 8);
      }
    }
    block += kBytes[part];
  }
}

constexpr BlockLayout kLayouts[] = {
    {2, {{2, 4, 16, 0}}, 0},                                         // Q4_0
    {3, {{4, 4, 16, 0}}, 0, 2},                                      // Q4_1
    {6, {{6, 4, 16, 0}, {2, 1, 1, 4}}, 0},                           // Q5_0
    {7, {{8, 4, 16, 0}, {4, 1, 1, 4}}, 0, 2},                        // Q5_1
    {8, {{2, 8, 1, 0}}, 0, -1, nullptr, nullptr, 0x80},              // Q8_0
    {10, {{16, 2, 32, 0}}, 80, 82, q2_k_integers},                   // Q2_K
    {11, {{32, 2, 32, 0}, {0, 1, 32, 2}}, 108, -1, q3_k_integers},   // Q3_K
    {12, {{16, 4, 32, 0}}, 0, 2, q4_k_integers},                     // Q4_K
    {13, {{48, 4, 32, 0}, {16, 1, 32, 4}}, 0, 2, q4_k_integers},     // Q5_K
    {14, {{0, 4, 64, 0}, {128, 2, 32, 4}}, 208, -1, q6_k_integers},  // Q6_K
    grid(16, ggml::iq2_xxs_integers, ggml::iq2_xxs_codes, ggml::iq2_values),
    grid(17, ggml::iq2_xs_integers, ggml::iq2_xs_codes, ggml::iq2_values),
    grid(18, ggml::iq3_xxs_integers, ggml::iq3_xxs_codes, ggml::iq3_xxs_values),
    grid(19, ggml::iq1_s_integers, ggml::iq1_s_codes, ggml::iq1_values),
    grid(21, ggml::iq3_s_integers, ggml::iq3_s_codes, ggml::iq3_s_values),
    grid(22, ggml::iq2_s_integers, ggml::iq2_s_codes, ggml::iq2_values),
    grid(29, ggml::iq1_m_integers, ggml::iq1_m_codes, ggml::iq1_values, ggml::iq1_m_factor),
    {20, {{2, 4, 16, 0}}, 0},                       // IQ4_NL
    {23, {{8, 4, 16, 0}}, 0, -1, iq4_xs_integers},  // IQ4_XS
    {34, {}, 52, -1, nullptr, tq1_0_codes},         // TQ1_0
    {35, {{0, 2, 32, 0}}, 64},                      // TQ2_0
    {39, {{1, 4, 16, 0}}, 0},                       // MXFP4
    {40, {{4, 4, 8, 0}}, 0},                        // NVFP4
    {41, {{2, 1, 1, 1}}, 0},                        // Q1_0: codes 0 and 2
    {42, {{2, 2, 1, 0}}, 0},                        // Q2_0
};

constexpr std::byte kZeroPoint{1};  // of all types that have one

const BlockLayout& layout_of(const GgmlType& type) {
  return *std::ranges::find(kLayouts, type.number, &BlockLayout::number);
}

template <int kBits>
void add_plane(const Plane& plane, const uint8_t* block, int count, uint8_t* codes) {
  constexpr int kOfByte = 8 / kBits;
  constexpr uint8_t kMask = (1 << kBits) - 1;
  const uint8_t* bytes = block + plane.begin;
  for (int k = 0; k < count; k += kOfByte * plane.run, bytes += plane.run) {
    for (int j = 0; j < kOfByte; ++j) {
      uint8_t* const to = codes + k + j * plane.run;
      for (int i = 0; i < plane.run; ++i) {
        to[i] |= static_cast<uint8_t>((bytes[i] >> (kBits * j) & kMask) << plane.shift);
      }
    }
  }
}

void unpack(const BlockLayout& layout, const uint8_t* block, int count, Codes& codes) {
  if (layout.codes != nullptr) return layout.codes(block, codes);
  codes.fill(static_cast<uint8_t>(0));
  for (const Plane& plane : layout.planes) {
    if (plane.bits == 1) add_plane<1>(plane, block, count, codes.data());
    if (plane.bits == 2) add_plane<2>(plane, block, count, codes.data());
    if (plane.bits == 4) add_plane<4>(plane, block, count, codes.data());
    if (plane.bits == 8) add_plane<8>(plane, block, count, codes.data());
  }
}

/// `count` codes, a multiple of 8, as a stream of bits.
template <int kBits>
void put_stream(const uint8_t* codes, int count, std::byte* to) {
  for (int i = 0; i < count; i += 8, to += kBits) {
    uint64_t x = 0;
    std::memcpy(&x, codes + i, 8);
    x = (x & 0x00FF00FF00FF00FF) | (x & 0xFF00FF00FF00FF00) >> (8 - kBits);
    x = (x & 0x0000FFFF0000FFFF) | (x & 0xFFFF0000FFFF0000) >> (16 - 2 * kBits);
    x = (x & 0x00000000FFFFFFFF) | (x & 0xFFFFFFFF00000000) >> (32 - 4 * kBits);
    std::memcpy(to, &x, kBits);
  }
}

void put_codes(const Codes& codes, int count, int bits, int flip, std::byte* to) {
  if (flip != 0) {
    for (int i = 0; i < count; ++i) to[i] = std::byte(codes[static_cast<std::size_t>(i)] ^ flip);
    return;
  }
  constexpr decltype(&put_stream<2>) kPut[] = {put_stream<2>, put_stream<3>, put_stream<4>,
                                               put_stream<5>, put_stream<6>};
  kPut[bits - 2](codes.data(), count, to);
}

/// The inverse of put_codes().
void get_codes(const std::byte* from, int count, int bits, int flip, Codes& codes) {
  for (int i = 0; i < count; i += 8, from += bits) {
    uint64_t eight = 0;
    std::memcpy(&eight, from, static_cast<std::size_t>(bits));
    for (int j = 0; j < 8; ++j) {
      const auto code = static_cast<uint8_t>(eight >> (bits * j) & ((1u << bits) - 1));
      codes[static_cast<std::size_t>(i + j)] = static_cast<uint8_t>(code ^ flip);
    }
  }
}

/// The inverse of add_plane(), into a block of zeros.
void put_plane(const Plane& plane, const Codes& codes, int count, uint8_t* block) {
  const int of_byte = 8 / plane.bits;
  for (int k = 0; k < count; ++k) {
    const int chunk = k / (of_byte * plane.run);
    const int shift = k / plane.run % of_byte * plane.bits;
    const int code = codes[static_cast<std::size_t>(k)] >> plane.shift & ((1 << plane.bits) - 1);
    block[plane.begin + chunk * plane.run + k % plane.run] |= static_cast<uint8_t>(code << shift);
  }
}

uint16_t factor_of(const BlockLayout& layout, const uint8_t* block) {
  if (layout.factor != nullptr) return layout.factor(block);
  uint16_t bits = 0;
  std::memcpy(&bits, block + layout.scale, sizeof bits);
  return bits;
}

/// Copies the blocks of rows of a matrix.
class Rows {
 public:
  Rows(const GgmlType& type, const MatrixView& view, std::span<const std::byte> blocks,
       std::byte* codes, std::byte* scales, std::byte* zeros)
      : type_(type),
        layout_(layout_of(type)),
        view_(view),
        blocks_(reinterpret_cast<const uint8_t*>(blocks.data())),
        codes_(codes),
        scales_(scales),
        zeros_(zeros) {}

  void copy(int64_t row) const {
    const int64_t count = view_.cols / type_.block;
    const int64_t code_bytes = view_.row_bytes() / count;
    for (int64_t b = 0; b < count; ++b) {
      const uint8_t* const block = blocks_ + (row * count + b) * type_.bytes;
      Codes codes;
      unpack(layout_, block, static_cast<int>(type_.block), codes);
      put_codes(codes, static_cast<int>(type_.block), bits(view_.format.element), layout_.flip,
                codes_ + row * view_.row_bytes() + b * code_bytes);
      copy_groups(row, b, block);
    }
  }

 private:
  void copy_groups(int64_t row, int64_t b, const uint8_t* block) const {
    const int64_t groups = type_.block / view_.format.group_size;  // of a block
    std::byte* const scales = scales_ + row * view_.scale_row_bytes();
    std::byte* const zeros = zeros_ + row * view_.zero_row_bytes();
    const bool has_offsets = layout_.offset >= 0;
    if (layout_.integers != nullptr) {
      std::array<uint8_t, 16> integers, offsets;
      layout_.integers(block, integers.data(), offsets.data());
      std::memcpy(scales + b * groups, integers.data(), groups);
      const uint16_t factor_bits = factor_of(layout_, block);
      std::memcpy(scales + view_.groups() + 2 * b, &factor_bits, 2);
      if (!has_offsets) return;
      std::memcpy(zeros + b * groups, offsets.data(), groups);
      std::byte* const factor = zeros + view_.groups() + 2 * b;
      std::memcpy(factor, block + layout_.offset, 2);
      factor[1] ^= std::byte{0x80};  // what ggml subtracts is added here
      return;
    }
    const int64_t width = groups * scale_bytes(view_.format.scale);
    std::memcpy(scales + b * width, block + layout_.scale, width);
    if (has_offsets) std::memcpy(zeros + 2 * b, block + layout_.offset, 2);
    if (view_.format.zero == Zero::kU8) zeros[b] = kZeroPoint;
  }

  const GgmlType& type_;
  const BlockLayout& layout_;
  const MatrixView& view_;
  const uint8_t* blocks_;
  std::byte* codes_;
  std::byte* scales_;
  std::byte* zeros_;
};

std::byte* allocate(Matrix& matrix, int64_t size, std::span<const std::byte>& part) {
  if (size == 0) return nullptr;
  const auto bytes = allocate_bytes(static_cast<std::size_t>(size));
  part = {bytes.get(), static_cast<std::size_t>(size)};
  matrix.owners.push_back(bytes);
  return bytes.get();
}

Error shape_error(const GgmlType& type, int64_t rows, int64_t cols, const std::string& what) {
  return {"layout.shape", std::string(type.name) + " of " + std::to_string(rows) + " x " +
                              std::to_string(cols) + ": expected " + what};
}

Status check_shape(const GgmlType& type, int64_t rows, int64_t cols, std::size_t bytes) {
  if (rows < 0 || rows > kMaxSize || cols < 1 || cols > kMaxSize) {
    return shape_error(type, rows, cols, "up to 2^24 rows and columns, and a column");
  }
  if (cols % type.block != 0) {
    return shape_error(type, rows, cols, "columns in blocks of " + std::to_string(type.block));
  }
  const int64_t expected = rows * (cols / type.block) * type.bytes;
  if (static_cast<int64_t>(bytes) == expected) return {};
  return shape_error(type, rows, cols,
                     std::to_string(expected) + " bytes, found " + std::to_string(bytes));
}

bool is_finite_half(const uint8_t* bytes) {
  return (bytes[1] & 0x7C) != 0x7C;
}

bool has_good_scales(const GgmlType& type, const BlockLayout& layout, const uint8_t* block) {
  const uint8_t* const scale = block + layout.scale;
  if (type.format->scale == Format::kE8M0) return *scale != 255;
  if (type.format->scale == Format::kE4M3) {
    return std::all_of(scale, scale + 4, [](uint8_t code) { return code < 127; });
  }
  if ((factor_of(layout, block) & 0x7C00) == 0x7C00) return false;
  return layout.offset < 0 || is_finite_half(block + layout.offset);
}

}  // namespace

const GgmlType* ggml_type_of(const WeightFormat& format) {
  for (const GgmlType& type : ggml_types()) {
    if (type.format == format && !has_two_levels(format) && format.zero != Zero::kU8) return &type;
  }
  return nullptr;
}

void pack_ggml_rows(const GgmlType& type, const MatrixView& matrix, int64_t begin, int64_t end,
                    std::byte* to) {
  if (is_dense(matrix.format)) {
    const int64_t row_bytes = matrix.row_bytes();
    std::memcpy(to, matrix.codes.data() + begin * row_bytes, (end - begin) * row_bytes);
    return;
  }
  const BlockLayout& layout = layout_of(type);
  const int64_t blocks = matrix.cols / type.block;
  const int64_t code_bytes = matrix.row_bytes() / blocks;
  const int64_t scale_bytes = matrix.scale_row_bytes() / blocks;
  std::memset(to, 0, static_cast<std::size_t>((end - begin) * blocks * type.bytes));
  for (int64_t b = begin * blocks; b < end * blocks; ++b, to += type.bytes) {
    auto* const block = reinterpret_cast<uint8_t*>(to);
    Codes codes;
    get_codes(matrix.codes.data() + b * code_bytes, static_cast<int>(type.block),
              bits(matrix.format.element), layout.flip, codes);
    for (const Plane& plane : layout.planes) {
      if (plane.bits != 0) put_plane(plane, codes, static_cast<int>(type.block), block);
    }
    std::memcpy(block + layout.scale, matrix.scales.data() + b * scale_bytes, scale_bytes);
    if (layout.offset >= 0) std::memcpy(block + layout.offset, matrix.zeros.data() + 2 * b, 2);
  }
}

int64_t bad_ggml_block(const GgmlType& type, std::span<const std::byte> blocks) {
  if (!type.format || is_dense(*type.format)) return -1;
  const BlockLayout& layout = layout_of(type);
  const auto* block = reinterpret_cast<const uint8_t*>(blocks.data());
  const int64_t count = std::ssize(blocks) / type.bytes;
  for (int64_t b = 0; b < count; ++b, block += type.bytes) {
    if (!has_good_scales(type, layout, block)) return b;
  }
  return -1;
}

Result<Matrix> ggml_matrix(const GgmlType& type, int64_t rows, int64_t cols,
                           std::span<const std::byte> blocks, Executor& executor,
                           std::shared_ptr<const void> owner) {
  if (!type.format) {
    return Error{"layout.format", "matrices of " + std::string(type.name) + " are not read"};
  }
  SUBBYTE_CHECK(check_shape(type, rows, cols, blocks.size()));
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.format = *type.format;
  view.rows = rows;
  view.cols = cols;
  if (is_dense(view.format)) {
    view.codes = blocks;
    matrix.owners.push_back(std::move(owner));
    return matrix;
  }
  if (const auto values = layout_of(type).values) view.codebook = values();
  std::byte* const codes = allocate(matrix, rows * view.row_bytes(), view.codes);
  std::byte* const scales = allocate(matrix, rows * view.scale_row_bytes(), view.scales);
  std::byte* const zeros = allocate(matrix, rows * view.zero_row_bytes(), view.zeros);
  const Rows copies(type, view, blocks, codes, scales, zeros);
  const int64_t row_bytes = rows == 0 ? 0 : std::ssize(blocks) / rows;
  std::atomic<int64_t> bad_row = rows;
  executor.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      copies.copy(row);
      if (bad_ggml_block(type, blocks.subspan(row * row_bytes, row_bytes)) < 0) continue;
      int64_t first = bad_row;
      while (row < first && !bad_row.compare_exchange_weak(first, row)) {
      }
    }
  });
  if (bad_row == rows) return matrix;
  const int64_t block = bad_ggml_block(type, blocks.subspan(bad_row.load() * row_bytes, row_bytes));
  return Error{"layout.scale",
               std::string(type.name) + ": block " + std::to_string(block) + " of output " +
                   std::to_string(bad_row.load()) +
                   ": expected scales and offsets that are finite (of NVFP4 without a sign), found "
                   "one that is not"};
}

}  // namespace subbyte
