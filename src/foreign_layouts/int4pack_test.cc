// Places are computed here from the definitions in another way than in the library: tile by tile,
// byte by byte, reading off which codes a byte holds. tests/goldens/int4pack_test.cc has
// what PyTorch packed.

#include "foreign_layouts/int4pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "base/random.h"

namespace subbyte {
namespace {

using Bytes = std::vector<std::byte>;

constexpr CpuTile kTiles[] = {CpuTile::kHalves64, CpuTile::kHalves32, CpuTile::kPairs32,
                              CpuTile::kPairs16};

struct Size {
  int64_t rows, cols;
};

Bytes random_bytes(int64_t size, uint64_t seed) {
  Random random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = std::byte(random.next() & 0xFF);
  return bytes;
}

int code_of(const Bytes& codes, int64_t cols, int64_t n, int64_t k) {
  return std::to_integer<int>(codes[(n * cols + k) / 2]) >> (4 * (k % 2)) & 0xF;
}

TEST(Int4pack, cpu_tiles_are_read_off_byte_by_byte) {
  for (const CpuTile tile : kTiles) {
    const int64_t full = tile == CpuTile::kHalves64 ? 64 : tile == CpuTile::kPairs16 ? 16 : 32;
    for (const auto& [rows, cols] :
         {Size{16, 2}, {64, 8}, {48, 6}, {80, 10}, {112, 4}, {32, 32}, {192, 2}}) {
      const Bytes codes = random_bytes(rows * cols / 2, rows + cols);
      Bytes packed(codes.size());
      ASSERT_TRUE(check_int4pack_cpu_shape(rows, cols).ok());
      pack_int4_cpu(packed.data(), codes.data(), rows, cols, tile);
      std::size_t byte = 0;
      for (int64_t first = 0; first < rows; first += full) {
        const int64_t width = rows - first < full ? rows - first : full;
        const bool halves = width == full && tile <= CpuTile::kHalves32;
        for (int64_t k = 0; k < cols; ++k) {
          for (int64_t j = 0; j < width / 2; ++j, ++byte) {
            const int64_t low = first + (halves ? j : 2 * j);
            const int64_t high = first + (halves ? j + width / 2 : 2 * j + 1);
            EXPECT_EQ(std::to_integer<int>(packed[byte]),
                      code_of(codes, cols, low, k) | code_of(codes, cols, high, k) << 4);
          }
        }
      }
      EXPECT_EQ(byte, packed.size());
      Bytes back(codes.size());
      unpack_int4_cpu(back.data(), packed.data(), rows, cols, tile);
      EXPECT_EQ(back, codes);
    }
  }
}

TEST(Int4pack, cuda_words_are_read_off_one_by_one) {
  constexpr int kInputs[8] = {0, 8, 16, 24, 1, 9, 17, 25};
  for (const int inner : {2, 4, 8}) {
    for (const auto& [rows, cols] : {Size{8, 16 * inner}, {24, 48 * inner}, {40, 32 * inner}}) {
      ASSERT_TRUE(check_int4pack_cuda_shape(rows, cols, inner).ok());
      const Bytes codes = random_bytes(rows * cols / 2, rows + cols);
      Bytes packed(codes.size());
      pack_int4_cuda(packed.data(), codes.data(), rows, cols, inner);
      int64_t index = 0;
      for (int64_t tn = 0; tn < rows / 8; ++tn) {
        for (int64_t tk = 0; tk < cols / (16 * inner); ++tk) {
          for (int64_t lane = 0; lane < 32; ++lane) {
            for (int64_t j = 0; j < inner / 2; ++j, ++index) {
              uint32_t expected = 0;
              for (int i = 0; i < 8; ++i) {
                const int64_t k = tk * 16 * inner + 32 * j + 2 * (lane % 4) + kInputs[i];
                const int code = code_of(codes, cols, 8 * tn + lane / 4, k);
                expected |= static_cast<uint32_t>(code) << (4 * i);
              }
              uint32_t word = 0;
              std::memcpy(&word, packed.data() + 4 * index, 4);
              EXPECT_EQ(word, expected);
            }
          }
        }
      }
      Bytes back(codes.size());
      unpack_int4_cuda(back.data(), packed.data(), rows, cols, inner);
      EXPECT_EQ(back, codes);
    }
  }
}

TEST(Int4pack, shapes_are_checked) {
  for (const auto& [rows, cols] : {Size{8, 2}, {24, 2}, {0, 2}, {16, 0}, {16, 3}}) {
    EXPECT_EQ(check_int4pack_cpu_shape(rows, cols).error().code, "layout.shape");
  }
  for (const auto& [rows, cols] : {Size{4, 32}, {8, 16}, {0, 32}, {8, 0}, {8, 48}}) {
    EXPECT_EQ(check_int4pack_cuda_shape(rows, cols, 2).error().code, "layout.shape");
  }
  EXPECT_EQ(check_int4pack_cuda_shape(8, 64, 4).ok(), true);
  EXPECT_EQ(check_int4pack_cuda_shape(8, 64, 8).error().code, "layout.shape");
  EXPECT_EQ(check_int4pack_cuda_shape(8, 64, 1).error().code, "layout.shape");
}

/// A matrix with all zero points from 0 to 16 and scales of both signs, 0 among them.
struct Grouped {
  Bytes scales, zeros;
  MatrixView view;

  Grouped(Format type, int64_t rows, int64_t groups) {
    const FormatInfo& number = info(type);
    const int64_t width = number.bits / 8;
    Random random(rows);
    scales.resize(rows * groups * width);
    for (int64_t i = 0; i < rows * groups; ++i) {
      const double value =
          i == 3 ? 0 : (random.uniform() - 0.4) * std::ldexp(1, -static_cast<int>(i % 7));
      const uint32_t code = number.encode(value, Rounding::kNearestEven);
      std::memcpy(scales.data() + i * width, &code, static_cast<std::size_t>(width));
      // A scale of 0 says nothing of its zero point.
      zeros.push_back(std::byte(i == 3 ? 8 : i % 17));
    }
    view.format = {Format::kU4, type, Zero::kU8, 32};
    view.rows = rows;
    view.cols = 32 * groups;
    view.scales = scales;
    view.zeros = zeros;
  }
};

TEST(Int4pack, offsets_are_the_nearest_to_their_definition_and_come_back) {
  for (const Format type : {Format::kF16, Format::kBF16, Format::kF32}) {
    const FormatInfo& number = info(type);
    const int64_t width = number.bits / 8;
    const Grouped made(type, 24, 3);
    const auto tensor = pack_scales_and_zeros(made.view);
    ASSERT_TRUE(tensor.ok()) << tensor.error().message;
    ASSERT_EQ(static_cast<int64_t>(tensor->size()), 24 * 3 * 2 * width);
    for (int64_t n = 0; n < 24; ++n) {
      for (int64_t g = 0; g < 3; ++g) {
        uint32_t pair[2] = {0, 0};
        const std::byte* at = tensor->data() + (g * 24 + n) * 2 * width;
        std::memcpy(&pair[0], at, static_cast<std::size_t>(width));
        std::memcpy(&pair[1], at + width, static_cast<std::size_t>(width));
        EXPECT_EQ(
            std::memcmp(at, &made.scales[(n * 3 + g) * width], static_cast<std::size_t>(width)), 0);
        const double exact =
            (8 - std::to_integer<int>(made.zeros[n * 3 + g])) * number.decode(pair[0]);
        const double found = number.decode(pair[1]);
        EXPECT_LE(std::abs(found - exact), std::abs(number.decode(pair[1] + 1) - exact));
        const double below = found == 0 ? exact + 1 : number.decode(pair[1] - 1);
        EXPECT_LE(std::abs(found - exact), std::abs(below - exact));
      }
    }
    const auto back = unpack_scales_and_zeros(*tensor, type, 24, 3);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->scales, made.scales);
    EXPECT_EQ(back->zeros, made.zeros);
  }
}

/// Random bits, NaN and infinities among them: 256 outputs, 256 groups.
TEST(Int4pack, offsets_come_and_go_as_they_are) {
  for (const Format type : {Format::kF16, Format::kBF16, Format::kF32}) {
    const int64_t width = info(type).bits / 8;
    const Bytes tensor = random_bytes(256 * 256 * 2 * width, 17);
    const auto parts = unpack_scales_and_offsets(tensor, type, 256, 256);
    ASSERT_TRUE(parts.ok()) << parts.error().message;
    MatrixView view;
    view.format = {Format::kI4, type, zero_of_offsets(type), 32};
    view.rows = 256;
    view.cols = 256 * 32;
    view.scales = parts->scales;
    view.zeros = parts->zeros;
    const Bytes codes = random_bytes(256 * view.row_bytes(), 18);
    view.codes = codes;
    // w = (q - 8) s + z, with s and z where PyTorch has them.
    const FormatInfo& number = info(type);
    for (int64_t n = 0; n < 256; n += 5) {
      for (int64_t k = 0; k < view.cols; k += 7) {
        uint32_t pair[2] = {};
        const std::byte* const at = tensor.data() + (k / 32 * 256 + n) * 2 * width;
        for (int i = 0; i < 2; ++i) std::memcpy(&pair[i], at + i * width, width);
        const double s = number.decode(pair[0]);
        const double z = number.decode(pair[1]);
        const double expected = (code_of(codes, view.cols, n, k) - 8) * s + z;
        const double found = weight_at(view, n, k);
        ASSERT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected))) << n << k;
      }
    }
    const auto back = pack_scales_and_zeros(view);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, tensor);
    EXPECT_EQ(pack_scales_and_zeros(view, type, OffsetScale::kStored).error().code,
              "layout.format");
    view.tensor_scale = 2;
    EXPECT_EQ(pack_scales_and_zeros(view).error().code, "layout.format");
    view.tensor_scale = 1;
    view.format.element = Format::kU4;
    EXPECT_EQ(pack_scales_and_zeros(view).error().code, "layout.format");
    view.format = {Format::kI4, Format::kF32, Zero::kF16, 32};
    EXPECT_EQ(pack_scales_and_zeros(view).error().code, "layout.format");
  }
  EXPECT_EQ(unpack_scales_and_offsets(Bytes(8), Format::kE4M3, 1, 1).error().code, "layout.format");
  EXPECT_EQ(unpack_scales_and_offsets(Bytes(8), Format::kF16, 1, 1).error().code, "layout.shape");
}

TEST(Int4pack, offsets_that_no_zero_point_gives_are_refused) {
  const auto code_of_pair = [](float scale, float z) {
    const float pair[2] = {scale, z};
    const auto back = unpack_scales_and_zeros(std::as_bytes(std::span(pair)), Format::kF32, 1, 1);
    return back.ok() ? std::string_view() : back.error().code;
  };
  EXPECT_EQ(code_of_pair(0.5F, 4.0F), "");  // zero point 0
  EXPECT_EQ(code_of_pair(0.5F, -4.0F), "");
  EXPECT_EQ(code_of_pair(0, 0), "");
  EXPECT_EQ(code_of_pair(0.5F, 4.5F), "layout.zero_range");   // -1
  EXPECT_EQ(code_of_pair(0.5F, -4.5F), "layout.zero_range");  // 17
  EXPECT_EQ(code_of_pair(0.5F, 0.25F), "layout.zero_range");
  EXPECT_EQ(code_of_pair(0.5F, std::nextafter(1.0F, 2.0F)), "layout.zero_range");
  EXPECT_EQ(code_of_pair(0, 1), "layout.zero_range");
  EXPECT_EQ(code_of_pair(NAN, 0), "layout.zero_range");
  EXPECT_EQ(code_of_pair(INFINITY, INFINITY), "layout.zero_range");
  EXPECT_EQ(unpack_scales_and_zeros(Bytes(12), Format::kF32, 1, 1).error().code, "layout.shape");
  EXPECT_EQ(unpack_scales_and_zeros(Bytes(2), Format::kE4M3, 1, 1).error().code, "layout.format");
}

TEST(Int4pack, matrices_that_have_no_offsets_are_refused) {
  Grouped made(Format::kF16, 8, 1);
  EXPECT_TRUE(pack_scales_and_zeros(made.view).ok());
  made.zeros[5] = std::byte{17};
  EXPECT_EQ(pack_scales_and_zeros(made.view).error().code, "layout.zero_range");
  made.zeros[5] = std::byte{0};
  const uint16_t large = 0x7800;  // 32768, of which 8 times is beyond float16
  std::memcpy(made.scales.data() + 10, &large, 2);
  EXPECT_EQ(pack_scales_and_zeros(made.view).error().code, "layout.scale_range");
  made.view.format.zero = Zero::kNone;
  EXPECT_EQ(pack_scales_and_zeros(made.view).error().code, "layout.format");
  made.view.format = {Format::kU8, Format::kF16, Zero::kU16, 32};
  EXPECT_EQ(pack_scales_and_zeros(made.view).error().code, "layout.format");
}

TEST(Int4pack, xpu_has_groups_before_outputs) {
  for (const int width : {1, 2}) {
    const Bytes canonical = random_bytes(24 * 3 * width, 1);
    Bytes packed(canonical.size()), back(canonical.size());
    pack_int4_xpu_groups(packed.data(), canonical.data(), 24, 3, width);
    EXPECT_EQ(packed[(2 * 24 + 7) * width], canonical[(7 * 3 + 2) * width]);
    unpack_int4_xpu_groups(back.data(), packed.data(), 24, 3, width);
    EXPECT_EQ(back, canonical);
  }
}

}  // namespace
}  // namespace subbyte
