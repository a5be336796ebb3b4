// Refusals are tested by tests/conformance; here is what a valid file gives.

#include "checkpoints/containers/safetensors.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checkpoints/containers/safetensors_codes.h"
#include "support/safetensors_bytes.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

Result<SafetensorsHeader> read(const std::string& file) {
  return read_safetensors_header(std::as_bytes(std::span(file)), file.size(), "f");
}

std::string message(const std::string& file) {
  const auto header = read(file);
  return header.ok() ? "ok" : header.error().message;
}

TEST(DType, has_the_22_names_and_sizes_of_the_format) {
  // Written out from the format's description, not from the table of the code.
  const std::vector<std::pair<std::string_view, int>> expected = {
      {"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"I16", 16}, {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"F8_E5M2FNUZ", 8},
      {"I32", 32}, {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64}, {"U64", 64}};
  for (const auto& [text, size] : expected) {
    const auto dtype = find_dtype(text);
    ASSERT_TRUE(dtype.has_value()) << text;
    EXPECT_EQ(name(*dtype), text);
    EXPECT_EQ(bits(*dtype), size) << text;
  }
  for (const char* text : {"f32", "F128", "", "F32 ", "FLOAT", "F4_E2M1", "I4"}) {
    EXPECT_FALSE(find_dtype(text).has_value()) << text;
  }
}

TEST(Shape, prints_like_the_header) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{5}), "[5]");
  EXPECT_EQ(to_string(Shape{2, 3, 18446744073709551615u}), "[2, 3, 18446744073709551615]");
}

TEST(SafetensorsHeader, gives_entries_by_offset_and_metadata) {
  const auto header =
      read(safetensors_bytes(R"({"__metadata__":{"format":"pt","\u0061":""},)"
                             R"("b":{"data_offsets":[4,16],"shape":[2,3],"dtype":"F16"},)"
                             R"("z":{"dtype":"U8","shape":[0,7],"data_offsets":[4,4]},)"
                             R"("\"\u00e9":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                             sample_data(16)));
  ASSERT_TRUE(header.ok()) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 3u);
  const TensorEntry& scalar = header->tensors[0];
  EXPECT_EQ(scalar.name, "\"\u00e9");
  EXPECT_EQ(scalar.dtype, DType::kF32);
  EXPECT_EQ(scalar.shape, Shape{});
  EXPECT_EQ(scalar.begin, 0u);
  EXPECT_EQ(scalar.end, 4u);
  EXPECT_EQ(header->tensors[1].name, "z");
  EXPECT_EQ(header->tensors[2].name, "b");
  EXPECT_EQ(header->tensors[2].shape, (Shape{2, 3}));
  EXPECT_EQ(header->tensors[2].end, 16u);
  EXPECT_EQ(header->metadata, (std::map<std::string, std::string>{{"a", ""}, {"format", "pt"}}));
}

TEST(SafetensorsHeader, needs_no_byte_of_the_data) {
  const std::string start =
      safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1000000],"data_offsets":[0,1000000]}})");
  const auto header =
      read_safetensors_header(std::as_bytes(std::span(start)), start.size() + 1'000'000, "f");
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->data_offset, start.size());
}

TEST(SafetensorsHeader, messages_name_file_tensor_expected_and_found) {
  EXPECT_EQ(message(""), "f: expected at least 8 bytes, found 0");
  EXPECT_EQ(message(safetensors_bytes(
                R"({"w\n":{"dtype":"F32","shape":[2,3],"data_offsets":[0,12]}})", sample_data(12))),
            R"(f: tensor "w\u000a": expected 24 bytes for F32 of [2, 3], found 12 in data_offsets )"
            "[0, 12]");
  EXPECT_EQ(message(safetensors_bytes(R"({"w":{"dtype":"F128","shape":[],"data_offsets":[0,0]}})")),
            R"(f: tensor "w": expected a known dtype, found "F128")");
  EXPECT_EQ(message(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
                                      sample_data(5))),
            R"(f: tensor "b": expected to begin at 2, where "a" ends, found 3)");
}

TEST(SafetensorsHeader, messages_recognise_common_wrong_files) {
  const auto hints = [](const std::string& file, std::string_view hint) {
    return message(file).find(hint) != std::string::npos;
  };
  EXPECT_TRUE(hints("version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git-LFS"));
  EXPECT_TRUE(hints("<!DOCTYPE html><html></html>", "HTML"));
  EXPECT_TRUE(hints("\x1f\x8b\x08" + std::string(40, '\0'), "gzip"));
  EXPECT_TRUE(hints("PK\x03\x04" + std::string(40, '\1'), "ZIP"));
  EXPECT_TRUE(hints("\x80\x02}q\x01(X\x01" + std::string(40, '\1'), "pickle"));
  EXPECT_TRUE(hints("GGUF\x03" + std::string(40, '\1'), "GGUF"));
  EXPECT_TRUE(hints(R"({"a":{"dtype":"U8"}})", "JSON"));
  EXPECT_FALSE(hints("abcdefghijklm", "looks like"));
}

TEST(SafetensorsHeader, a_length_that_spells_a_magic_number_decides_nothing) {
  // 0x00088b1f is the start of a gzip file with flags and time of zero.
  const std::string header = "{}" + std::string(0x00088b1f - 2, ' ');
  const std::string file = safetensors_bytes(header);
  ASSERT_EQ(file.substr(0, 3), "\x1f\x8b\x08");
  EXPECT_TRUE(read(file).ok());
}

TEST(SafetensorsFile, gives_the_bytes_of_each_tensor) {
  const TempDir dir;
  const std::string data = sample_data(16);
  // A header of 127 bytes: the data begin at an odd address.
  std::string header = R"({"b":{"dtype":"F16","shape":[2,3],"data_offsets":[4,16]},)"
                       R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
  header.resize(127, ' ');
  const auto file =
      SafetensorsFile::open(dir.write("m.safetensors", safetensors_bytes(header, data)));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->path(), dir / "m.safetensors");
  std::vector<FileTensor> tensors;
  for (const TensorEntry& entry : file->header().tensors) tensors.push_back(file->tensor(entry));
  ASSERT_EQ(tensors.size(), 2u);
  const auto text = [](const FileTensor& tensor) {
    return std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  };
  EXPECT_EQ(text(tensors[0]), data.substr(0, 4));
  EXPECT_EQ(text(tensors[1]), data.substr(4));
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].dtype, DType::kF16);
  EXPECT_EQ(tensors[1].shape, (Shape{2, 3}));
}

TEST(SafetensorsFile, tensors_keep_their_file_open) {
  const TempDir dir;
  const FileTensor tensor = [&] {
    const auto file = SafetensorsFile::open(dir.write(
        "m", safetensors_bytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "xyz")));
    return file->tensor(file->header().tensors[0]);
  }();
  EXPECT_EQ(tensor.bytes[2], std::byte{'z'});
  EXPECT_EQ(tensor.file->path(), dir / "m");
}

TEST(SafetensorsFile, errors_name_the_file) {
  const TempDir dir;
  const auto missing = SafetensorsFile::open(dir / "missing");
  EXPECT_EQ(missing.error().code, "file.not_found");
  const auto empty = SafetensorsFile::open(dir.write("empty", ""));
  EXPECT_EQ(empty.error().code, safetensors_codes::kTooSmall);
  EXPECT_EQ(empty.error().message,
            (dir / "empty").string() + ": expected at least 8 bytes, found 0");
}

}  // namespace
}  // namespace subbyte
