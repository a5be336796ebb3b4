// Every golden model into every layout with every tile: it comes back bit for bit, or is refused by
// a code that says why.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoints/containers/tensor_source.h"
#include "support/goldens.h"
#include "support/temp_dir.h"
#include "transform/packing/pack_model.h"

namespace subbyte {
namespace {

struct Target {
  const char* layout;
  const char* tile;
};

constexpr Target kTargets[] = {{"marlin", ""},
                               {"marlin-fp4", ""},
                               {"flashinfer-mxfp4", "128x4"},
                               {"flashinfer-mxfp4", "8x4"},
                               {"int4pack-cpu", "64"},
                               {"int4pack-cpu", "32"},
                               {"int4pack-cpu", "pairs-32"},
                               {"int4pack-cpu", "pairs-16"},
                               {"int4pack-cuda", "2"},
                               {"int4pack-cuda", "4"},
                               {"int4pack-cuda", "8"},
                               {"int4pack-xpu", ""},
                               {"kbit", ""}};
/// Pairs of a golden and a target that a layout holds. New goldens make them more; one that is
/// refused by mistake makes them less.
constexpr int kHeld = 143;

bool has_same_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto first = TensorSource::open(a);
  const auto second = TensorSource::open(b);
  if (!first.ok() || !second.ok() || first->tensors().size() != second->tensors().size()) {
    return false;
  }
  return std::ranges::all_of(first->tensors(), [&](const auto& named) {
    const auto& [name, tensor] = named;
    const FileTensor* other = second->find(name);
    return other != nullptr && tensor.dtype == other->dtype && tensor.shape == other->shape &&
           std::ranges::equal(tensor.bytes, other->bytes);
  });
}

/// False where it is refused.
bool comes_back(const std::filesystem::path& golden, const Target& target) {
  const TempDir folder;
  ThreadPool pool(1);
  PackOptions options;
  options.layout = target.layout;
  options.tile = target.tile;
  const auto packed = pack_model(golden, folder / "packed", options, pool);
  if (!packed.ok()) {
    const std::vector<std::string> known = {"pack.format", "pack.group_size", "pack.not_quantized",
                                            "layout.shape"};
    EXPECT_TRUE(std::ranges::find(known, std::string(packed.error().code)) != known.end())
        << packed.error().message;
    EXPECT_FALSE(std::filesystem::exists(folder / "packed"));
    return false;
  }
  const auto back = unpack_model(folder / "packed", folder / "back", {}, pool);
  EXPECT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(back.ok() && has_same_tensors(golden, folder / "back"));
  return true;
}

TEST(PackGoldens, all_come_back_from_every_layout_that_holds_them) {
  int held = 0;
  for (const testing::Golden& golden : testing::kGoldenModels) {
    for (const Target& target : kTargets) {
      SCOPED_TRACE(std::string(golden.name) + " " + target.layout + " " + target.tile);
      held += comes_back(testing::golden_folder(golden.name), target) ? 1 : 0;
    }
  }
  EXPECT_EQ(held, kHeld);
}

}  // namespace
}  // namespace subbyte
