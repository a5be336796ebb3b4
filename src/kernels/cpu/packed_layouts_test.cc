// How activations are packed: the layouts of every instruction set.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include "base/cpu_features.h"
#include "kernels/cpu/cpu_kernels.h"
#include "support/guarded_bytes.h"
#include "support/matmul.h"

namespace subbyte::cpu {
namespace {

using testing::kernels_of_this_machine;

/// The layouts of an instruction set, by name.
std::map<std::string_view, const PackedLayout*> layouts_of(const Kernels& kernels) {
  std::map<std::string_view, const PackedLayout*> layouts;
  const auto add = [&](const KernelVariant& variant) {
    if (variant.layout == nullptr) return;
    const auto [found, added] = layouts.try_emplace(variant.layout->name, variant.layout);
    EXPECT_EQ(found->second, variant.layout) << "two layouts are called " << variant.layout->name;
  };
  for (const MatmulKernel& kernel : kernels.matmuls) {
    for (const auto& lists : kernel.lists) {
      for (const VariantList& list : lists) {
        for (const VariantList::Entry& entry : list.entries) add(entry.variant);
        add(list.invariant);
      }
    }
  }
  return layouts;
}

TEST(PackedLayouts, have_whole_lines_and_fill_what_they_say) {
  for (const Kernels* kernels : kernels_of_this_machine()) {
    for (const auto& [name, layout] : layouts_of(*kernels)) {
      EXPECT_EQ(layout->padding % 64, 0) << name;
      EXPECT_EQ(layout->row_grain % 8, 0) << name;
      for (const int64_t k : {8, 128, 136, 1000}) {
        const int64_t bytes = layout->bytes(k);
        ASSERT_EQ(bytes % 64, 0) << kernels->name << ", " << name;
        const std::vector<float> x(layout->rows_per_pack * k, 1.0F);
        for (const int64_t rows : {int64_t{1}, layout->rows_per_pack}) {
          testing::GuardedBytes packed(bytes);
          layout->pack(reinterpret_cast<uint8_t*>(packed.data()), x.data(), rows, nullptr, k);
        }
      }
    }
  }
}

/// The layouts that pack.inl.h draws, element by element.
TEST(Pack, puts_inputs_where_the_header_says) {
  for (const Kernels* kernels : kernels_of_this_machine()) {
    const auto layouts = layouts_of(*kernels);
    const int64_t lanes = kernels->lanes;
    for (const int64_t k : {1, 5, 8, 64, 100, 128, 136, 1000}) {
      std::vector<float> x(k);
      std::vector<uint32_t> gather(k);
      for (int64_t i = 0; i < k; ++i) {
        x[i] = static_cast<float>(1 + i);
        gather[i] = static_cast<uint32_t>((i * 7 + 3) % k);
      }
      for (const uint32_t* order :
           {static_cast<const uint32_t*>(nullptr), static_cast<const uint32_t*>(gather.data())}) {
        const auto input = [&](int64_t i) {
          return i >= k ? 0 : order == nullptr ? x[i] : x[order[i]];
        };
        const int64_t blocks = (k + 8 * lanes - 1) / (8 * lanes);
        for (const bool num_k8 : {true, false}) {
          const PackedLayout& layout = *layouts.at(num_k8 ? "k8" : "contiguous");
          const int64_t block = num_k8 ? 9 * lanes : 8 * lanes;
          const int64_t bytes = (blocks * block * 4 + 63) / 64 * 64;
          ASSERT_EQ(layout.bytes(k), bytes);
          testing::GuardedBytes packed(bytes);
          const auto* p = reinterpret_cast<const float*>(packed.data());
          layout.pack(reinterpret_cast<uint8_t*>(packed.data()), x.data(), 1, order, k);
          for (int64_t b = 0; b < blocks; ++b) {
            for (int64_t lane = 0; lane < lanes; ++lane) {
              float sum = 0;
              for (int64_t j = 0; j < 8; ++j) {
                const int64_t i = 8 * lanes * b + (num_k8 ? 8 * lane + j : lanes * j + lane);
                ASSERT_EQ(p[b * block + j * lanes + lane], input(i)) << kernels->name << " " << k;
                sum += input(i);
              }
              if (num_k8) {
                ASSERT_EQ(p[b * block + 8 * lanes + lane], sum) << kernels->name;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Pack, three_limbs_are_the_inputs_as_multiples_of_a_power_of_two) {
  struct K8 {
    float inputs[8];
    float scale;  // expected
  };
  // 127 * 0x010101 is the largest number of steps; just above it they are twice as long.
  constexpr float kLargest = 127 * 0x010101;
  const K8 num_k8[] = {
      {{1, -2, 3, -4, 5, -6, 7, 0.5F}, 0x1p-20F},
      {{0, 0, 0, 0, 0, 0, 0, 0}, 0x1p-126F},
      {{kLargest, -kLargest, 1, -1, 127, 128, -128, -129}, 1},
      {{kLargest + 0.5F, -1, 2, -2, 3, -3, 32768, -32768}, 2},
      {{0x1.FFFFFEp127F, -0x1p127F, 0x1p104F, 0, 0x1p106F, 0, 0, -0x1p107F}, 0x1p106F},
      {{0x1p-149F, -0x1p-149F, 0x1p-127F, 0x1p-126F, 0, 0, 0, 0x1p-110F}, 0x1p-126F}};
  for (const Kernels* kernels : kernels_of_this_machine()) {
    constexpr uint32_t kHaveLimbs = kCpuAvx2 | kCpuAvx512Vnni;
    if ((kernels->required_features & kHaveLimbs) == 0) continue;
    const int64_t lanes = kernels->lanes;
    const PackedLayout& layout = *layouts_of(*kernels).at("int8x3");
    const int64_t bytes = layout.bytes(8);
    ASSERT_EQ(bytes, (9 * 4 * lanes + 63) / 64 * 64);
    testing::GuardedBytes packed(bytes);
    for (const K8& k8 : num_k8) {
      layout.pack(reinterpret_cast<uint8_t*>(packed.data()), k8.inputs, 1, nullptr, 8);
      const auto* limbs = reinterpret_cast<const int8_t*>(packed.data());
      const auto* last = reinterpret_cast<const float*>(packed.data());
      EXPECT_EQ(last[7 * lanes], k8.scale);
      double sum = 0;
      for (int64_t i = 0; i < 8; ++i) {
        double t = 0;
        for (int64_t limb = 0; limb < 3; ++limb) {
          t = 256 * t + limbs[(2 * limb + i % 2) * 4 * lanes + i / 2];
        }
        EXPECT_EQ(t, std::nearbyint(k8.inputs[i] / k8.scale)) << k8.inputs[i];
        sum += t;
      }
      EXPECT_EQ(last[8 * lanes], static_cast<float>(sum * k8.scale));
    }
  }
}

}  // namespace
}  // namespace subbyte::cpu
