// Refusals of an index are tested by tests/conformance; here is what valid directories give.

#include "checkpoints/containers/tensor_source.h"

#include <gtest/gtest.h>

#include <string>

#include "checkpoints/containers/safetensors_codes.h"
#include "support/safetensors_bytes.h"
#include "support/temp_dir.h"
#include "support/test_tensors.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

/// A file with one tensor of type U8.
std::string file_with(const std::string& name, const std::string& data) {
  const std::string size = std::to_string(data.size());
  return safetensors_bytes("{\"" + name + R"(":{"dtype":"U8","shape":[)" + size +
                               R"(],"data_offsets":[0,)" + size + "]}}",
                           data);
}

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kTwoShards = R"({"metadata":{"total_size":5},"weight_map":
    {"b":"model-00000-of-00002.safetensors","a":"model-00001-of-00002.safetensors"}})";

void write_shards(const TempDir& dir, const std::string& prefix = "") {
  dir.write(prefix + "model-00000-of-00002.safetensors", file_with("b", "bb"));
  dir.write(prefix + "model-00001-of-00002.safetensors", file_with("a", "aaa"));
  dir.write(prefix + kIndex, kTwoShards);
}

std::string text(const FileTensor* tensor) {
  if (tensor == nullptr) return "none";
  return {reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size()};
}

std::string_view code(const Result<TensorSource>& source) {
  return source.ok() ? "ok" : source.error().code;
}

TEST(TensorSource, opens_a_file_of_any_name) {
  const TempDir dir;
  const auto source = TensorSource::open(dir.write("weights", file_with("a", "123")));
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(text(source->find("a")), "123");
  EXPECT_EQ(source->find("A"), nullptr);
  EXPECT_EQ(source->total_bytes(), 3u);
  EXPECT_EQ(source->files(), std::vector{dir / "weights"});
}

TEST(TensorSource, opens_a_directory_with_one_file) {
  const TempDir dir;
  dir.write("model.safetensors", file_with("a", "123"));
  dir.write("consolidated.safetensors", "not looked at");
  const auto source = TensorSource::open(dir.path());
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(text(source->find("a")), "123");
}

TEST(TensorSource, opens_shards_by_their_index) {
  const TempDir dir;
  write_shards(dir);
  dir.write("model-00002-of-00002.safetensors", "not in the index");
  const auto source = TensorSource::open(dir.path());
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(text(source->find("a")), "aaa");
  EXPECT_EQ(text(source->find("b")), "bb");
  EXPECT_EQ(source->tensors().size(), 2u);
  EXPECT_EQ(source->total_bytes(), 5u);
  EXPECT_EQ(source->files().size(), 2u);
}

TEST(TensorSource, a_whole_file_beside_all_shards_of_an_index_is_a_second_checkpoint) {
  const TempDir dir;
  write_shards(dir);
  dir.write("model.safetensors", file_with("single", "1"));
  EXPECT_EQ(code(TensorSource::open(dir.path())), "model.two_checkpoints");
  std::vector<Error> problems;
  const auto both = TensorSource::open(dir.path(), &problems);
  ASSERT_TRUE(both.ok() && problems.size() == 1) << problems.size();
  EXPECT_EQ(problems[0].code, "model.two_checkpoints");
  EXPECT_EQ(both->tensors().size(), 1u);
  // An index that names that file, or whose shards are gone, is none.
  dir.write(kIndex, R"({"weight_map": {"single": "model.safetensors"}})");
  EXPECT_TRUE(TensorSource::open(dir.path()).ok());
  dir.write(kIndex, R"({"weight_map": {"a": "gone.safetensors"}})");
  const auto source = TensorSource::open(dir.path());
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(text(source->find("single")), "1");
  EXPECT_EQ(source->tensors().size(), 1u);
}

TEST(TensorSource, collects_problems_and_opens_the_rest) {
  const TempDir dir;
  const auto shard = [&](const char* name, const std::vector<std::string>& tensors) {
    std::vector<TestTensor> made;
    for (const std::string& tensor : tensors) made.push_back({tensor, DType::kU8, {1}, "x"});
    dir.write(name, tensor_file(made));
  };
  shard("1.safetensors", {"a", "twice"});
  shard("2.safetensors", {"b", "twice", "unlisted"});
  dir.write("3.safetensors", "cut");
  dir.write(kIndex, R"({"weight_map": {"a": "1.safetensors", "twice": "1.safetensors",
      "b": "2.safetensors", "gone": "2.safetensors", "c": "3.safetensors", "d": "4.safetensors",
      "e": "4.safetensors"}})");
  EXPECT_EQ(code(TensorSource::open(dir.path())), safetensors_codes::kTooSmall);
  std::vector<Error> problems;
  const auto source = TensorSource::open(dir.path(), &problems);
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->tensors().size(), 4u);
  EXPECT_EQ(source->find("twice")->file->path().filename(), "1.safetensors");
  std::vector<std::string_view> codes;
  for (const Error& problem : problems) codes.push_back(problem.code);
  EXPECT_EQ(codes,
            (std::vector<std::string_view>{safetensors_codes::kTooSmall, index_codes::kShardMissing,
                                           index_codes::kTensorTwice, index_codes::kTensorUnlisted,
                                           index_codes::kTensorMissing}));
  EXPECT_NE(problems[4].message.find("\"gone\""), std::string::npos) << problems[4].message;
}

TEST(TensorSource, takes_a_total_size_that_was_written_as_a_float) {
  const TempDir dir;
  write_shards(dir);
  dir.write(kIndex, R"({"metadata":{"total_size":26031738880.0},"weight_map":
      {"b":"model-00000-of-00002.safetensors","a":"model-00001-of-00002.safetensors"}})");
  EXPECT_EQ(code(TensorSource::open(dir.path())), "ok");
}

class CacheTest : public testing::Test {
 protected:
  CacheTest() {
    const fs::path entry = dir_ / "hub/models--org--name";
    fs::create_directories(entry / "blobs");
    fs::create_directories(entry / "snapshots/abc");
    dir_.write("hub/models--org--name/blobs/0b", file_with("b", "bb"));
    dir_.write("hub/models--org--name/blobs/0a", file_with("a", "aaa"));
    dir_.write("hub/models--org--name/blobs/0i", kTwoShards);
    dir_.write("hub/models--org--other/blobs/0a", file_with("a", "aaa"));
    link("model-00000-of-00002.safetensors", "../../blobs/0b");
    link("model-00001-of-00002.safetensors", "../../blobs/0a");
    link(kIndex, "../../blobs/0i");
  }

  fs::path snapshot() const { return dir_ / "hub/models--org--name/snapshots/abc"; }
  void link(std::string_view name, const fs::path& target) const {
    fs::remove(snapshot() / name);
    fs::create_symlink(target, snapshot() / name);
  }

  TempDir dir_;
};

TEST_F(CacheTest, links_lead_to_blobs_of_the_same_entry) {
  const auto source = TensorSource::open(snapshot());
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(text(source->find("a")), "aaa");
}

TEST_F(CacheTest, may_be_reached_through_a_link_of_the_user) {
  fs::create_directory_symlink(snapshot(), dir_ / "my-model");
  EXPECT_EQ(code(TensorSource::open(dir_ / "my-model")), "ok");
  EXPECT_EQ(code(TensorSource::open(dir_.path() / "my-model/")), "ok");
  fs::create_symlink(snapshot() / "model-00001-of-00002.safetensors", dir_ / "one.safetensors");
  EXPECT_EQ(code(TensorSource::open(dir_ / "one.safetensors")), "ok");
}

TEST_F(CacheTest, links_to_anywhere_else_are_refused) {
  const char* const shard = "model-00001-of-00002.safetensors";
  dir_.write("outside.safetensors", file_with("a", "aaa"));
  dir_.write("hub/models--org--name/blobs/deep/0a", file_with("a", "aaa"));
  dir_.write("hub/models--org--name/other/0a", file_with("a", "aaa"));
  fs::create_symlink(dir_ / "outside.safetensors", dir_ / "hub/models--org--name/blobs/out");
  for (const fs::path& target :
       {dir_ / "outside.safetensors", fs::path("../../../../outside.safetensors"),
        fs::path("../../../models--org--other/blobs/0a"), fs::path("../../other/0a"),
        fs::path("../../blobs/deep/0a"), fs::path("../../blobs/out")}) {
    link(shard, target);
    EXPECT_EQ(code(TensorSource::open(snapshot())), index_codes::kLinkOutside) << target;
  }
  link(shard, "../../blobs/0a");
  EXPECT_EQ(code(TensorSource::open(snapshot())), "ok");
  link(kIndex, dir_.write("index", kTwoShards));
  EXPECT_EQ(code(TensorSource::open(snapshot())), index_codes::kLinkOutside);
}

TEST(TensorSource, links_in_a_plain_directory_do_not_leave_it) {
  const TempDir dir;
  dir.write("blobs/0a", file_with("a", "123"));
  fs::create_directories(dir / "snapshots/abc");
  fs::create_symlink("../../blobs/0a", dir / "snapshots/abc/model.safetensors");
  // The layout of a cache, but the directory above is not an entry of one.
  EXPECT_EQ(code(TensorSource::open(dir / "snapshots/abc")), index_codes::kLinkOutside);
}

TEST(TensorSource, says_what_a_directory_without_a_checkpoint_holds) {
  const TempDir dir;
  EXPECT_EQ(code(TensorSource::open(dir.path())), index_codes::kNoCheckpoint);
  EXPECT_EQ(code(TensorSource::open(dir / "missing")), "file.not_found");
  dir.write("pytorch_model.bin", "PK");
  const auto source = TensorSource::open(dir.path());
  EXPECT_EQ(code(source), index_codes::kPickleOnly);
  EXPECT_EQ(source.error().message,
            dir.path().string() +
                ": expected model.safetensors or model.safetensors.index.json, found "
                "\"pytorch_model.bin\": pickle files can run code and are not supported, convert "
                "them to safetensors");
}

}  // namespace
}  // namespace subbyte
