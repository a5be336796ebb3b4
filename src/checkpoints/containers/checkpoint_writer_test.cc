#include "checkpoints/containers/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/safetensors_bytes.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

WriteStep one(std::string name, std::string text) {
  const uint64_t size = text.size();
  return {{{std::move(name), DType::kU8, {size}}},
          [text = std::move(text)](const PutBytes& put) { return put(0, bytes_of(text)); }};
}

Status write(const TempDir& dir, const std::vector<WriteStep>& steps, uint64_t shard_bytes = 100) {
  const auto weights = lay_out_shards(steps, shard_bytes);
  EXPECT_TRUE(weights.ok());
  return write_checkpoint(dir.path(), *weights, steps);
}

TEST(CheckpointWriter, pieces_go_where_they_belong_in_any_order) {
  const TempDir dir;
  const WriteStep step = {{{"b", DType::kF16, {2}}, {"a", DType::kU8, {3}}},
                          [](const PutBytes& put) -> Status {
                            SUBBYTE_CHECK(put(1, bytes_of("567")));
                            SUBBYTE_CHECK(put(0, bytes_of("12")));
                            return put(0, bytes_of("34"));
                          }};
  ASSERT_TRUE(write(dir, {step}).ok());
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("b":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)"
                             R"("a":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(dir.read("model.safetensors"), safetensors_bytes(header + padding, "1234567"));
}

TEST(CheckpointWriter, a_step_puts_what_it_has_declared) {
  const TempDir dir;
  for (const char* text : {"12", "1234"}) {
    const WriteStep step = {{{"a", DType::kU8, {3}}},
                            [&](const PutBytes& put) { return put(0, bytes_of(text)); }};
    const Status written = write(dir, {step});
    ASSERT_FALSE(written.ok()) << text;
    EXPECT_EQ(written.error().code, "safetensors.incomplete");
    EXPECT_TRUE(dir.names().empty());
  }
}

TEST(CheckpointWriter, whole_shards_are_kept_and_others_made_anew) {
  const TempDir dir;
  const std::vector<WriteStep> steps = {one("a", "111"), one("b", "222"), one("c", "333")};
  ASSERT_TRUE(write(dir, steps, 3).ok());
  ASSERT_EQ(dir.names().size(), 4u);  // and the index
  const std::string whole = dir.read("model-00002-of-00003.safetensors");
  dir.write("model-00002-of-00003.safetensors", whole.substr(1));
  std::filesystem::remove(dir / "model.safetensors.index.json");
  const WriteStep never = {steps[0].tensors, [](const PutBytes&) -> Status {
                             ADD_FAILURE() << "a shard that is there is made again";
                             return {};
                           }};
  ASSERT_TRUE(write(dir, {never, steps[1], steps[2]}, 3).ok());
  EXPECT_EQ(dir.read("model-00002-of-00003.safetensors"), whole);
}

}  // namespace
}  // namespace subbyte
