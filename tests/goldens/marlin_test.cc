// What vLLM 0.32.0 makes of NVFP4's scales for its Marlin kernels (tests/data/marlin), against the
// layout. It lies in this layer because the file is a safetensors file.
//
//   128x64.global F32 [1]; for NAME usual, small, every, subnormal: NAME.scales U8 [N, G], and for
//   T f16, bf16: NAME.T.marlin_scales U8 [G, N], NAME.T.factor, NAME.T.marlin_global F32 [1]

#include <gtest/gtest.h>

#include "checkpoints/containers/tensor_source.h"
#include "checkpoints/import_parts.h"
#include "foreign_layouts/marlin.h"
#include "support/paths.h"

namespace subbyte {
namespace {

TEST(MarlinGolden, scales_of_nvfp4_are_those_of_vllm) {
  const auto source =
      TensorSource::open(std::filesystem::path(SUBBYTE_TEST_DATA) / "marlin/nvfp4.safetensors");
  ASSERT_TRUE(source.ok()) << source.error().message;
  const auto tensor = [&](const std::string& name) -> const FileTensor& {
    const FileTensor* found = source->find("nvfp4.128x64." + name);
    EXPECT_NE(found, nullptr) << name;
    return *found;
  };
  const float global = load_f32(tensor("global"), 0);
  for (const std::string name : {"usual", "small", "every", "subnormal"}) {
    const FileTensor& scales = tensor(name + ".scales");
    const auto rows = static_cast<int64_t>(scales.shape[0]);
    const auto groups = static_cast<int64_t>(scales.shape[1]);
    for (const Format type : {Format::kF16, Format::kBF16}) {
      const std::string at = name + "." + std::string(info(type).name);
      SCOPED_TRACE(at);
      std::vector<std::byte> packed(scales.bytes.size());
      const auto found = pack_marlin_e4m3(packed.data(), scales.bytes.data(), rows, groups, type);
      ASSERT_TRUE(found.ok()) << found.error().message;
      EXPECT_TRUE(std::ranges::equal(packed, tensor(at + ".marlin_scales").bytes));
      EXPECT_EQ(found->factor, load_f32(tensor(at + ".factor"), 0));
      EXPECT_EQ(marlin_global_scale(global, found->factor, type),
                load_f32(tensor(at + ".marlin_global"), 0));
    }
  }
}

}  // namespace
}  // namespace subbyte
