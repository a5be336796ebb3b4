// The exponential of every table against double precision, and the memory that attention may use.
// What else is in the tables is compared with oracles by the tests of the operations that use it.

#include "kernels/cpu/vector_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "kernels/cpu/cpu_kernels.h"
#include "support/guarded_bytes.h"
#include "support/kv_e4m3.h"

namespace subbyte::cpu {
namespace {

std::vector<const Kernels*> tables_of_this_machine() {
  std::vector<const Kernels*> tables;
  for (const Kernels* kernels : all_kernels()) {
    if (select_kernels(kernels->name).ok()) tables.push_back(kernels);
  }
  return tables;
}

/// Whether `found` is within the bound that vector_kernels.h states.
bool good_exp(float found, double exact) {
  if (exact > static_cast<double>(std::numeric_limits<float>::max()) * (1 + 0x1p-23)) {
    return found == INFINITY;
  }
  return std::fabs(found - exact) <= 3 * 0x1p-24 * exact + 0x1p-150 ||
         (found == INFINITY && exact * (1 + 3 * 0x1p-24) > std::numeric_limits<float>::max());
}

/// Every `step`th float from `first` away from zero up to `last`.
void expect_good(const std::vector<const Kernels*>& tables, float first, float last,
                 uint32_t step) {
  constexpr std::size_t kMany = 4096;
  const auto end = std::bit_cast<uint32_t>(last);
  std::vector<float> x(kMany);
  std::vector<float> y(kMany);
  std::vector<double> exact(kMany);
  std::size_t filled = 0;
  std::vector<int> bad(tables.size());
  const auto check = [&] {
    for (std::size_t i = 0; i < filled; ++i) exact[i] = std::exp(static_cast<double>(x[i]));
    for (std::size_t table = 0; table < tables.size(); ++table) {
      tables[table]->vectors->exp(y.data(), x.data(), static_cast<int64_t>(filled));
      for (std::size_t i = 0; i < filled; ++i) bad[table] += !good_exp(y[i], exact[i]);
    }
    filled = 0;
  };
  for (uint64_t bits = std::bit_cast<uint32_t>(first); bits <= end; bits += step) {
    x[filled++] = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (filled == kMany) check();
  }
  check();
  for (std::size_t table = 0; table < tables.size(); ++table) {
    EXPECT_EQ(bad[table], 0) << tables[table]->name << ", " << first << " to " << last;
  }
}

TEST(Exp, is_within_its_bound) {
  const std::vector<const Kernels*> tables = tables_of_this_machine();
  // All binades, then those whose results differ from 1, finely.
  expect_good(tables, -0.0f, -200, 1009);
  expect_good(tables, 0, 200, 1009);
  expect_good(tables, -0x1p-6f, -105, 61);
  expect_good(tables, 0x1p-6f, 89, 61);
}

TEST(Exp, has_its_limits) {
  for (const Kernels* kernels : tables_of_this_machine()) {
    const std::vector<float> x = {0,        -0.0f,   -INFINITY, INFINITY, NAN,  -1e30f,
                                  1e30f,    -104.5f, 89,        88.72f,   -88,  -103.9f,
                                  -3.4e38f, 3.4e38f, 1e-45f,    -1e-45f,  -NAN, 1};
    std::vector<float> y(x.size());
    kernels->vectors->exp(y.data(), x.data(), std::ssize(x));
    EXPECT_EQ(y[0], 1);
    EXPECT_EQ(y[1], 1);
    EXPECT_EQ(y[2], 0);
    EXPECT_EQ(y[3], INFINITY);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[5], 0);
    EXPECT_EQ(y[6], INFINITY);
    EXPECT_EQ(y[7], 0);
    EXPECT_EQ(y[8], INFINITY);
    EXPECT_TRUE(std::isfinite(y[9]));
    EXPECT_EQ(y[11], 0x1p-149f);
    EXPECT_EQ(y[12], 0);
    EXPECT_EQ(y[13], INFINITY);
    EXPECT_EQ(y[14], 1);
    EXPECT_EQ(y[15], 1);
    EXPECT_TRUE(std::isnan(y[16]));
  }
}

TEST(Exp, of_any_length_is_the_same_and_writes_nothing_else) {
  for (const Kernels* kernels : tables_of_this_machine()) {
    std::vector<float> x(70);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 40.3f;
    std::vector<float> all(x.size());
    kernels->vectors->exp(all.data(), x.data(), std::ssize(x));
    for (std::size_t n = 0; n < x.size(); ++n) {
      std::vector<float> y(x.size(), -1);
      kernels->vectors->exp(y.data(), x.data(), static_cast<int64_t>(n));
      for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], i < n ? all[i] : -1);
    }
  }
}

/// All magnitudes, ties of both types, what overflows and what is subnormal there.
std::vector<float> numbers_to_store() {
  std::vector<float> numbers = {0,         -0.0f,      INFINITY,   -INFINITY,   NAN,
                                65504,     65519.99f,  65520,      1e30f,       3.4e38f,
                                -3.39e38f, 1e-45f,     0x1p-133f,  0x1.8p-134f, 0x1p-24f,
                                0x1p-25f,  0x1.8p-25f, 0x1.8p-24f, 0x1p-14f,    0x1.ffcp-15f};
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 99991) {
    numbers.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (uint32_t tie = 0; tie < 4096; ++tie) {  // halfway between two numbers of either type
    numbers.push_back(std::bit_cast<float>(0x3F801000u + (tie << 12)));
    numbers.push_back(std::bit_cast<float>(0x3F808000u + (tie << 15)));
  }
  return numbers;
}

TEST(StoreKv, rounds_as_the_scalar_conversions_do) {
  const std::vector<float> x = numbers_to_store();
  for (const Kernels* kernels : tables_of_this_machine()) {
    const auto store = [&](Element element, int64_t bytes) {
      std::vector<uint8_t> y(x.size() * bytes);
      kernels->vectors->store_kv[static_cast<int>(element)](y.data(), nullptr, x.data(),
                                                            std::ssize(x));
      return y;
    };
    const std::vector<uint8_t> f32 = store(Element::kF32, 4);
    EXPECT_EQ(std::memcmp(f32.data(), x.data(), f32.size()), 0);
    const std::vector<uint8_t> f16 = store(Element::kF16, 2);
    const std::vector<uint8_t> bf16 = store(Element::kBF16, 2);
    for (std::size_t i = 0; i < x.size(); ++i) {
      uint16_t found = 0;
      std::memcpy(&found, &f16[2 * i], 2);
      ASSERT_EQ(found, to_float16(x[i]).bits) << kernels->name << " " << x[i];
      std::memcpy(&found, &bf16[2 * i], 2);
      ASSERT_EQ(found, to_bfloat16(x[i]).bits) << kernels->name << " " << x[i];
    }
  }
}

TEST(StoreKv, e4m3_has_the_scale_and_the_elements_of_the_codecs) {
  const std::vector<float> all = numbers_to_store();
  Random random(7);
  for (const Kernels* kernels : tables_of_this_machine()) {
    for (const int64_t n : {1, 3, 16, 40, 64, 128, 256}) {
      for (int round = 0; round < 300; ++round) {
        std::vector<float> x(n);  // of about one magnitude, or of any
        const float magnitude = all[random.below(all.size())];
        for (float& value : x) {
          value = round % 2 == 0 ? all[random.below(all.size())]
                                 : magnitude * static_cast<float>(random.normal());
        }
        std::vector<uint8_t> y(n);
        uint8_t scale = 0;
        kernels->vectors->store_kv[3](y.data(), &scale, x.data(), n);
        const testing::E4M3Run expected = testing::to_e4m3(x);
        ASSERT_EQ(scale, expected.scale) << kernels->name;
        if (scale == 255) continue;  // NaN, whatever the elements are
        ASSERT_EQ(y, expected.elements) << kernels->name;
      }
    }
  }
}

TEST(StoreKv, writes_as_many_numbers_as_it_is_told) {
  const std::vector<float> x(40, 1);
  for (const Kernels* kernels : tables_of_this_machine()) {
    for (int element = 0; element < kNumElements; ++element) {
      const int64_t bytes = element == 0 ? 4 : element == 3 ? 1 : 2;
      for (int64_t n = 0; n < 40; ++n) {
        testing::GuardedBytes y(static_cast<std::size_t>(n * bytes));
        uint8_t scale = 0;
        kernels->vectors->store_kv[element](reinterpret_cast<uint8_t*>(y.data()), &scale, x.data(),
                                            n);
        for (int64_t i = 0; i < n; ++i) {
          EXPECT_NE(y.data()[(i + 1) * bytes - 1], std::byte{0}) << kernels->name;
        }
      }
    }
  }
}

TEST(WeighTokens, has_the_bits_of_a_single_weight) {
  Random random(11);
  std::vector<TokenCandidate> candidates(1003);
  for (TokenCandidate& one : candidates)
    one.logit = 3 - 0.05F * static_cast<float>(random.below(1000));
  candidates[7].logit = -INFINITY;
  for (const double temperature : {0.3, 1.0, 7.5}) {
    for (const Kernels* kernels : tables_of_this_machine()) {
      const int64_t size = std::ssize(candidates);
      const uint64_t sum = kernels->vectors->weigh_tokens(candidates.data(), size, 3, temperature);
      uint64_t expected = 0;
      for (const TokenCandidate& one : candidates) {
        EXPECT_EQ(one.weight, token_weight(one.logit, 3, temperature)) << kernels->name;
        expected += one.weight;
      }
      EXPECT_EQ(sum, expected);
    }
  }
}

TEST(Attend, stays_within_its_memory) {
  constexpr int64_t kGroup = 3;
  for (const Kernels* kernels : tables_of_this_machine()) {
    const VectorKernels& vectors = *kernels->vectors;
    for (const int64_t dim : {1, 16, 33, 64, 100, 256}) {
      for (const int64_t rows : {int64_t{1}, int64_t{17}, int64_t{45}, vectors.attention_rows}) {
        const int64_t tokens = (rows + kGroup - 1) / kGroup;
        const int64_t partial = vectors.attention_partial_floats(dim);
        const auto floats = [](int64_t count) {
          return testing::GuardedBytes(static_cast<std::size_t>(count) * sizeof(float));
        };
        const auto start = [](testing::GuardedBytes& bytes) {
          return reinterpret_cast<float*>(bytes.data());
        };
        // Pages of one head: keys, then values, of which 128 positions are taken at most.
        const int64_t run = kPagePositions * dim;
        const int64_t pages = (tokens + kPagePositions - 1) / kPagePositions;
        std::vector<int32_t> table(pages);
        std::iota(table.rbegin(), table.rend(), 0);
        testing::GuardedBytes q = floats(tokens * kGroup * dim), cache = floats(2 * run * pages),
                              partials = floats(rows * partial),
                              scratch = floats(vectors.attention_scratch_floats(dim));
        for (int64_t page = 0; page < pages; ++page) {
          std::fill_n(start(cache) + (2 * page + 1) * run, run, 2.0F);
        }
        vectors.attend[0]({.q = start(q),
                           .q_stride = kGroup * dim,
                           .q_per_kv = kGroup,
                           .row_end = rows,
                           .cache = reinterpret_cast<const uint8_t*>(cache.data()),
                           .page_bytes = 2 * run * static_cast<int64_t>(sizeof(float)),
                           .pages = table.data(),
                           .values = run * static_cast<int64_t>(sizeof(float)),
                           .head_dim = dim,
                           .end = tokens,
                           .partials = start(partials),
                           .scratch = start(scratch)});
        // All weights are alike: twice as many as positions.
        for (int64_t r = 0; r < rows; ++r) {
          const float* sums = start(partials) + r * partial;
          const int64_t seen = r / kGroup + 1;
          for (int64_t d = 0; d < dim; ++d) {
            EXPECT_EQ(sums[d], 2 * static_cast<float>(seen)) << kernels->name;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace subbyte::cpu
