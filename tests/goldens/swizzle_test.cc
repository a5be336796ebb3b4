// Scales in atoms, by FlashInfer's own host functions (tests/data/flashinfer), against the layouts.
// It lies in this layer because the file is a safetensors file.
//
//   sf.RxC.scales U8 [R, C]; .128x4, .8x4 the same in atoms, flat, padding 0
//   sf.ExRxC.scales, .128x4  of E experts

#include <gtest/gtest.h>

#include "checkpoints/containers/tensor_source.h"
#include "foreign_layouts/scale_swizzle.h"
#include "support/paths.h"

namespace subbyte {
namespace {

TEST(SwizzleGolden, both_atoms_are_those_of_flashinfer_and_come_back) {
  const auto source = TensorSource::open(std::filesystem::path(SUBBYTE_TEST_DATA) /
                                         "flashinfer/swizzle.safetensors");
  ASSERT_TRUE(source.ok()) << source.error().message;
  int compared = 0;
  for (const auto& [name, scales] : source->tensors()) {
    if (!name.ends_with(".scales")) continue;
    const std::string stem = name.substr(0, name.size() - std::string(".scales").size());
    const bool experts = scales.shape.size() == 3;
    const auto count = static_cast<int64_t>(experts ? scales.shape[0] : 1);
    const auto rows = static_cast<int64_t>(scales.shape[experts ? 1 : 0]);
    const auto groups = static_cast<int64_t>(scales.shape.back());
    for (const auto& [suffix, swizzle] :
         {std::pair{".128x4", ScaleSwizzle::k128x4}, std::pair{".8x4", ScaleSwizzle::k8x4}}) {
      const FileTensor* expected = source->find(stem + suffix);
      if (expected == nullptr) continue;
      SCOPED_TRACE(expected->name);
      const int64_t size = swizzled_rows(rows, swizzle) * swizzled_groups(groups);
      ASSERT_EQ(static_cast<int64_t>(expected->bytes.size()), count * size);
      std::vector<std::byte> packed(count * size, std::byte{0xAA});
      std::vector<std::byte> back(scales.bytes.size());
      for (int64_t e = 0; e < count; ++e) {
        swizzle_scales(packed.data() + e * size, scales.bytes.data() + e * rows * groups, rows,
                       groups, swizzle);
        unswizzle_scales(back.data() + e * rows * groups, packed.data() + e * size, rows, groups,
                         swizzle);
      }
      EXPECT_TRUE(std::ranges::equal(packed, expected->bytes));
      EXPECT_TRUE(std::ranges::equal(back, scales.bytes));
      ++compared;
    }
  }
  EXPECT_EQ(compared, 12);
}

}  // namespace
}  // namespace subbyte
