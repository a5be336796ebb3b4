// The words are decoded here as Marlin's kernels do, by byte permutations, into the fragments of
// mma.m16n8k16 as the PTX manual numbers them; and compared with the permutation that its Python
// code builds.

#include "foreign_layouts/marlin_int8.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "base/random.h"

namespace subbyte {
namespace {

using Bytes = std::vector<std::byte>;

struct Size {
  int64_t rows, cols;
};

const Size kSizes[] = {{64, 16}, {64, 48}, {192, 16}, {128, 80}};

Bytes random_bytes(int64_t size, uint64_t seed) {
  Random random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = std::byte(random.next() & 0xFF);
  return bytes;
}

/// Bytes `low` and `high` of a word as two halves.
uint32_t spread(uint32_t word, int low, int high) {
  return (word >> (8 * low) & 0xFF) | (word >> (8 * high) & 0xFF) << 16;
}

TEST(MarlinInt8, kernels_find_each_fragment_in_its_word) {
  for (const auto& [rows, cols] : kSizes) {
    const Bytes codes = random_bytes(rows * cols, rows + cols);
    const auto code = [&, columns = cols](int64_t n, int64_t k) {
      return std::to_integer<uint32_t>(codes[n * columns + k]);
    };
    Bytes words(codes.size());
    pack_marlin_int8(words.data(), codes.data(), rows, cols);
    for (int64_t index = 0; index < rows * cols / 4; ++index) {
      uint32_t q = 0;
      std::memcpy(&q, words.data() + 4 * index, 4);
      const int64_t lane = index / 8 % 32;
      const int64_t nt = index / 256 % (rows / 64);
      const int64_t kt = index / 256 / (rows / 64);
      const int64_t n = 64 * nt + 16 * (index % 8 / 2) + 8 * (index % 2) + lane / 4;
      const int64_t k = 16 * kt + 2 * (lane % 4);
      EXPECT_EQ(spread(q, 0, 2), code(n, k) | code(n, k + 1) << 16);
      EXPECT_EQ(spread(q, 1, 3), code(n, k + 8) | code(n, k + 9) << 16);
    }
  }
}

/// Which element of a tile of 16 x 64, input-major in blocks of 16 outputs, is at each place:
/// fragments of all lanes one after the other, every four interleaved as 0 2 1 3.
std::vector<int> permutation() {
  std::vector<int> all;
  for (int lane = 0; lane < 32; ++lane) {
    for (int block = 0; block < 4; ++block) {
      for (const int half : {0, 1}) {
        for (const int row : {0, 8, 1, 9}) {
          all.push_back(256 * block + 16 * (lane % 4 * 2 + row) + lane / 4 + 8 * half);
        }
      }
    }
  }
  return all;
}

TEST(MarlinInt8, is_the_permutation_of_its_tiles) {
  const std::vector<int> order = permutation();
  ASSERT_EQ(order.size(), 1024u);
  for (const auto& [rows, cols] : kSizes) {
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t k = 0; k < cols; ++k) {
        const int64_t place = marlin_int8_place(n, k, rows);
        const int64_t tile = place / 1024;
        ASSERT_EQ(tile, k / 16 * (rows / 64) + n / 64);
        ASSERT_EQ(order[place % 1024], n % 64 / 16 * 256 + k % 16 * 16 + n % 16);
      }
    }
  }
}

TEST(MarlinInt8, is_a_bijection) {
  for (const auto& [rows, cols] : kSizes) {
    std::set<int64_t> places;
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t k = 0; k < cols; ++k) places.insert(marlin_int8_place(n, k, rows));
    }
    EXPECT_EQ(static_cast<int64_t>(places.size()), rows * cols);
    EXPECT_EQ(*places.begin(), 0);
    EXPECT_EQ(*places.rbegin(), rows * cols - 1);
    const Bytes codes = random_bytes(rows * cols, 3);
    Bytes words(codes.size()), back(codes.size());
    pack_marlin_int8(words.data(), codes.data(), rows, cols);
    unpack_marlin_int8(back.data(), words.data(), rows, cols);
    EXPECT_EQ(back, codes);
  }
}

TEST(MarlinInt8, orders_zero_points_as_scales_and_interleaves_them) {
  // Columns 0 to 7 in the order of scales are outputs 0, 8, 16, ... 56; in each four the middle two
  // change places.
  const int64_t first[8] = {0, 16, 8, 24, 32, 48, 40, 56};
  for (int64_t c = 0; c < 8; ++c) EXPECT_EQ(marlin_int8_zero_output(c), first[c]);
  std::set<int64_t> outputs;
  for (int64_t c = 0; c < 192; ++c) outputs.insert(marlin_int8_zero_output(c));
  EXPECT_EQ(outputs.size(), 192u);
  EXPECT_EQ(*outputs.rbegin(), 191);

  Bytes zeros = random_bytes(2 * 128 * 3, 9);
  for (std::size_t i = 1; i < zeros.size(); i += 2) zeros[i] = std::byte{0};
  Bytes packed(128 * 3), back(zeros.size());
  ASSERT_TRUE(pack_marlin_int8_zeros(packed.data(), zeros.data(), 128, 3).ok());
  EXPECT_EQ(packed[2 * 128 + 1], zeros[2 * (16 * 3 + 2)]);
  unpack_marlin_int8_zeros(back.data(), packed.data(), 128, 3);
  EXPECT_EQ(back, zeros);
  zeros[2 * (17 * 3 + 1) + 1] = std::byte{1};  // 256 and more
  const Status refused = pack_marlin_int8_zeros(packed.data(), zeros.data(), 128, 3);
  EXPECT_EQ(refused.error().code, "layout.zero_range");
  EXPECT_NE(refused.error().message.find("of output 17, group 1"), std::string::npos);
}

}  // namespace
}  // namespace subbyte
