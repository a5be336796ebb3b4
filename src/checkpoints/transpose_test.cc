#include "checkpoints/transpose.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "support/guarded_bytes.h"

namespace subbyte {
namespace {

// Output of nibble i of a word.
constexpr int kOutputOfNibble[8] = {0, 2, 4, 6, 1, 3, 5, 7};

std::vector<std::byte> random_bytes(int64_t size) {
  Random random(static_cast<uint64_t>(size));
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
  return bytes;
}

uint32_t nibble(const std::vector<std::byte>& from, int64_t words, int64_t row, int64_t output) {
  for (int64_t i = 0; i < 8; ++i) {
    if (kOutputOfNibble[i] != output % 8) continue;
    const std::byte byte = from[(row * words + output / 8) * 4 + i / 2];
    return (std::to_integer<uint32_t>(byte) >> (4 * (i % 2))) & 0xFu;
  }
  return ~0u;
}

constexpr int64_t kRows[] = {1, 2, 3, 8, 16, 17, 31, 64, 65, 130, 257};
constexpr int64_t kCols[] = {1, 2, 5, 8, 15, 16, 17, 33, 64, 100, 130};

TEST(Transpose, moves_every_element_of_every_width_and_shape) {
  for (const int width : {1, 2, 4}) {
    for (const int64_t rows : kRows) {
      for (const int64_t cols : kCols) {
        const auto from = random_bytes(rows * cols * width);
        for (const int threads : {1, 3}) {
          ThreadPool pool(threads);
          std::vector<std::byte> to(from.size());
          transpose(to.data(), from.data(), rows, cols, width, pool);
          int64_t wrong = 0;
          for (int64_t n = 0; n < cols; ++n) {
            for (int64_t k = 0; k < rows; ++k) {
              wrong += std::memcmp(&to[(n * rows + k) * width], &from[(k * cols + n) * width],
                                   width) != 0;
            }
          }
          ASSERT_EQ(wrong, 0) << rows << " x " << cols << " of " << width << " bytes";
        }
      }
    }
  }
}

TEST(Transpose, nibbles_of_awq_go_to_their_outputs) {
  for (const int64_t rows : {2, 8, 24, 32, 40, 128, 136, 256, 264}) {
    for (const int64_t words : {1, 2, 3, 4, 15, 16, 17, 33}) {
      const auto from = random_bytes(rows * words * 4);
      for (const int threads : {1, 3}) {
        ThreadPool pool(threads);
        std::vector<std::byte> to(from.size());
        transpose_awq_nibbles(to.data(), from.data(), rows, words, pool);
        int64_t wrong = 0;
        for (int64_t n = 0; n < 8 * words; ++n) {
          for (int64_t k = 0; k < rows; ++k) {
            const auto byte = std::to_integer<uint32_t>(to[n * (rows / 2) + k / 2]);
            wrong += ((byte >> (4 * (k % 2))) & 0xFu) != nibble(from, words, k, n);
          }
        }
        ASSERT_EQ(wrong, 0) << rows << " x " << words << " words";
      }
    }
  }
}

TEST(Transpose, nibbles_of_awq_become_bytes) {
  ThreadPool pool(2);
  for (const int64_t rows : kRows) {
    for (const int64_t words : {1, 3, 4, 16, 17}) {
      const auto from = random_bytes(rows * words * 4);
      std::vector<std::byte> to(8 * words * rows);
      transpose_awq_nibbles_to_bytes(to.data(), from.data(), rows, words, pool);
      int64_t wrong = 0;
      for (int64_t n = 0; n < 8 * words; ++n) {
        for (int64_t k = 0; k < rows; ++k) {
          wrong += std::to_integer<uint32_t>(to[n * rows + k]) != nibble(from, words, k, n);
        }
      }
      ASSERT_EQ(wrong, 0) << rows << " x " << words << " words";
    }
  }
}

TEST(Transpose, touches_nothing_beyond_its_sizes) {
  // Both end at pages that fault.
  ThreadPool pool(1);
  for (const int64_t rows : {2, 8, 30, 136}) {
    for (const int64_t words : {1, 5, 17}) {
      testing::GuardedBytes from(rows * words * 4);
      testing::GuardedBytes to(rows * words * 8);
      const auto tail = [&](int64_t bytes) { return to.data() + to.size() - bytes; };
      transpose(tail(rows * words * 4), from.data(), rows, words, 4, pool);
      transpose(tail(rows * words * 4), from.data(), rows, 2 * words, 2, pool);
      transpose(tail(rows * words * 4), from.data(), rows, 4 * words, 1, pool);
      transpose_awq_nibbles(tail(rows * words * 4), from.data(), rows, words, pool);
      transpose_awq_nibbles_to_bytes(tail(rows * words * 8), from.data(), rows, words, pool);
    }
  }
}

}  // namespace
}  // namespace subbyte
