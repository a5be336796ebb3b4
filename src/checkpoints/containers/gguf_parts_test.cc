#include "checkpoints/containers/gguf_parts.h"

#include <gtest/gtest.h>

#include "support/gguf_bytes.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

/// A part with a tensor of its own, of `tensors` in all parts.
GgufBytes part(uint16_t no, uint16_t count, int32_t tensors) {
  GgufBytes file;
  if (no == 0) file.text("general.architecture", "llama");
  file.key("split.no", 2, raw(no));
  file.key("split.count", 2, raw(count));
  file.key("split.tensors.count", 5, raw(tensors));
  file.tensor("t" + std::to_string(no), {1}, 0, 4);
  return file;
}

GgufBytes part(uint16_t no, uint16_t count) {
  return part(no, count, count);
}

std::string refusal(const std::filesystem::path& path) {
  const auto model = GgufModel::open(path);
  return model.ok() ? "" : std::string(model.error().code) + " " + model.error().message;
}

TEST(GgufModel, any_part_opens_all) {
  const TempDir dir;
  const auto first = dir.write("m-00001-of-00002.gguf", part(0, 2).bytes());
  const auto second = dir.write("m-00002-of-00002.gguf", part(1, 2).bytes());
  for (const auto& path : {first, second}) {
    const auto model = GgufModel::open(path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->parts().size(), 2u);
    EXPECT_EQ(model->keys().find("general.architecture")->string(), "llama");
    EXPECT_NE(model->find("t0"), nullptr);
    EXPECT_NE(model->find("t1"), nullptr);
    EXPECT_EQ(model->find("t2"), nullptr);
  }
}

TEST(GgufModel, a_part_that_is_missing_or_foreign_is_named) {
  const TempDir dir;
  const auto first = dir.write("m-00001-of-00002.gguf", part(0, 2).bytes());
  EXPECT_NE(refusal(first).find("m-00002-of-00002.gguf"), std::string::npos) << refusal(first);
  dir.write("m-00002-of-00002.gguf", part(0, 2).bytes());
  EXPECT_NE(refusal(first).find("expected part 2 of 2, found part 1 of 2"), std::string::npos);
  dir.write("m-00002-of-00002.gguf", part(1, 3).bytes());
  EXPECT_NE(refusal(first).find("expected part 2 of 2, found part 2 of 3"), std::string::npos);
  GgufBytes twin = part(1, 2);
  twin.tensor("t0", {1}, 0, 4);
  dir.write("m-00002-of-00002.gguf", twin.bytes());
  EXPECT_NE(refusal(first).find("tensor \"t0\" is in another part, too"), std::string::npos);
  GgufBytes more = part(1, 2);
  more.tensor("t2", {1}, 0, 4);
  dir.write("m-00002-of-00002.gguf", more.bytes());
  EXPECT_NE(refusal(first).find("split.tensors.count: expected the 3 tensors of all parts, found"),
            std::string::npos);
  dir.write("m-00002-of-00002.gguf", part(1, 2, 99).bytes());
  EXPECT_NE(refusal(first).find("m-00002-of-00002.gguf: split.tensors.count: expected 2, as "
                                "m-00001-of-00002.gguf has, found 99"),
            std::string::npos)
      << refusal(first);
  GgufBytes foreign = part(1, 2);
  foreign.text("general.architecture", "qwen3");
  dir.write("m-00002-of-00002.gguf", foreign.bytes());
  EXPECT_NE(refusal(first).find("m-00002-of-00002.gguf: general.architecture: expected that of"),
            std::string::npos)
      << refusal(first);
  const auto unnamed = dir.write("part.gguf", part(0, 2).bytes());
  EXPECT_NE(refusal(unnamed).find("expected a name that ends in -0000I-of-00002.gguf"),
            std::string::npos)
      << refusal(unnamed);
}

TEST(GgufModel, files_of_other_things_are_refused_by_name) {
  const TempDir dir;
  const auto of_type = [&](std::string_view type, std::string_view architecture) {
    GgufBytes file;
    file.text("general.type", type);
    file.text("general.architecture", architecture);
    file.tensor("a", {1}, 0, 4);
    return dir.write("x.gguf", file.bytes());
  };
  EXPECT_EQ(refusal(of_type("model", "llama")), "");
  EXPECT_NE(refusal(of_type("mmproj", "clip")).find("(mmproj)"), std::string::npos);
  EXPECT_NE(refusal(of_type("model", "clip")).find("(mmproj)"), std::string::npos);
  EXPECT_NE(refusal(of_type("adapter", "llama")).find("(LoRA)"), std::string::npos);
  EXPECT_NE(refusal(of_type("imatrix", "")).find("(imatrix)"), std::string::npos);
  EXPECT_EQ(other_kind_of_gguf(of_type("model", "llama")), "");
  EXPECT_NE(refusal(dir.write("vocab.gguf", GgufBytes().bytes())).find("without weights"),
            std::string::npos);
}

}  // namespace
}  // namespace subbyte
