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

std::string_view code_of(const Declarations& tensors, const Metadata& metadata = {}) {
  const auto start = lay_out_safetensors(tensors, metadata, "out");
  return start.ok() ? "ok" : start.error().code;
}

TEST(SafetensorsLayout, begins_with_these_bytes) {
  const auto start = lay_out_safetensors(
      {{"b", DType::kF16, {2}}, {"a", DType::kU8, {}}, {"a\"\n", DType::kF16, {1, 1}}},
      {{"format", "pt"}}, "out");
  ASSERT_TRUE(start.ok());
  // Widest element first, then by name; spaces up to a multiple of 8.
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("a\"\n":{"dtype":"F16","shape":[1,1],"data_offsets":[0,2]},)"
                       R"("b":{"dtype":"F16","shape":[2],"data_offsets":[2,6]},)"
                       R"("a":{"dtype":"U8","shape":[],"data_offsets":[6,7]}})";
  ASSERT_EQ(header.size(), 195u);
  EXPECT_EQ(start->head, safetensors_bytes(header + "     "));
}

TEST(SafetensorsLayout, is_read_back) {
  const TempDir dir;
  Declarations tensors;
  const Metadata metadata = {{"", "x\u0001\u20ac"}, {"key\\", ""}};
  for (int i = 0; i < 22; ++i) {
    const std::string text = std::to_string(i);
    tensors.push_back({"t" + text, static_cast<DType>(i), {static_cast<uint64_t>(i % 3) * 4, 2}});
    tensors.push_back({"scalar \u00e9" + text, DType::kI16, {}});
  }
  const auto start = lay_out_safetensors(tensors, metadata, "out");
  ASSERT_TRUE(start.ok());
  const std::vector<TensorEntry>& layout = start->tensors;
  dir.write("out", start->head + sample_data(layout.back().end));

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

TEST(SafetensorsLayout, of_no_tensors_is_an_empty_object) {
  EXPECT_EQ(lay_out_safetensors({}, {}, "out")->head, safetensors_bytes("{}      "));
}

TEST(SafetensorsLayout, refuses_what_the_reader_would_refuse) {
  namespace codes = safetensors_codes;
  using namespace std::string_literals;
  EXPECT_EQ(code_of({{"", DType::kF4, {2}}}), "ok");
  EXPECT_EQ(code_of({{"a", DType::kU8, {1}}, {"a", DType::kU8, {2}}}), codes::kDuplicateName);
  EXPECT_EQ(code_of({{"a", DType::kU8, {1}}, {"b", DType::kF32, {1}}, {"a", DType::kF64, {1}}}),
            codes::kDuplicateName);
  EXPECT_EQ(code_of({{"a\0b"s, DType::kU8, {1}}}), codes::kBadName);
  EXPECT_EQ(code_of({{std::string(65537, 'n'), DType::kU8, {1}}}), codes::kBadName);
  EXPECT_EQ(code_of({{"__metadata__", DType::kU8, {1}}}), codes::kBadName);
  EXPECT_EQ(code_of({{"\xff", DType::kU8, {1}}}), codes::kUtf8);
  EXPECT_EQ(code_of({}, {{"k", "\xc0\x80"}}), codes::kUtf8);
  EXPECT_EQ(code_of({}, {{"\xed\xa0\x80", ""}}), codes::kUtf8);
  EXPECT_EQ(code_of({{"a", DType::kU8, Shape(17, 1)}}), codes::kRank);
  EXPECT_EQ(code_of({{"a", DType::kF32, {uint64_t{1} << 62, 2}}}), codes::kShapeOverflow);
  EXPECT_EQ(code_of({{"a", DType::kU8, {(uint64_t{1} << 61) - 1}},
                     {"b", DType::kU8, {(uint64_t{1} << 61) - 1}}}),
            "ok");
  Declarations many;
  for (int i = 0; i < 9; ++i) {
    many.push_back({std::to_string(i), DType::kU8, {(uint64_t{1} << 61) - 1}});
  }
  EXPECT_EQ(code_of(many), codes::kShapeOverflow);
  EXPECT_EQ(code_of({{"a", DType::kF4, {3}}}), codes::kMisalignedBits);
  EXPECT_EQ(code_of({}, {{"k", std::string(100'000'000, 'v')}}), codes::kHeaderTooLarge);
}

}  // namespace
}  // namespace subbyte
