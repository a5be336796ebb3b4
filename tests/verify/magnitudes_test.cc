// Tensors far from those of the same kind, in files made number by number.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoints/containers/tensor_source.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_tensors.h"
#include "verify/verify.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

class Outliers : public ::testing::Test {
 protected:
  /// A file with `tensor` in as many layers; each holds -1, 0 and its number of `largest`.
  void write(const std::string& tensor, const std::vector<float>& largest) {
    std::vector<TestTensor> tensors;
    for (std::size_t layer = 0; layer < largest.size(); ++layer) {
      const std::string name = "model.layers." + std::to_string(layer) + "." + tensor;
      tensors.push_back(filled<float>(name, DType::kF32, {3, 1}, 0));
      tensors.back().set<float>(0, largest[layer] / 8);
      tensors.back().set<float>(2, -largest[layer]);
    }
    folder_.write("a.safetensors", tensor_file(tensors));
  }

  std::vector<Finding> outliers(const fs::path& path) {
    auto report = verify(path, {}, pool_);
    EXPECT_TRUE(report.ok()) << report.error().message;
    std::vector<Finding> found = std::move(report->findings);
    std::erase_if(found, [](const Finding& one) { return one.code != "verify.outlier"; });
    return found;
  }
  std::vector<Finding> outliers() { return outliers(folder_ / "a.safetensors"); }

  TempDir folder_;
  ThreadPool pool_{2};
};

TEST_F(Outliers, are_named_with_the_median_of_their_kind) {
  write("self_attn.q_norm.weight", {2, 3, 1, 4000, 5});
  const auto found = outliers();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::kWarning);
  EXPECT_EQ(found[0].where, "model.layers.3.self_attn.q_norm.weight");
  EXPECT_NE(found[0].expected.find("model.layers.1.self_attn.q_norm.weight"), std::string::npos)
      << found[0].expected;
  EXPECT_NE(found[0].found.find("4e+03"), std::string::npos) << found[0].found;
}

TEST_F(Outliers, are_more_than_1024_times_as_large) {
  write("norm.weight", {3, 3, 3 * 1024});
  EXPECT_TRUE(outliers().empty());
  write("norm.weight", {3, 3, 3 * 1024 + 1});
  EXPECT_EQ(outliers().size(), 1u);
  write("norm.weight", {0.001F, 3, 3});  // small ones are none
  EXPECT_TRUE(outliers().empty());
}

TEST_F(Outliers, need_a_kind) {
  write("norm.weight", {1, 5000});
  EXPECT_TRUE(outliers().empty());
  write("norm.weight", {0, 0, 5000});  // no scale to compare with
  EXPECT_TRUE(outliers().empty());
  write("norm.weight", {1, 1, 1e20F});  // verify.magnitude says it
  EXPECT_TRUE(outliers().empty());
  folder_.write("a.safetensors", tensor_file({filled<float>("a.q", DType::kF32, {2}, 1),
                                              filled<float>("b.q", DType::kF32, {2}, 1),
                                              filled<float>("c.q", DType::kF32, {2}, 5000)}));
  EXPECT_TRUE(outliers().empty());
}

TEST_F(Outliers, are_found_in_scales) {
  const fs::path demo = fs::path(SUBBYTE_TEST_DATA) / "../../demo/model";
  EXPECT_TRUE(outliers(demo).empty());
  fs::copy(demo, folder_ / "model");
  const fs::path file = folder_ / "model/model.safetensors";
  const std::string name = "model.layers.3.mlp.up_proj.scales";
  std::streamoff offset = 0;
  {
    auto source = TensorSource::open(file);
    ASSERT_TRUE(source.ok());
    const FileTensor* scales = source->find(name);
    ASSERT_NE(scales, nullptr);
    offset = scales->bytes.data() - scales->file->bytes().data();
  }
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(offset + 2);
  stream.write("\x00\x64", 2);  // 1024 in F16
  stream.close();
  const auto found = outliers(folder_ / "model");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].where, name);
}

}  // namespace
}  // namespace subbyte
