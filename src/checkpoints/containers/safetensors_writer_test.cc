#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoints/containers/safetensors.h"
#include "checkpoints/containers/safetensors_codes.h"
#include "support/safetensors_bytes.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

using Declarations = std::vector<TensorDeclaration>;
using Metadata = std::map<std::string, std::string>;

Status append(SafetensorsWriter& writer, std::string_view bytes) {
  return writer.append(std::as_bytes(std::span(bytes)));
}

std::string_view create_code(const Declarations& tensors, const Metadata& metadata = {}) {
  const TempDir dir;
  const auto writer = SafetensorsWriter::create(dir / "out", false, tensors, metadata);
  EXPECT_TRUE(dir.names().size() <= 1);
  return writer.ok() ? "ok" : writer.error().code;
}

TEST(SafetensorsWriter, writes_these_bytes) {
  const TempDir dir;
  auto writer = SafetensorsWriter::create(
      dir / "out", false,
      {{"b", DType::kF16, {2}}, {"a", DType::kU8, {}}, {"a\"\n", DType::kF16, {1, 1}}},
      {{"format", "pt"}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(append(*writer, "123").ok());
  ASSERT_TRUE(append(*writer, "4567").ok());
  ASSERT_TRUE(writer->commit().ok());
  // Widest element first, then by name; spaces up to a multiple of 8.
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("a\"\n":{"dtype":"F16","shape":[1,1],"data_offsets":[0,2]},)"
                       R"("b":{"dtype":"F16","shape":[2],"data_offsets":[2,6]},)"
                       R"("a":{"dtype":"U8","shape":[],"data_offsets":[6,7]}})";
  ASSERT_EQ(header.size(), 195u);
  EXPECT_EQ(dir.read("out"), safetensors_bytes(header + "     ", "1234567"));
}

TEST(SafetensorsWriter, reads_back_what_it_wrote) {
  const TempDir dir;
  Declarations tensors;
  const Metadata metadata = {{"", "x\u0001\u20ac"}, {"key\\", ""}};
  for (int i = 0; i < 22; ++i) {
    const std::string text = std::to_string(i);
    tensors.push_back({"t" + text, static_cast<DType>(i), {static_cast<uint64_t>(i % 3) * 4, 2}});
    tensors.push_back({"scalar \u00e9" + text, DType::kI16, {}});
  }
  auto writer = SafetensorsWriter::create(dir / "out", false, tensors, metadata);
  ASSERT_TRUE(writer.ok());
  const std::vector<TensorEntry> layout = writer->layout();
  const std::string data = sample_data(layout.back().end);
  ASSERT_TRUE(append(*writer, data).ok());
  ASSERT_TRUE(writer->commit().ok());

  const auto file = SafetensorsFile::open(dir / "out");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->header().metadata, metadata);
  EXPECT_EQ(file->header().data_offset % 8, 0u);
  ASSERT_EQ(file->header().tensors.size(), tensors.size());
  for (const TensorDeclaration& declared : tensors) {
    const auto& entries = file->header().tensors;
    const auto read = std::ranges::find(entries, declared.name, &TensorEntry::name);
    const auto laid = std::ranges::find(layout, declared.name, &TensorEntry::name);
    ASSERT_TRUE(read != entries.end() && laid != layout.end()) << declared.name;
    EXPECT_EQ(read->dtype, declared.dtype);
    EXPECT_EQ(read->shape, declared.shape);
    EXPECT_EQ(read->begin, laid->begin);
    EXPECT_EQ(read->end, laid->end);
    EXPECT_EQ((file->header().data_offset + read->begin) * 8 % bits(read->dtype), 0u);
  }
}

TEST(SafetensorsWriter, writes_a_file_without_tensors) {
  const TempDir dir;
  auto writer = SafetensorsWriter::create(dir / "out", false, {}, {});
  ASSERT_TRUE(writer.ok() && writer->commit().ok());
  EXPECT_EQ(dir.read("out"), safetensors_bytes("{}      "));
}

TEST(SafetensorsWriter, commits_exactly_the_declared_bytes) {
  const TempDir dir;
  {
    auto writer = SafetensorsWriter::create(dir / "out", false, {{"a", DType::kU8, {4}}}, {});
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(writer->commit().error().code, safetensors_codes::kIncomplete);
    ASSERT_TRUE(append(*writer, "123").ok());
    EXPECT_EQ(writer->commit().error().code, safetensors_codes::kIncomplete);
    EXPECT_EQ(append(*writer, "45").error().code, safetensors_codes::kIncomplete);
  }
  EXPECT_TRUE(dir.names().empty());
}

TEST(SafetensorsWriter, refuses_what_the_reader_would_refuse) {
  namespace codes = safetensors_codes;
  using namespace std::string_literals;
  EXPECT_EQ(create_code({{"", DType::kF4, {2}}}), "ok");
  EXPECT_EQ(create_code({{"a", DType::kU8, {1}}, {"a", DType::kU8, {2}}}), codes::kDuplicateName);
  EXPECT_EQ(create_code({{"a", DType::kU8, {1}}, {"b", DType::kF32, {1}}, {"a", DType::kF64, {1}}}),
            codes::kDuplicateName);
  EXPECT_EQ(create_code({{"a\0b"s, DType::kU8, {1}}}), codes::kBadName);
  EXPECT_EQ(create_code({{std::string(65537, 'n'), DType::kU8, {1}}}), codes::kBadName);
  EXPECT_EQ(create_code({{"__metadata__", DType::kU8, {1}}}), codes::kBadName);
  EXPECT_EQ(create_code({{"\xff", DType::kU8, {1}}}), codes::kUtf8);
  EXPECT_EQ(create_code({}, {{"k", "\xc0\x80"}}), codes::kUtf8);
  EXPECT_EQ(create_code({}, {{"\xed\xa0\x80", ""}}), codes::kUtf8);
  EXPECT_EQ(create_code({{"a", DType::kU8, Shape(17, 1)}}), codes::kRank);
  EXPECT_EQ(create_code({{"a", DType::kF32, {uint64_t{1} << 62, 2}}}), codes::kShapeOverflow);
  EXPECT_EQ(create_code({{"a", DType::kU8, {(uint64_t{1} << 61) - 1}},
                         {"b", DType::kU8, {(uint64_t{1} << 61) - 1}}}),
            "ok");
  Declarations many;
  for (int i = 0; i < 9; ++i) {
    many.push_back({std::to_string(i), DType::kU8, {(uint64_t{1} << 61) - 1}});
  }
  EXPECT_EQ(create_code(many), codes::kShapeOverflow);
  EXPECT_EQ(create_code({{"a", DType::kF4, {3}}}), codes::kMisalignedBits);
  EXPECT_EQ(create_code({}, {{"k", std::string(100'000'000, 'v')}}), codes::kHeaderTooLarge);
}

TEST(SafetensorsWriter, replaces_only_when_told) {
  const TempDir dir;
  dir.write("out", "old");
  EXPECT_EQ(SafetensorsWriter::create(dir / "out", false, {}, {}).error().code, "file.exists");
  auto writer = SafetensorsWriter::create(dir / "out", true, {}, {});
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(dir.read("out"), "old");
  ASSERT_TRUE(writer->commit().ok());
  EXPECT_EQ(dir.read("out"), safetensors_bytes("{}      "));
}

}  // namespace
}  // namespace subbyte
