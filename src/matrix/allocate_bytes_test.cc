#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "matrix/matrix.h"

namespace subbyte {
namespace {

TEST(AllocateBytes, buffers_are_aligned_zeroed_and_readable_beyond_the_end) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{2047}, std::size_t{2048}, std::size_t{4096},
        std::size_t{5000}, std::size_t{3} << 20}) {
    for (const Pages pages : {Pages::kHuge, Pages::kSmall}) {
      const auto buffer = allocate_bytes(size, pages);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.get()) % 64, 0u);
      for (std::size_t i = 0; i < size + 64; ++i) ASSERT_EQ(buffer[i], std::byte{0});
      if (size != 0) buffer[size - 1] = std::byte{1};
    }
  }
}

TEST(AllocateBytes, buffers_keep_apart_and_are_zeroed_again) {
  // More than one region of 64 MiB, and each third larger than what shares one.
  constexpr std::size_t kSizes[] = {5000, std::size_t{9} << 20, std::size_t{17} << 20};
  std::vector<std::shared_ptr<std::byte[]>> buffers;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < 24; ++i) {
      const std::size_t size = kSizes[i % 3];
      if (round == 1 && i % 2 == 0) continue;  // kept
      const auto buffer = allocate_bytes(size);
      for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
        EXPECT_EQ(buffer[at], std::byte{0});
      }
      std::memset(buffer.get(), static_cast<int>(i + 1), size);
      if (round == 0) {
        buffers.push_back(buffer);
      } else {
        buffers[i] = buffer;
      }
    }
    for (std::size_t i = 0; i < 24; ++i) {
      EXPECT_EQ(buffers[i][0], static_cast<std::byte>(i + 1));
      EXPECT_EQ(buffers[i][kSizes[i % 3] - 1], static_cast<std::byte>(i + 1));
      if (round == 0 && i % 2 != 0) buffers[i].reset();
    }
  }
}

}  // namespace
}  // namespace subbyte
