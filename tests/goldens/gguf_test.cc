// Files that gguf-py wrote of tiny models (tools/interop/gguf_files.py), one of each architecture:
// transformers computed the logits and the greedy tokens in float32.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "checkpoints/config/model_files.h"
#include "checkpoints/containers/gguf_pre_tokenizers.h"
#include "checkpoints/containers/tensor_source.h"
#include "engine/generate.h"
#include "json/strict_json.h"
#include "models/model.h"
#include "support/gguf_bytes.h"
#include "support/golden_bound.h"
#include "support/goldens.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "support/test_names.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr int kPrompts = 3;

template <typename T>
std::vector<T> read(const TensorSource& source, const std::string& name) {
  const FileTensor& tensor = *source.find(name);
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

class GgufGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* isa = std::getenv("SUBBYTE_ISA");
    backend_ = testing::make_test_backend(2, isa == nullptr ? "" : isa);
    auto model = load_model(file(), *backend_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
    auto source = TensorSource::open(folder() / "reference.safetensors");
    ASSERT_TRUE(source.ok()) << source.error().message;
    reference_ = *std::move(source);
  }

  static fs::path folder() { return fs::path(kTestData) / "gguf" / GetParam(); }
  static fs::path file() { return folder() / "model.gguf"; }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  TensorSource reference_ = TensorSource::empty();
};

TEST_P(GgufGoldens, logits_are_those_of_the_reference) {
  double worst = 0;
  for (int i = 0; i < kPrompts; ++i) {
    const std::string prompt = "prompt" + std::to_string(i);
    const auto ids = read<int32_t>(reference_, prompt + ".ids");
    const auto expected = read<float>(reference_, prompt + ".logits");
    const auto found = testing::logits_of(*model_, *backend_, ids);
    ASSERT_EQ(found.size(), expected.size());
    const auto rounding = testing::rounding_of(testing::isa_of(*backend_), Activations::kF32, true);
    const double bound =
        testing::golden_tolerance(model_->config(), expected, rounding, std::ssize(ids));
    for (std::size_t k = 0; k < found.size(); ++k) {
      const double part = std::abs(double{found[k]} - expected[k]) / bound;
      worst = part <= worst ? worst : part;  // NaN becomes the worst
    }
  }
  EXPECT_LE(worst, 1);
}

TEST_P(GgufGoldens, greedy_tokens_are_those_of_the_reference) {
  for (int i = 0; i < kPrompts; ++i) {
    const std::string prompt = "prompt" + std::to_string(i);
    testing::TestContext context(*model_, *backend_, 128);
    GenerateOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = 24;
    options.stop_tokens = {};
    std::vector<int32_t> tokens;
    const auto stats =
        generate(*model_, *backend_, context.sequence(), read<int32_t>(reference_, prompt + ".ids"),
                 options, [&](int32_t token) {
                   tokens.push_back(token);
                   return true;
                 });
    ASSERT_TRUE(stats.ok()) << stats.error().message;
    EXPECT_EQ(tokens, read<int32_t>(reference_, prompt + ".greedy"));
  }
}

TEST_P(GgufGoldens, tokenizer_and_template_are_inside) {
  const auto tokenizer = open_tokenizer(file() / "tokenizer.json", ModelFiles(file()));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto ids = tokenizer->encode("the inn <|im_end|>", SpecialTokens::kRecognize);
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  const auto text = tokenizer->decode(*ids, false);
  EXPECT_EQ(*text, "the inn <|im_end|>");
  EXPECT_EQ(ids->front(), tokenizer->find("the"));
  EXPECT_EQ(ids->back(), tokenizer->end_token());
  const auto chat = ChatTemplate::read(ModelFiles(file()));
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_TRUE(chat->has_value());
}

/// Its patterns are ones that are read, and cut what all of them keep together.
TEST(GgufPreTokenizers, every_one_opens) {
  for (const GgufPreTokenizer& known : all_gguf_pre_tokenizers()) {
    const std::string name(known.names.substr(0, known.names.find(' ')));
    if (known.of_characters) continue;
    SCOPED_TRACE(name);
    GgufBytes made;
    made.text("tokenizer.ggml.model", "gpt2");
    made.text("tokenizer.ggml.pre", name);
    made.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "1", "\u0120", "\u010A"});
    made.texts("tokenizer.ggml.merges", {"a b"});
    made.key("tokenizer.ggml.add_bos_token", 7, raw(uint8_t{0}));
    made.tensor("a", {1}, 0, 4);
    const TempDir folder;
    const fs::path file = folder.write("model.gguf", made.bytes());
    const auto tokenizer = open_tokenizer(file / "tokenizer.json", ModelFiles(file));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const auto ids = tokenizer->encode("ab 1\nab");
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, (std::vector<TokenId>{2, 4, 3, 5, 2}));
  }
}

std::string utf8_of(uint32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
}

/// The vocabulary of tools/interop/gguf_pre_tokenizers.py.
void add_pairs(GgufBytes& made) {
  const auto is_plain = [](uint32_t b) {
    return (b >= 33 && b < 127) || (b >= 161 && b < 173) || b >= 174;
  };
  std::vector<std::string> tokens;
  for (uint32_t b = 0, next = 256; b < 256; ++b)
    tokens.push_back(utf8_of(is_plain(b) ? b : next++));
  std::vector<std::string> alphabet;
  for (uint32_t c = 33; c < 127; ++c) alphabet.push_back(utf8_of(c));
  alphabet.emplace_back("\u0120");
  alphabet.emplace_back("\u010A");
  std::vector<std::string> merges;
  for (const std::string& a : alphabet) {
    for (const std::string& b : alphabet) {
      tokens.push_back(a + b);
      merges.push_back(a + " " + b);
    }
  }
  made.texts("tokenizer.ggml.tokens", tokens);
  made.texts("tokenizer.ggml.merges", merges);
  made.key("tokenizer.ggml.add_bos_token", 7, raw(uint8_t{0}));
}

/// A capital letter follows a small one.
bool has_capital_inside(std::string_view text) {
  const auto is_inside = [](char a, char b) {
    return a >= 'a' && a <= 'z' && b >= 'A' && b <= 'Z';
  };
  return std::ranges::adjacent_find(text, is_inside) != text.end();
}

/// Ids show where a text is cut, as two letters become one token unless there is a cut between.
TEST(GgufPreTokenizers, cut_texts_as_llama_cpp_does) {
  const auto golden =
      json::parse_file((fs::path(kTestData) / "gguf" / "pre_tokenizers.json").string(), 1 << 20);
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const json::Value& texts = golden->at("texts");
  ASSERT_GE(texts.size(), 24U);
  for (const GgufPreTokenizer& known : all_gguf_pre_tokenizers()) {
    const std::string name(known.names.substr(0, known.names.find(' ')));
    if (known.of_characters) continue;
    SCOPED_TRACE(name);
    // llama.cpp does not tell cases of letters apart there.
    const bool is_blind = name == "youtu" || name == "kimi-k2" || name == "tiny_aya";
    const json::Value& ids = golden->at("ids").at(name);
    ASSERT_EQ(ids.size(), texts.size());
    GgufBytes made;
    made.text("tokenizer.ggml.model", "gpt2");
    made.text("tokenizer.ggml.pre", name);
    add_pairs(made);
    made.tensor("a", {1}, 0, 4);
    const TempDir folder;
    const fs::path file = folder.write("model.gguf", made.bytes());
    const auto tokenizer = open_tokenizer(file / "tokenizer.json", ModelFiles(file));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (is_blind && has_capital_inside(texts[i].string())) continue;
      const auto found = tokenizer->encode(texts[i].string());
      ASSERT_TRUE(found.ok());
      EXPECT_EQ(*found, ids[i].get<std::vector<TokenId>>()) << texts[i].string();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, GgufGoldens, ::testing::ValuesIn(testing::kGgufGoldens),
                         NamedByValue());
INSTANTIATE_TEST_SUITE_P(Types, GgufGoldens, ::testing::Values("types-k", "types-iq", "types-two"),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
