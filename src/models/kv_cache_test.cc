#include "models/kv_cache.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

namespace subbyte {
namespace {

ModelConfig small_config() {
  ModelConfig config;
  config.num_layers = 3;
  config.num_kv_heads = 2;
  config.head_dim = 4;
  return config;
}

/// Eight numbers that tell where they belong.
std::vector<float> row(int64_t layer, int64_t position, float sign) {
  std::vector<float> values(8);
  std::iota(values.begin(), values.end(), static_cast<float>(1000 * layer + 10 * position));
  for (float& value : values) value *= sign;
  return values;
}

/// Stores the rows of both heads of one token.
void store(KvCache& cache, int64_t layer, int64_t position, float sign_of_keys) {
  for (const float sign : {sign_of_keys, -sign_of_keys}) {
    const std::vector<float> values = row(layer, position, sign);
    for (int64_t head = 0; head < 2; ++head) {
      float* to = sign == sign_of_keys ? cache.key(layer, head, position)
                                       : cache.value(layer, head, position);
      std::copy_n(values.begin() + 4 * head, 4, to);
    }
  }
}

TEST(KvCache, keeps_the_rows_of_a_head_together) {
  KvCache cache(small_config(), 5);
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (int64_t position = 0; position < 5; ++position) {
      store(cache, layer, position, 1);
    }
  }
  for (int64_t layer = 0; layer < 3; ++layer) {
    const KvView view = cache.layer(layer);
    EXPECT_EQ(view.capacity, 5);
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t position = 0; position < 5; ++position) {
        for (int64_t i = 0; i < 4; ++i) {
          const int64_t at = (head * 5 + position) * 4 + i;
          const auto expected = static_cast<float>(1000 * layer + 10 * position + 4 * head + i);
          EXPECT_EQ(view.keys[at], expected);
          EXPECT_EQ(view.values[at], -expected);
        }
      }
    }
  }
}

TEST(KvCache, counts_positions) {
  KvCache cache(small_config(), 8);
  EXPECT_EQ(cache.capacity(), 8);
  EXPECT_EQ(cache.size(), 0);
  cache.advance(3);
  cache.advance(4);
  EXPECT_EQ(cache.size(), 7);
  cache.truncate(9);
  EXPECT_EQ(cache.size(), 7);
  cache.truncate(2);
  EXPECT_EQ(cache.size(), 2);
  cache.truncate(0);
  EXPECT_EQ(cache.size(), 0);
}

TEST(KvCache, truncating_keeps_what_is_before) {
  KvCache cache(small_config(), 4);
  store(cache, 1, 0, 1);
  store(cache, 1, 1, 1);
  cache.advance(2);
  cache.truncate(1);
  EXPECT_EQ(cache.layer(1).keys[0], 1000);
  *cache.key(1, 0, 1) = 2020;
  EXPECT_EQ(cache.layer(1).keys[4], 2020);
}

TEST(KvCache, says_what_a_position_costs) {
  // Keys and values of 3 layers, 2 heads, 4 floats.
  EXPECT_EQ(KvCache(small_config(), 1).bytes_per_position(), 2 * 3 * 2 * 4 * 4);
}

int64_t resident_pages() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = -1;
  statm >> size >> resident;
  return resident;
}

TEST(KvCache, room_that_is_not_used_costs_nothing) {
  ModelConfig config = small_config();
  config.num_layers = 2;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  const int64_t capacity = 1 << 18;
  const int64_t before = resident_pages();
  ASSERT_GT(before, 0);
  KvCache cache(config, capacity);  // 4 GiB of address space
  for (int64_t head = 0; head < 8; ++head) {
    std::fill_n(cache.key(1, head, capacity - 1), 128, 1.0f);
    std::fill_n(cache.value(1, head, capacity - 1), 128, 1.0f);
  }
  EXPECT_LT(resident_pages() - before, 1000);
  const KvView view = cache.layer(1);
  EXPECT_EQ(view.keys[8 * capacity * 128 - 1], 1);
  EXPECT_EQ(view.values[8 * capacity * 128 - 128], 1);
  EXPECT_EQ(view.values[8 * capacity * 128 - 129], 0);
}

}  // namespace
}  // namespace subbyte
