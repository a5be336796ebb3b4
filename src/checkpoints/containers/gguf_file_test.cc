#include "checkpoints/containers/gguf_file.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "support/gguf_bytes.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

Result<GgufFile> read(const std::string& bytes, std::vector<Error>* problems = nullptr) {
  return GgufFile::of(MappedFile::of(std::as_bytes(std::span(bytes)), "m.gguf"), problems);
}

/// The code of the refusal and what is said after the file, "" when there is none.
std::string refusal(const std::string& bytes) {
  const auto file = read(bytes);
  return file.ok() ? "" : std::string(file.error().code) + " " + file.error().message;
}

GgufBytes small() {
  GgufBytes file;
  file.text("general.architecture", "llama");
  file.u32("llama.block_count", 2);
  file.tensor("token_embd.weight", {64, 3}, 8, 3 * 2 * 34);
  file.tensor("output_norm.weight", {64}, 0, 256);
  return file;
}

TEST(GgufFile, has_keys_and_tensors) {
  GgufBytes made = small();
  made.key("u8", 0, raw(uint8_t{200}));
  made.key("i8", 1, raw(int8_t{-3}));
  made.key("u16", 2, raw(uint16_t{60000}));
  made.key("i16", 3, raw(int16_t{-300}));
  made.key("i32", 5, raw(int32_t{-70000}));
  made.f32("f32", 1.5F);
  made.key("bool", 7, raw(uint8_t{1}));
  made.key("u64", 10, raw(UINT64_MAX));
  made.key("i64", 11, raw(int64_t{-1}));
  made.key("f64", 12, raw(0.1));
  made.texts("words", {"a", "", "\u0120the"});
  made.numbers<int32_t>("list", 5, {4, -5});
  const auto file = read(made.bytes());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->find("general.architecture")->string(), "llama");
  EXPECT_EQ(file->find("llama.block_count")->integer(), 2);
  EXPECT_EQ(file->find("u8")->integer(), 200);
  EXPECT_EQ(file->find("i8")->integer(), -3);
  EXPECT_EQ(file->find("u16")->integer(), 60000);
  EXPECT_EQ(file->find("i16")->integer(), -300);
  EXPECT_EQ(file->find("i32")->integer(), -70000);
  EXPECT_EQ(file->find("f32")->number(), 1.5);
  EXPECT_EQ(file->find("f32")->integer(), std::nullopt);
  EXPECT_EQ(file->find("bool")->boolean(), true);
  EXPECT_EQ(file->find("u64")->integer(), std::nullopt);  // more than 63 bits
  EXPECT_EQ(file->find("i64")->integer(), -1);
  EXPECT_EQ(file->find("f64")->number(), 0.1);
  EXPECT_EQ(file->find("words")->strings(), (std::vector<std::string_view>{"a", "", "\u0120the"}));
  EXPECT_EQ(file->find("list")->size(), 2u);
  EXPECT_EQ(file->find("list")->integer(1), -5);
  EXPECT_EQ(file->find("list")->integer(2), std::nullopt);
  EXPECT_EQ(file->find("none"), nullptr);
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "token_embd.weight");
  EXPECT_EQ(file->tensors()[0].shape, (std::vector<uint64_t>{3, 64}));
  EXPECT_EQ(file->tensors()[0].bytes.size(), 204u);
  EXPECT_EQ(file->tensors()[1].bytes.data() - file->tensors()[0].bytes.data(), 224);
}

TEST(GgufFile, its_data_begin_at_a_multiple_of_its_alignment) {
  GgufBytes made;
  made.alignment = 64;
  made.u32("general.alignment", 64);
  made.tensor("a", {1}, 0, 4);
  made.tensor("b", {1}, 0, 4);
  const auto file = read(made.bytes());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensors()[1].bytes.data() - file->tensors()[0].bytes.data(), 64);
  EXPECT_TRUE(read([] {
                GgufBytes second;
                second.version = 2;
                return second.bytes();
              }())
                  .ok());
}

struct Case {
  const char* name;
  const char* refusal;  // begins it
  std::function<std::string(GgufBytes)> make;
};

std::string with(GgufBytes file, const std::function<void(GgufBytes&)>& change) {
  change(file);
  return file.bytes();
}

const Case kCases[] = {
    {"empty", "gguf.truncated m.gguf: expected at least 24 bytes, found 0",
     [](const GgufBytes&) { return std::string(); }},
    {"magic", "gguf.magic", [](const GgufBytes& f) { return "GGUX" + f.bytes().substr(4); }},
    {"version_1", "gguf.version m.gguf: expected version 2 or 3, found 1",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.version = 1; }); }},
    {"big_endian", "gguf.version m.gguf: a big-endian file",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.version = 0x03000000; }); }},
    {"keys_beyond_the_file", "gguf.limit",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.num_keys = uint64_t{1} << 40; }); }},
    {"tensors_beyond_the_file", "gguf.limit",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.num_tensors = uint64_t{1} << 60; }); }},
    {"text_beyond_the_file", "gguf.truncated",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.key("k", 8, raw(UINT64_MAX - 3)); }); }},
    {"array_beyond_the_file", "gguf.truncated",
     [](GgufBytes f) {
       return with(f, [](GgufBytes& x) { x.key("k", 9, raw(uint32_t{10}) + raw(UINT64_MAX / 4)); });
     }},
    {"array_of_arrays", "gguf.value m.gguf: \"k\": expected an array of numbers or texts",
     [](GgufBytes f) {
       return with(f, [](GgufBytes& x) { x.key("k", 9, raw(uint32_t{9}) + raw(uint64_t{0})); });
     }},
    {"unknown_value", "gguf.value",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.key("k", 13, ""); }); }},
    {"key_twice", "gguf.key m.gguf: the key \"llama.block_count\" appears twice",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.u32("llama.block_count", 3); }); }},
    {"key_without_name", "gguf.key",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.u32("", 3); }); }},
    {"bool_of_2", "gguf.value m.gguf: \"k\": expected true (1) or false (0), found 2",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.key("k", 7, raw(uint8_t{2})); }); }},
    {"text_not_utf8", "gguf.value m.gguf: \"k\": found a text that is not UTF-8 at byte 1",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.text("k", "a\xFF"); }); }},
    {"text_with_zero", "gguf.value m.gguf: \"k\": found a zero byte",
     [](GgufBytes f) {
       return with(f, [](GgufBytes& x) { x.text("k", std::string_view("a\0b", 3)); });
     }},
    {"number_not_finite", "gguf.value m.gguf: \"k\": expected a finite number",
     [](GgufBytes f) {
       return with(f, [](GgufBytes& x) { x.f32("k", std::numeric_limits<float>::infinity()); });
     }},
    {"score_not_finite", "gguf.value m.gguf: \"k\": [1]: expected a finite number",
     [](GgufBytes f) {
       return with(f, [](GgufBytes& x) {
         x.numbers<float>("k", 6, {0, std::numeric_limits<float>::quiet_NaN()});
       });
     }},
    {"alignment_of_48", "gguf.value m.gguf: general.alignment: expected a power of two",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.u32("general.alignment", 48); }); }},
    {"alignment_of_0", "gguf.value m.gguf: general.alignment",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.u32("general.alignment", 0); }); }},
    {"tensor_twice", "gguf.tensor m.gguf: tensor \"output_norm.weight\": appears twice",
     [](GgufBytes f) {
       return with(f, [](GgufBytes& x) { x.tensor("output_norm.weight", {1}, 0, 4); });
     }},
    {"tensor_name_of_64_bytes", "gguf.tensor",
     [](GgufBytes f) {
       return with(f, [](GgufBytes& x) { x.tensor(std::string(64, 'a'), {1}, 0, 4); });
     }},
    {"tensor_name_with_zero", "gguf.tensor m.gguf: tensor \"a\\u0000\": its name has a zero byte",
     [](GgufBytes f) {
       return with(f, [](GgufBytes& x) { x.tensor(std::string_view("a\0", 2), {1}, 0, 4); });
     }},
    {"no_dimensions", "gguf.tensor",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.tensor("a", {}, 0, 4); }); }},
    {"five_dimensions", "gguf.tensor",
     [](GgufBytes f) {
       return with(f, [](GgufBytes& x) { x.tensor("a", {1, 1, 1, 1, 1}, 0, 4); });
     }},
    {"dimension_of_0", "gguf.tensor",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) {
                         x.tensor("a", {1, 0}, 0, 0);
                       }); }},
    {"dimensions_that_wrap", "gguf.tensor",
     [](GgufBytes f) {
       return with(f, [](GgufBytes& x) {
         x.tensor("a", {uint64_t{1} << 32, uint64_t{1} << 31, 4}, 0, 0);
       });
     }},
    {"row_of_half_a_block",
     "gguf.tensor m.gguf: tensor \"a\": expected inputs in blocks of 256 "
     "(Q4_K), found 128",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) {
                         x.tensor("a", {128, 2}, 12, 144);
                       }); }},
    {"type_that_was_removed", "gguf.type m.gguf: tensor \"a\": type 31 was removed",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.tensor("a", {32}, 31, 18); }); }},
    {"type_unknown", "gguf.type m.gguf: tensor \"a\": type 77 is not known",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.tensor("a", {32}, 77, 18); }); }},
    {"overlap", "gguf.offset m.gguf: tensor \"a\": expected an offset of 480, found 0",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.place("a", {1}, 0, 0); }); }},
    {"hole", "gguf.offset",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.place("a", {1}, 0, 512); }); }},
    {"beyond_the_end", "gguf.truncated m.gguf: tensor \"a\": expected 4096 bytes",
     [](GgufBytes f) { return with(f, [](GgufBytes& x) { x.place("a", {1024}, 0, 480); }); }},
    {"trailing_bytes", "gguf.trailing_bytes", [](const GgufBytes& f) { return f.bytes() + "PK"; }},
};

class GgufRefusals : public ::testing::TestWithParam<Case> {};

TEST_P(GgufRefusals, names_the_key_or_the_tensor) {
  const std::string found = refusal(GetParam().make(small()));
  EXPECT_TRUE(found.starts_with(GetParam().refusal)) << found;
}

INSTANTIATE_TEST_SUITE_P(Files, GgufRefusals, ::testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(GgufFile, every_cut_is_refused) {
  const std::string bytes = small().bytes();
  for (std::size_t size = 0; size + 32 <= bytes.size(); ++size) {
    EXPECT_NE(refusal(bytes.substr(0, size)), "") << size;
  }
}

TEST(GgufFile, all_that_is_wrong_with_keys_and_tensors_is_collected) {
  GgufBytes made = small();
  made.key("first", 7, raw(uint8_t{9}));
  made.text("second", "\xC0");
  made.tensor("third", {1}, 4, 4);
  std::vector<Error> problems;
  const auto file = read(made.bytes(), &problems);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_NE(problems[0].message.find("\"first\""), std::string::npos);
  EXPECT_NE(problems[1].message.find("\"second\""), std::string::npos);
  EXPECT_EQ(problems[2].code, "gguf.type");
  EXPECT_EQ(file->find("first"), nullptr);
  EXPECT_EQ(file->tensors().size(), 2u);
}

TEST(GgufFile, is_known_by_its_first_bytes) {
  const TempDir dir;
  EXPECT_TRUE(is_gguf(dir.write("blob", "GGUF\x03")));
  EXPECT_FALSE(begins_as_gguf(dir.write("x.gguf", "GGU")));
  EXPECT_TRUE(is_gguf(dir.write("x.gguf", "GGU")));  // opening it says that it is none
  EXPECT_FALSE(is_gguf(dir.write("x", "GGU")));
  EXPECT_FALSE(is_gguf(dir.path()));
  EXPECT_FALSE(is_gguf(dir / "none"));
}

}  // namespace
}  // namespace subbyte
