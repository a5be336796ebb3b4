// The words are decoded here as Marlin's kernels do, by masks and shifts, into the fragments of
// mma.m16n8k16 as the PTX manual numbers them; scales and zero points by their tables of positions.

#include "foreign_layouts/marlin.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "formats/format.h"

namespace subbyte {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(int64_t size, uint64_t seed) {
  Random random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = std::byte(random.next() & 0xFF);
  return bytes;
}

uint32_t word_at(const Bytes& bytes, int64_t index) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + 4 * index, 4);
  return word;
}

uint32_t code_of(const Bytes& codes, int64_t cols, int64_t n, int64_t k) {
  return std::to_integer<uint32_t>(codes[(n * cols + k) / 2]) >> (4 * (k % 2)) & 0xF;
}

struct Size {
  int64_t rows, cols;
};

const Size kSizes[] = {{64, 16}, {64, 48}, {192, 16}, {128, 80}};

TEST(Marlin, kernels_find_each_fragment_in_its_word) {
  for (const auto& [rows, cols] : kSizes) {
    const Bytes codes = random_bytes(rows * cols / 2, rows + cols);
    Bytes words(codes.size());
    pack_marlin(words.data(), codes.data(), rows, cols);
    for (int64_t index = 0; index < rows * cols / 8; ++index) {
      const int64_t w = index % 4;
      const int64_t lane = index / 4 % 32;
      const int64_t nt = index / 128 % (rows / 64);
      const int64_t kt = index / 128 / (rows / 64);
      for (int block = 0; block < 2; ++block) {
        const uint32_t q = word_at(words, index) >> (8 * block);
        const int64_t n = 64 * nt + 16 * w + 8 * block + lane / 4;  // column g of B
        const int64_t k = 16 * kt + 2 * (lane % 4);                 // rows 2t, 2t+1, 2t+8, 2t+9
        EXPECT_EQ(q & 0x000F000F, code_of(codes, cols, n, k) | code_of(codes, cols, n, k + 1)
                                                                   << 16);
        EXPECT_EQ(q >> 4 & 0x000F000F,
                  code_of(codes, cols, n, k + 8) | code_of(codes, cols, n, k + 9) << 16);
      }
    }
  }
}

TEST(Marlin, is_a_bijection) {
  for (const auto& [rows, cols] : kSizes) {
    std::set<std::pair<int64_t, int>> places;
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t k = 0; k < cols; ++k) {
        const NibblePlace place = marlin_place(n, k, rows);
        ASSERT_TRUE(place.byte >= 0 && place.byte < rows * cols / 2);
        places.insert({place.byte, place.shift});
      }
    }
    EXPECT_EQ(static_cast<int64_t>(places.size()), rows * cols);
    const Bytes codes = random_bytes(rows * cols / 2, 3);
    Bytes words(codes.size()), back(codes.size());
    pack_marlin(words.data(), codes.data(), rows, cols);
    unpack_marlin(back.data(), words.data(), rows, cols);
    EXPECT_EQ(back, codes);
  }
}

TEST(Marlin, shapes_are_checked) {
  EXPECT_TRUE(check_marlin_shape(64, 16).ok());
  for (const auto& [rows, cols] : {Size{32, 16}, {64, 8}, {0, 16}, {64, 0}, {-64, 16}, {96, 16}}) {
    EXPECT_EQ(check_marlin_shape(rows, cols).error().code, "layout.shape");
  }
}

TEST(Marlin, orders_scales_by_their_tables) {
  // Grouped: 8 x 8 transposed.
  for (int64_t block : {0, 64, 128}) {
    for (int64_t i = 0; i < 8; ++i) {
      for (int64_t j = 0; j < 8; ++j) {
        EXPECT_EQ(marlin_scale_output(block + 8 * i + j, true), block + i + 8 * j);
      }
    }
  }
  // One group: pairs of columns of four tiles of 8.
  const int64_t first[32] = {0, 1, 8,  9,  16, 17, 24, 25, 2, 3, 10, 11, 18, 19, 26, 27,
                             4, 5, 12, 13, 20, 21, 28, 29, 6, 7, 14, 15, 22, 23, 30, 31};
  for (int64_t c = 0; c < 64; ++c) {
    EXPECT_EQ(marlin_scale_output(c, false), c / 32 * 32 + first[c % 32]);
  }
  for (const int width : {1, 2, 4}) {
    for (const int64_t groups : {1, 3}) {
      const Bytes scales = random_bytes(128 * groups * width, groups);
      Bytes packed(scales.size()), back(scales.size());
      pack_marlin_scales(packed.data(), scales.data(), 128, groups, width);
      for (int64_t i = 0; i < 128 * groups; ++i) {
        const int64_t n = marlin_scale_output(i % 128, groups > 1);
        EXPECT_EQ(std::memcmp(&packed[i * width], &scales[(n * groups + i / 128) * width],
                              static_cast<std::size_t>(width)),
                  0);
      }
      unpack_marlin_scales(back.data(), packed.data(), 128, groups, width);
      EXPECT_EQ(back, scales);
    }
  }
}

TEST(Marlin, orders_zero_points_as_scales_and_interleaves_them) {
  // 64 outputs, one group; output n has n % 16. Columns 0..7 in the order of scales are outputs 0,
  // 8, 16, ... 56, so the first word holds those of columns 0, 2, 4, 6, 1, 3, 5, 7: four times 0,
  // four times 8.
  Bytes zeros(64);
  for (int n = 0; n < 64; ++n) zeros[n] = std::byte(n % 16);
  Bytes words(32);
  ASSERT_TRUE(pack_marlin_zeros(words.data(), zeros.data(), 64, 1).ok());
  EXPECT_EQ(word_at(words, 0), 0x88880000u);
  EXPECT_EQ(word_at(words, 5), 0xDDDD5555u);
  const Bytes random = [] {
    Bytes bytes = random_bytes(128 * 3, 9);
    for (std::byte& byte : bytes) byte &= std::byte{0xF};
    return bytes;
  }();
  Bytes packed(random.size() / 2), back(random.size());
  ASSERT_TRUE(pack_marlin_zeros(packed.data(), random.data(), 128, 3).ok());
  unpack_marlin_zeros(back.data(), packed.data(), 128, 3);
  EXPECT_EQ(back, random);
  zeros[17] = std::byte{16};
  const Status refused = pack_marlin_zeros(words.data(), zeros.data(), 64, 1);
  EXPECT_EQ(refused.error().code, "layout.zero_range");
  EXPECT_NE(refused.error().message.find("zero point 16 of output 17, group 0"), std::string::npos);
}

TEST(Marlin, orders_scales_of_fp4) {
  // Columns 0..3 in the order of grouped scales are outputs 0, 8, 16, 24; then the middle two swap.
  const int64_t first[8] = {0, 16, 8, 24, 32, 48, 40, 56};
  for (int64_t c = 0; c < 8; ++c) EXPECT_EQ(marlin_fp4_scale_output(c), first[c]);
  std::set<int64_t> outputs;
  for (int64_t c = 0; c < 192; ++c) outputs.insert(marlin_fp4_scale_output(c));
  EXPECT_EQ(outputs.size(), 192u);
  EXPECT_EQ(*outputs.rbegin(), 191);
  const Bytes scales = random_bytes(192 * 5, 4);
  Bytes packed(scales.size()), back(scales.size());
  pack_marlin_e8m0(packed.data(), scales.data(), 192, 5);
  EXPECT_EQ(packed[3 * 192 + 1], scales[16 * 5 + 3]);
  unpack_marlin_e8m0(back.data(), packed.data(), 192, 5);
  EXPECT_EQ(back, scales);
}

/// The value of such a byte, by the kernel for f16.
double value_of(std::byte scale) {
  const auto half = static_cast<uint16_t>(std::to_integer<uint32_t>(scale) << 7);
  return to_float(Float16{half}) / 128;
}

TEST(Marlin, scales_of_nvfp4_are_halves_without_their_sign_and_last_bits) {
  const FormatInfo& e4m3 = info(Format::kE4M3);
  Bytes scales(128);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = std::byte(i % 0x7F);
  Bytes packed(scales.size()), back(scales.size());
  for (const Format activations : {Format::kF16, Format::kBF16}) {
    EXPECT_EQ(*marlin_e4m3_factor(scales, activations), 1);  // 448 is among them
    // 0x01 to 0x07, below 2^-6
    EXPECT_EQ(pack_marlin_e4m3(1, packed.data(), scales.data(), 64, 2), 7);
    for (int64_t i = 0; i < 128; ++i) {
      const auto code =
          std::to_integer<uint32_t>(scales[marlin_fp4_scale_output(i % 64) * 2 + i / 64]);
      EXPECT_EQ(value_of(packed[i]), code < 8 ? 0 : e4m3.decode(code)) << code;
    }
    ASSERT_TRUE(unpack_marlin_e4m3(back.data(), packed.data(), 64, 2, 1).ok());
    for (std::size_t i = 0; i < scales.size(); ++i) {
      EXPECT_EQ(back[i], i % 0x7F < 8 ? std::byte{0} : scales[i]);
    }
  }
}

TEST(Marlin, small_scales_of_nvfp4_become_larger_for_bf16_alone) {
  const FormatInfo& e4m3 = info(Format::kE4M3);
  Bytes scales(64), packed(64), back(64);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = std::byte(i % 0x20);  // up to 0.117
  EXPECT_EQ(*marlin_e4m3_factor(scales, Format::kF16), 1);
  EXPECT_EQ(pack_marlin_e4m3(1, packed.data(), scales.data(), 64, 1), 14);
  // 0.1171875 * 2048 = 240, and twice that is beyond 448.
  EXPECT_EQ(*marlin_e4m3_factor(scales, Format::kBF16), 2048);
  EXPECT_EQ(pack_marlin_e4m3(2048, packed.data(), scales.data(), 64, 1), 0);
  for (int64_t c = 0; c < 64; ++c) {
    const auto code = std::to_integer<uint32_t>(scales[marlin_fp4_scale_output(c)]);
    EXPECT_EQ(value_of(packed[c]), e4m3.decode(code) * 2048) << code;
  }
  ASSERT_TRUE(unpack_marlin_e4m3(back.data(), packed.data(), 64, 1, 2048).ok());
  EXPECT_EQ(back, scales);
  const Bytes zeros(64);
  EXPECT_EQ(*marlin_e4m3_factor(zeros, Format::kBF16), 1);
}

TEST(Marlin, refuses_what_is_no_scale_of_nvfp4) {
  Bytes scales(64), packed(64);
  for (const int bad : {0x7F, 0x80, 0xB8, 0xFF}) {
    scales[7] = std::byte(bad);
    for (const Format activations : {Format::kF16, Format::kBF16}) {
      EXPECT_EQ(marlin_e4m3_factor(scales, activations).error().code, "layout.scale_range");
    }
  }
  scales[7] = std::byte{0};
  EXPECT_EQ(marlin_e4m3_factor(scales, Format::kF32).error().code, "layout.format");
  for (const int bad : {1, 0xFF}) {  // 2^-24 / 2^7, and 61440 * 15/16 * 2 / 2^7
    packed[5] = std::byte(bad);
    EXPECT_EQ(unpack_marlin_e4m3(scales.data(), packed.data(), 64, 1, 1).error().code,
              "layout.scale_range");
  }
}

}  // namespace
}  // namespace subbyte
