// Planes are made here from single codes by the definition, without the library's packing.

#include "foreign_layouts/kbit.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "base/random.h"
#include "matrix/matrix.h"

namespace subbyte {
namespace {

using Bytes = std::vector<std::byte>;

constexpr Format kElements[] = {Format::kNFL2, Format::kNFL3, Format::kNFL4, Format::kNFL5};

Bytes random_bytes(int64_t size, uint64_t seed) {
  Random random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = std::byte(random.next() & 0xFF);
  return bytes;
}

std::vector<KbitShape> shapes() {
  std::vector<KbitShape> all;
  for (int bits = 2; bits <= 5; ++bits) {
    for (const auto& [rows, cols] : {std::pair(1, 32), {8, 32}, {5, 160}, {33, 64}}) {
      all.push_back({rows, cols, bits, KbitOrder::kFlat});
    }
    for (const auto& [rows, cols] : {std::pair(128, 64), {128, 32}, {256, 160}, {384, 128}}) {
      all.push_back({rows, cols, bits, KbitOrder::kTiled});
    }
  }
  return all;
}

/// Block of (n, k) as formats have it, written with divisions of n and k alone.
int64_t block_of(const KbitShape& shape, int64_t n, int64_t k) {
  if (shape.order == KbitOrder::kFlat) return (n * shape.cols + k) / 32;
  const int64_t tiles_of_outputs = shape.rows / 128;
  return ((k / 64 * tiles_of_outputs + n / 128) * 128 + n % 128) * 2 + k % 64 / 32;
}

TEST(Kbit, every_bit_lies_in_its_plane) {
  for (const KbitShape& shape : shapes()) {
    ASSERT_TRUE(check_kbit_shape(shape).ok());
    const Bytes codes = random_bytes(shape.rows * shape.cols * shape.bits / 8, shape.cols);
    MatrixView view;
    view.format = {kElements[shape.bits - 2], Format::kE4M4, Zero::kNone, 32};
    view.rows = shape.rows;
    view.cols = shape.cols;
    view.codes = codes;
    std::vector<uint32_t> expected(kbit_blocks(shape) * shape.bits);
    for (int64_t n = 0; n < shape.rows; ++n) {
      for (int64_t k = 0; k < shape.cols; ++k) {
        for (int plane = 0; plane < shape.bits; ++plane) {
          expected[block_of(shape, n, k) * shape.bits + plane] |=
              (code_at(view, n, k) >> plane & 1u) << (k % 32);
        }
      }
    }
    Bytes planes(expected.size() * 4, std::byte{0xEE});
    pack_kbit(planes.data(), codes.data(), shape);
    EXPECT_EQ(std::memcmp(planes.data(), expected.data(), planes.size()), 0);
    Bytes back(codes.size(), std::byte{0xEE});
    unpack_kbit(back.data(), planes.data(), shape);
    EXPECT_EQ(back, codes);
  }
}

TEST(Kbit, planes_of_known_codes) {
  // 3 bits: element 0 is 5, element 1 is 0, element 2 is 7, element 31 is 4, others 0.
  Bytes codes(12);
  codes[0] = std::byte{0xC5};   // 101, 000, 11
  codes[1] = std::byte{0x01};   // 1
  codes[11] = std::byte{0x80};  // bits 93..95 are 100
  Bytes planes(12);
  pack_kbit(planes.data(), codes.data(), {1, 32, 3, KbitOrder::kFlat});
  uint32_t words[3];
  std::memcpy(words, planes.data(), 12);
  EXPECT_EQ(words[0], 0x00000005u);
  EXPECT_EQ(words[1], 0x00000004u);
  EXPECT_EQ(words[2], 0x80000005u);
}

TEST(Kbit, scales_follow_the_blocks) {
  for (const KbitShape& shape : shapes()) {
    for (const int width : {1, 2}) {
      const Bytes scales = random_bytes(shape.rows * shape.cols / 32 * width, 5);
      Bytes packed(kbit_blocks(shape) * width, std::byte{0xEE}), back(scales.size());
      pack_kbit_scales(packed.data(), scales.data(), shape, width);
      std::set<int64_t> blocks;
      for (int64_t n = 0; n < shape.rows; ++n) {
        for (int64_t k = 0; k < shape.cols; k += 32) {
          const int64_t block = block_of(shape, n, k);
          blocks.insert(block);
          EXPECT_EQ(std::memcmp(&packed[block * width], &scales[(n * shape.cols + k) / 32 * width],
                                static_cast<std::size_t>(width)),
                    0);
        }
      }
      EXPECT_EQ(static_cast<int64_t>(blocks.size()), shape.rows * shape.cols / 32);
      for (int64_t block = 0; block < kbit_blocks(shape); ++block) {
        EXPECT_TRUE(blocks.contains(block) || packed[block * width] == std::byte{0});
      }
      unpack_kbit_scales(back.data(), packed.data(), shape, width);
      EXPECT_EQ(back, scales);
    }
  }
}

TEST(Kbit, a_tail_of_32_inputs_takes_half_a_tile) {
  EXPECT_EQ(kbit_blocks({128, 96, 4, KbitOrder::kTiled}), 128 * 4);
  EXPECT_EQ(kbit_blocks({128, 96, 4, KbitOrder::kFlat}), 128 * 3);
  EXPECT_EQ(kbit_block({128, 96, 4, KbitOrder::kTiled}, 127, 2), 2 * 128 + 2 * 127);
}

TEST(Kbit, shapes_are_checked) {
  for (const KbitShape& shape : {KbitShape{8, 48, 4, KbitOrder::kFlat},
                                 {8, 32, 1, KbitOrder::kFlat},
                                 {8, 32, 6, KbitOrder::kFlat},
                                 {0, 32, 4, KbitOrder::kFlat},
                                 {8, 0, 4, KbitOrder::kFlat},
                                 {64, 64, 4, KbitOrder::kTiled},
                                 {128, 48, 4, KbitOrder::kTiled}}) {
    EXPECT_EQ(check_kbit_shape(shape).error().code, "layout.shape");
  }
}

}  // namespace
}  // namespace subbyte
