// What the JSON files of a model take of memory while they are read, counted by operator new: at
// most four times the file, or a fixed amount if that is more. The file itself is mapped, and not
// counted.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "checkpoints/containers/tensor_source.h"
#include "conformance/allocation_counter.h"
#include "json/strict_json.h"
#include "support/sanitized.h"
#include "support/small_tokenizer.h"
#include "support/temp_dir.h"

namespace subbyte::conformance {
namespace {

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

// Sanitizers change nothing of what is counted, and each byte takes long with them: the files are
// then as small as what they are refused for allows.
constexpr std::size_t kScale = testing::kSanitized ? 10 : 1;

/// `begin`, then `element` until the text has `size` bytes, then `end`.
std::string repeated(std::string_view begin, std::string_view element, std::string_view end,
                     std::size_t size) {
  std::string text(begin);
  while (text.size() < size) text.append(element);
  return text.append(end);
}

TEST(JsonMemory, stays_within_four_times_the_text) {
  // Of 16 MB is the largest config.json.
  constexpr std::size_t kSize = 16 * kMegabyte / (testing::kSanitized ? 4 : 1);
  std::string keys = "{\"first\":0";
  for (int i = 0; keys.size() < kSize; ++i) keys += ",\"" + std::to_string(i) + "\":0";
  const std::string megabyte = "\"" + std::string(kMegabyte + 16, 'x') + "\"";
  for (const std::string& text :
       {repeated("[0", ",0", "]", kSize), repeated("[\"\"", ",\"\"", "]", kSize),
        repeated("[[]", ",[]", "]", kSize), repeated("[{}", ",{}", "]", kSize),
        repeated("[0", ",[0]", "]", kSize), repeated("[0", ",{\"a\":0}", "]", kSize),
        repeated("[0", ",\"0123456789abcdef\"", "]", kSize), repeated("[\"", "x", "\"]", kSize),
        repeated("[" + megabyte, "," + megabyte, "]", kSize - 2 * kMegabyte), keys + "}"}) {
    const AllocationPeak peak;
    const auto value = json::parse(text, "t");
    EXPECT_LE(peak.bytes(), 4 * text.size()) << text.substr(0, 20);
    const bool is_taken = text.starts_with("[\"xx") && text.ends_with(megabyte + "]");
    EXPECT_EQ(value.ok() ? "ok" : value.error().code, is_taken ? "ok" : "json.memory")
        << text.substr(0, 20);
  }
}

/// A number in letters: short keys, each another.
std::string letters(uint64_t number) {
  std::string text;
  for (; number > 0; number /= 26) text.push_back(static_cast<char>('a' + number % 26));
  return text;
}

/// The parts of a tokenizer.json that is whole: `vocab` and `merges` follow those of the bytes.
struct LargeTokenizer {
  std::string vocab;
  std::string merges;
  std::string added;
  std::string rest = "0";
  bool merges_first = false;

  std::string text() const {
    TokenizerJson small = small_tokenizer();
    std::string bytes = small["model"]["vocab"].dump();
    bytes.pop_back();
    const std::string words = "\"vocab\":" + bytes + vocab + "}";
    const std::string pairs = "\"merges\":[\"a b\"" + merges + "]";
    const std::string byte_level = R"({"type":"ByteLevel","use_regex":false})";
    return "{\"rest\":" + rest + ",\"added_tokens\":[" + added +
           "],\"pre_tokenizer\":" + byte_level + ",\"decoder\":" + byte_level + ",\"model\":{" +
           (merges_first ? pairs + "," + words : words + "," + pairs) + "}}";
  }
};

class TokenizerMemory : public ::testing::Test {
 protected:
  /// Words of up to four letters that are made of pairs, as in real files, but without spaces.
  static LargeTokenizer with_words(uint64_t count) {
    LargeTokenizer made;
    made.vocab = R"(,"ab":256)";
    for (uint64_t i = 26; i < 26 + count; ++i) {
      const std::string word = letters(i);
      if (word != "ab") made.vocab += ",\"" + word + "\":" + std::to_string(i + 300);
      made.merges += ",\"" + word.substr(0, 1) + " " + word.substr(1) + "\"";
    }
    return made;
  }

  /// The code of loading it, or "ok".
  std::string load(const LargeTokenizer& made) {
    const TempDir dir;
    std::filesystem::path path;
    std::size_t size = 0;
    {
      const std::string text = made.text();
      size = text.size();
      path = dir.write("tokenizer.json", text);
    }
    const AllocationPeak peak;
    const auto tokenizer = Tokenizer::load(path);
    EXPECT_LE(peak.bytes(), std::max(4 * size, 2 * json::kFreeMemory)) << size;
    if (tokenizer.ok()) last_size_ = tokenizer->size();
    return tokenizer.ok() ? "ok" : std::string(tokenizer.error().code);
  }

  TokenId last_size_ = 0;
};

TEST_F(TokenizerMemory, of_words_and_merges_stays_within_four_times_the_file) {
  LargeTokenizer made = with_words(500'000 / kScale);  // 11 MB
  EXPECT_EQ(load(made), "ok");
  EXPECT_EQ(last_size_, 500'000 / kScale + 326);
  made.merges_first = true;
  EXPECT_EQ(load(made), "ok");
  made.merges.clear();
  EXPECT_EQ(load(made), "ok");
}

TEST_F(TokenizerMemory, of_pairs_that_come_again_is_refused) {
  LargeTokenizer made;
  made.vocab = R"(,"ab":256)";
  made.merges = repeated("", ",\"a b\"", "", 40 * kMegabyte / kScale);
  EXPECT_EQ(load(made), "json.memory");
  made.merges_first = true;
  EXPECT_EQ(load(made), "json.memory");
  made.merges.resize(made.merges.size() / 6 / 200 * 6);
  EXPECT_EQ(load(made), "ok");
}

TEST_F(TokenizerMemory, of_large_ids_is_bounded_by_the_file) {
  LargeTokenizer made;
  made.vocab = R"(,"abc":262143)";
  made.merges = "";
  EXPECT_EQ(load(made), "tokenizer.merge_unknown_result");
  made.vocab = R"(,"ab":262143)";
  EXPECT_EQ(load(made), "ok");
  made.vocab = R"(,"ab":262144)";
  EXPECT_EQ(load(made), "tokenizer.id_out_of_range");
  made.rest += std::string(3 * kMegabyte, ' ');
  EXPECT_EQ(load(made), "ok");
  // The largest number of ids; under sanitizers one in 16 bytes of a smaller file.
  constexpr std::size_t kRest = 40 * kMegabyte / kScale;
  constexpr std::size_t kTooLarge = testing::kSanitized ? kRest : std::size_t{1} << 22;
  constexpr std::size_t kLargest = testing::kSanitized ? kRest / 16 : kTooLarge - 1;
  made.rest += std::string(kRest, ' ');
  made.vocab = ",\"ab\":" + std::to_string(kTooLarge);
  EXPECT_EQ(load(made), "tokenizer.id_out_of_range");
  made.vocab = ",\"ab\":" + std::to_string(kLargest);
  EXPECT_EQ(load(made), "ok");
}

TEST_F(TokenizerMemory, of_added_tokens_stays_within_four_times_the_file) {
  LargeTokenizer made;
  constexpr int64_t kNumAdded = 300'000 / kScale;
  made.vocab = R"(,"ab":256)";
  for (int64_t i = 300; i < kNumAdded; ++i) {
    if (i > 300) made.added += ",";
    made.added += added_token(i, "<" + std::to_string(i) + ">").dump();
  }
  EXPECT_EQ(load(made), "ok");
  made.added += "," + added_token(kNumAdded, "<300>").dump();
  EXPECT_EQ(load(made), "ok");  // a text that is there twice
  made.added += "," + added_token(kNumAdded, "<twin>").dump();
  EXPECT_EQ(load(made), "tokenizer.duplicate_id");
}

TEST_F(TokenizerMemory, of_everything_else_stays_within_four_times_the_file) {
  LargeTokenizer made;
  made.vocab = R"(,"ab":256)";
  constexpr std::size_t kSize = (testing::kSanitized ? 10 : 50) * kMegabyte;
  constexpr std::size_t kWords = (testing::kSanitized ? 20 : 50) * kMegabyte;
  made.rest = repeated("[0", ",0", "]", kSize);
  EXPECT_EQ(load(made), "json.memory");
  made.rest = "\"" + std::string(kSize, 'x') + "\"";
  EXPECT_EQ(load(made), "json.memory");
  made.rest = "0";
  LargeTokenizer other = made;
  other.vocab += ",\"" + std::string(kSize, 'x') + "\":257";
  EXPECT_EQ(load(other), "json.memory");
  other = made;
  other.merges = repeated(",[0", ",0", "]", kSize);
  EXPECT_EQ(load(other), "json.memory");
  other = made;
  for (int i = 1000; other.vocab.size() < kWords; ++i) {
    other.vocab += ",\"" + std::string(1000, 'x') + std::to_string(i) + "\":" + std::to_string(i);
  }
  EXPECT_EQ(load(other), "ok");
}

TEST(IndexMemory, stays_within_four_times_the_file) {
  const TempDir dir;
  for (const std::string& begin : {std::string(), std::string(40, 'n'), std::string(200, 'n')}) {
    std::string text = "{\"weight_map\":{";
    for (uint64_t i = 26; text.size() < 30 * kMegabyte / kScale; ++i) {
      text += (i == 26 ? "\"" : ",\"") + begin + letters(i) + "\":\"1.safetensors\"";
    }
    dir.write("model.safetensors.index.json", text + "}}");
    const AllocationPeak peak;
    const auto source = TensorSource::open(dir.path());
    EXPECT_LE(peak.bytes(), 4 * text.size()) << begin;
    EXPECT_EQ(source.ok() ? "ok" : source.error().code, "index.shard_missing");
  }
}

}  // namespace
}  // namespace subbyte::conformance
