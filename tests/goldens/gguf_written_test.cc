// convert writes GGUF: the weights are those of the source, and so are the logits.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/thread_pool.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/containers/gguf_parts.h"
#include "checkpoints/containers/gguf_tokenizer.h"
#include "checkpoints/containers/gguf_tokenizer_writer.h"
#include "checkpoints/containers/tensor_source.h"
#include "foreign_layouts/ggml_types.h"
#include "models/model.h"
#include "support/gguf_bytes.h"
#include "support/golden_bound.h"
#include "support/goldens.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "support/test_names.h"
#include "text/tokenizer.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

struct Written {
  const char* golden;
  const char* type;       // of most matrices
  bool has_more = false;  // parts that see, in the directory alone
};

std::ostream& operator<<(std::ostream& out, const Written& written) {
  return out << written.golden;
}

/// `by_name`: only weights that both have are compared.
void expect_same(const fs::path& first, const fs::path& second, Executor& pool,
                 bool by_name = false) {
  const auto diff = diff_models(first, second, pool);
  ASSERT_TRUE(diff.ok()) << diff.error().message;
  ASSERT_FALSE(diff->weights.empty());
  for (const ComparedWeight& weight : diff->weights) {
    if (by_name && (weight.first.empty() || weight.second.empty())) continue;
    // -exp(A_log) is rounded to F32 there, which is half of u of it, and its logarithm to within u
    // of itself.
    if (weight.name.ends_with(".A_log") && weight.verdict == ComparedWeight::Verdict::kDifferent) {
      const double largest = std::sqrt(weight.difference.signal);
      EXPECT_LE(weight.difference.max, 0x1.1p-24 + 0x1p-23 * largest) << weight.name;
      continue;
    }
    EXPECT_TRUE(weight.verdict == ComparedWeight::Verdict::kSameBytes ||
                weight.verdict == ComparedWeight::Verdict::kSameValues)
        << weight.name << " " << weight.first << " " << weight.second;
  }
}

class GgufWritten : public ::testing::TestWithParam<Written> {
 protected:
  std::vector<float> logits(const Model& model) {
    return testing::logits_of(model, *backend_, kTokens);
  }

  /// How far the logits of one model in two files may be from each other, over their size: sums of
  /// another order, and what the kernels round of either layout. Frequencies and factors of decays
  /// are F32 there: angles are off by u of themselves, at most u for each position, as if inputs of
  /// all products were.
  double bound(const Model& model) const {
    const auto isa = testing::isa_of(*backend_);
    testing::Rounding rounding = testing::rounding_of(isa, Activations::kF32, true);
    const double angle = static_cast<double>(kTokens.size()) * 0x1p-24;
    rounding.e = std::sqrt(2 * rounding.e * rounding.e + angle * angle);
    return testing::kGoldenFactor *
           testing::relative_error(model.config(), std::ssize(kTokens), rounding);
  }

  const std::vector<int32_t> kTokens = {3, 41, 59, 65, 58, 67, 33, 38, 46, 64, 38, 27};

  TempDir folder_;
  ThreadPool pool_{2};
  std::unique_ptr<Backend> backend_ = testing::make_test_backend(
      2, std::getenv("SUBBYTE_ISA") == nullptr ? "" : std::getenv("SUBBYTE_ISA"));
};

TEST_P(GgufWritten, has_the_weights_and_the_logits_of_its_source) {
  const fs::path source = testing::golden_folder(GetParam().golden);
  const fs::path file = folder_ / "written.gguf";
  const auto report = convert_model(source, file, {.format = "gguf"}, pool_);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(fs::is_regular_file(file));
  expect_same(source, file, pool_, GetParam().has_more);
  const auto original = load_model(source, *backend_);
  const auto written = load_model(file, *backend_);
  ASSERT_TRUE(original.ok()) << original.error().message;
  ASSERT_TRUE(written.ok()) << written.error().message;
  const auto expected = logits(**original);
  const auto found = logits(**written);
  ASSERT_EQ(found.size(), expected.size());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    difference += std::pow(double{found[i]} - expected[i], 2);
    size += std::pow(double{expected[i]}, 2);
  }
  EXPECT_LE(std::sqrt(difference / size), bound(**original));
}

TEST_P(GgufWritten, has_blocks_of_the_type_that_holds_them) {
  const fs::path file = folder_ / "written.gguf";
  const auto report =
      convert_model(testing::golden_folder(GetParam().golden), file, {.format = "gguf"}, pool_);
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto model = GgufModel::open(file);
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const char* const name : {"blk.0.ffn_down.weight", "blk.0.ffn_down_exps.weight"}) {
    const GgufTensor* const tensor = model->find(name);
    if (tensor == nullptr) continue;
    EXPECT_EQ(find_ggml_type(tensor->type)->name, GetParam().type);
  }
}

TEST_P(GgufWritten, becomes_a_directory_with_the_same_weights) {
  const fs::path file = folder_ / "written.gguf";
  ASSERT_TRUE(
      convert_model(testing::golden_folder(GetParam().golden), file, {.format = "gguf"}, pool_)
          .ok());
  const std::string_view type = GetParam().type;
  const std::string format = type == "BF16"    ? "f32"
                             : type == "NVFP4" ? "modelopt_nvfp4"
                                               : "compressed-tensors";
  const auto report = convert_model(file, folder_ / format, {.format = format}, pool_);
  ASSERT_TRUE(report.ok()) << report.error().message;
  expect_same(file, folder_ / format, pool_);
}

/// Those that hold all numbers as they are: of delta nets A_log becomes -exp(A_log).
class GgufWrittenTwice : public GgufWritten {};

/// A second conversion is the first, byte for byte.
TEST_P(GgufWrittenTwice, is_itself) {
  const fs::path first = folder_ / "written.gguf";
  const fs::path source = testing::golden_folder(GetParam().golden);
  ASSERT_TRUE(convert_model(source, first, {.format = "gguf"}, pool_).ok());
  fs::create_directory(folder_ / "again");
  const fs::path second = folder_ / "again" / "written.gguf";
  const auto report = convert_model(first, second, {.format = "gguf"}, pool_);
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto diff = diff_models(first, second, pool_);
  ASSERT_TRUE(diff.ok()) << diff.error().message;
  for (const ComparedWeight& weight : diff->weights) {
    EXPECT_EQ(weight.verdict, ComparedWeight::Verdict::kSameBytes) << weight.name;
  }
}

constexpr Written kWritten[] = {{"llama3-bf16", "BF16"},        {"llama2-biases-bf16", "BF16"},
                                {"qwen2-bf16", "BF16"},         {"qwen3-bf16", "BF16"},
                                {"phi3-longrope-bf16", "BF16"}, {"granite-bf16", "BF16"},
                                {"olmo2-bf16", "BF16"},         {"olmo3-bf16", "BF16"},
                                {"glm4-bf16", "BF16"},          {"seed_oss-bf16", "BF16"},
                                {"ernie4_5-bf16", "BF16"},      {"hunyuan-dense-bf16", "BF16"},
                                {"minimax-m2-bf16", "BF16"},    {"exaone4-bf16", "BF16"},
                                {"cohere2-bf16", "BF16"},       {"nemotron-bf16", "BF16"},
                                {"gemma4-inputs-bf16", "BF16"}, {"gemma4-moe-bf16", "BF16"},
                                {"deepseek-v2-bf16", "BF16"},   {"hunyuan-moe-bf16", "BF16"},
                                {"gpt-oss-mxfp4", "MXFP4"},     {"llmcompressor-mxfp4", "MXFP4"},
                                {"modelopt-nvfp4", "NVFP4"},    {"gptqmodel-short-group", "Q4_0"},
                                {"glm4-moe-lite-bf16", "BF16"}};

INSTANTIATE_TEST_SUITE_P(Goldens, GgufWritten, ::testing::ValuesIn(kWritten), NamedByValue());
INSTANTIATE_TEST_SUITE_P(Goldens, GgufWrittenTwice, ::testing::ValuesIn(kWritten), NamedByValue());
/// Directories have some weights under other names, or two as one.
constexpr Written kOtherNames[] = {
    {"gemma4-bf16", "BF16", true}, {"ministral3-bf16", "BF16", true}, {"granitemoe-bf16", "BF16"}};
INSTANTIATE_TEST_SUITE_P(OtherNames, GgufWritten, ::testing::ValuesIn(kOtherNames), NamedByValue());
INSTANTIATE_TEST_SUITE_P(OtherNames, GgufWrittenTwice, ::testing::ValuesIn(kOtherNames),
                         NamedByValue());
INSTANTIATE_TEST_SUITE_P(DeltaNets, GgufWritten,
                         ::testing::Values(Written{"qwen3_5-bf16", "BF16"},
                                           Written{"qwen3_5-moe-bf16", "BF16"},
                                           Written{"granitemoehybrid-bf16", "BF16"}),
                         NamedByValue());

/// Of no window.
TEST(GgufWrites, mistral_as_llama) {
  const TempDir folder;
  ThreadPool pool(2);
  fs::copy(testing::golden_folder("mistral-bf16"), folder / "mistral");
  auto config = json::parse_file((folder / "mistral" / "config.json").string(), 1 << 20);
  ASSERT_TRUE(config.ok());
  (*config)["sliding_window"] = nullptr;
  std::ofstream(folder / "mistral" / "config.json") << json::to_text(*config);
  const fs::path file = folder / "written.gguf";
  const auto report = convert_model(folder / "mistral", file, {.format = "gguf"}, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  expect_same(folder / "mistral", file, pool);
  EXPECT_EQ(model_config_of(ModelFiles(file))->model_type, "llama");
}

/// Keys that config.json leaves out mean their defaults, or have an older name.
TEST(GgufWrites, what_config_leaves_out) {
  struct Case {
    const char* golden;
    const char* changes;  // null: the key is not there
  };
  constexpr Case kCases[] = {
      {"gpt-oss-mxfp4", R"({"num_experts_per_tok": null, "experts_per_token": 2})"},
      {"gpt-oss-mxfp4", R"({"sliding_window": null})"},
      {"granite-bf16", R"({"attention_multiplier": null, "logits_scaling": null})"},
      {"granitemoe-bf16", R"({"num_experts_per_tok": null})"},
      {"ernie4_5-moe-bf16", R"({"moe_norm_min": null, "moe_k": null, "num_experts_per_tok": 2})"},
      {"ernie4_5-moe-bf16", R"({"moe_norm_min": null, "moe_layer_interval": null})"},
      {"ernie4_5-moe-bf16", R"({"moe_norm_min": null, "moe_layer_start_index": null})"},
      {"glm4-moe-bf16", R"({"n_group": 1, "topk_group": 1, "norm_topk_prob": null})"},
      {"glm4-moe-bf16", R"({"n_group": 1, "topk_group": 1, "first_k_dense_replace": null})"},
      {"cohere2-bf16", R"({"sliding_window": null, "logit_scale": null, "layer_norm_eps": null})"},
      {"granitemoehybrid-bf16", R"({"attention_multiplier": null})"},
      {"mistral4-bf16", R"({"rope_parameters": null})"},
      {"exaone4-bf16", R"({"sliding_window": null})"},
      {"olmo3-bf16", R"({"sliding_window": null})"}};
  const TempDir folder;
  ThreadPool pool(2);
  int number = 0;
  for (const Case& c : kCases) {
    const fs::path source = folder / fmt::format("{}", ++number);
    fs::copy(testing::golden_folder(c.golden), source);
    auto config = json::parse_file((source / "config.json").string(), 1 << 20);
    ASSERT_TRUE(config.ok());
    const json::Value changes = json::parse(c.changes, "changes").value();
    for (const auto& [key, value] : changes.items()) {
      (*config)[key] = value;
      if (value.is_null()) config->erase(key);
    }
    std::ofstream(source / "config.json") << json::to_text(*config);
    const auto report = convert_model(source, source / "written.gguf", {.format = "gguf"}, pool);
    EXPECT_TRUE(report.ok()) << c.golden << " " << c.changes << ": " << report.error().message;
  }
}

/// Of models that see, pair i has the section i modulo 3: with fewer some would not turn.
TEST(GgufWrites, sections_that_have_all_pairs) {
  const TempDir folder;
  ThreadPool pool(2);
  const fs::path file = folder / "written.gguf";
  ASSERT_TRUE(
      convert_model(testing::golden_folder("qwen3_5-bf16"), file, {.format = "gguf"}, pool).ok());
  const auto model = GgufModel::open(file);
  ASSERT_TRUE(model.ok());
  const GgufValue* const sections = model->keys().find("qwen35.rope.dimension_sections");
  const GgufValue* const turning = model->keys().find("qwen35.rope.dimension_count");
  ASSERT_NE(sections, nullptr);
  ASSERT_NE(turning, nullptr);
  for (int64_t pair = 0; pair < *turning->integer(0) / 2; ++pair) {
    EXPECT_LT(pair, 3 * *sections->integer(static_cast<uint64_t>(pair % 3))) << pair;
  }
}

TEST(GgufWrites, integers_of_8_bits_as_Q8_0) {
  const TempDir folder;
  ThreadPool pool(2);
  const fs::path quantized = folder / "quantized";
  const auto rounded =
      quantize_model(testing::golden_folder("qwen3-bf16"), quantized,
                     {.format = "gptq", .group_size = 32, .bits = 8, .symmetric = true}, pool);
  ASSERT_TRUE(rounded.ok()) << rounded.error().message;
  const fs::path file = folder / "written.gguf";
  const auto report = convert_model(quantized, file, {.format = "gguf"}, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto model = GgufModel::open(file);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(find_ggml_type(model->find("blk.0.ffn_down.weight")->type)->name, "Q8_0");
  expect_same(quantized, file, pool);
}

// ---- the way back

class OfGguf : public ::testing::TestWithParam<const char*> {};

/// AWQ has no form for experts of gpt-oss, inputs that groups of 16 do not divide, and 164 outputs.
constexpr std::string_view kWithoutAwq[] = {"gpt-oss",       "qwen35",     "qwen2moe",
                                            "granitehybrid", "nemotron_h", "nemotron_h_moe"};

/// Rows that lie in another order in the file, too.
TEST_P(OfGguf, a_directory_of_floats_has_the_same_weights) {
  const TempDir folder;
  ThreadPool pool(2);
  const fs::path file = fs::path(kTestData) / "gguf" / GetParam() / "model.gguf";
  for (const char* const format : {"f32", "f16"}) {
    const fs::path floats = folder / format;
    const auto report = convert_model(file, floats, {.format = format, .allow_lossy = true}, pool);
    ASSERT_TRUE(report.ok()) << report.error().message;
    if (report->rounded_matrices == 0) expect_same(file, floats, pool);
  }
  const auto written =
      convert_model(folder / "f32", folder / "again.gguf", {.format = "gguf"}, pool);
  ASSERT_TRUE(written.ok()) << written.error().message;
  expect_same(file, folder / "again.gguf", pool);
  const fs::path quantized = folder / "quantized";
  const fs::path expected = folder / "expected";
  const QuantizeOptions options = {.format = "awq", .group_size = 16};
  const auto of_file = quantize_model(file, quantized, options, pool);
  const auto of_floats = quantize_model(folder / "f32", expected, options, pool);
  const bool has_form = std::ranges::find(kWithoutAwq, GetParam()) == std::ranges::end(kWithoutAwq);
  ASSERT_EQ(of_floats.ok(), has_form) << (has_form ? of_floats.error().message : "");
  ASSERT_EQ(of_file.ok(), has_form) << (has_form ? of_file.error().message : "");
  if (has_form) expect_same(quantized, expected, pool);
}

INSTANTIATE_TEST_SUITE_P(Architectures, OfGguf, ::testing::ValuesIn(testing::kGgufGoldens),
                         NamedByValue());

/// Both sides of kv_b of latent attention are one matrix in a directory, and are apart again in the
/// file that it becomes: byte for byte.
TEST(GgufOfLatents, has_sides_that_come_back) {
  const TempDir folder;
  ThreadPool pool(2);
  const fs::path file = fs::path(kTestData) / "gguf" / "deepseek2" / "model.gguf";
  const auto floats =
      convert_model(file, folder / "f16", {.format = "f16", .allow_lossy = true}, pool);
  ASSERT_TRUE(floats.ok()) << floats.error().message;
  const auto directory = TensorSource::open(folder / "f16");
  ASSERT_TRUE(directory.ok()) << directory.error().message;
  EXPECT_NE(directory->find("model.layers.0.self_attn.kv_b_proj.weight"), nullptr);
  ASSERT_TRUE(convert_model(folder / "f16", folder / "again.gguf", {.format = "gguf"}, pool).ok());
  const auto first = GgufModel::open(file);
  const auto second = GgufModel::open(folder / "again.gguf");
  ASSERT_TRUE(first.ok() && second.ok());
  for (const char* const name : {"blk.0.attn_k_b.weight", "blk.1.attn_v_b.weight"}) {
    ASSERT_NE(first->find(name), nullptr);
    ASSERT_NE(second->find(name), nullptr) << name;
    EXPECT_EQ(first->find(name)->shape, second->find(name)->shape);
    EXPECT_TRUE(std::ranges::equal(first->find(name)->bytes, second->find(name)->bytes)) << name;
  }
}

// ---- what GGUF does not hold

Error refusal(const fs::path& source, const TempDir& folder) {
  ThreadPool pool(1);
  const fs::path file = folder / "refused.gguf";
  const auto report = convert_model(source, file, {.format = "gguf"}, pool);
  EXPECT_FALSE(report.ok()) << source;
  EXPECT_FALSE(fs::exists(file));
  return report.ok() ? Error{} : report.error();
}

TEST(GgufRefuses, by_name_what_it_does_not_hold) {
  struct Case {
    const char* golden;
    const char* code;
    const char* words;
  };
  constexpr Case kCases[] = {
      {"autoawq", "export.format", "zero u8"},
      {"bitsandbytes-nf4-double", "export.format", "nf4"},
      {"modelopt-int4-awq", "recast.scale", "no exact form in f16"},
      {"qwen3-fp8-tensors", "export.format", "e4m3"},
      {"qwen3-sliding-4-51", "gguf.value", "windows"},
      {"qwen3-biases-bf16", "gguf.value", "attention_bias"},
      {"gemma2-bf16", "gguf.value", "its family"},
      {"qwen3-moe-bf16", "gguf.value", "its family"},
      {"mistral-bf16", "gguf.value", "windows"},
      {"gemma3-bf16", "gguf.value", "its family"},
      {"qwen3-next-bf16", "gguf.architecture", "qwen3_next"},
      {"smollm3-bf16", "gguf.value", "its family"},
      {"lfm2-moe-bf16", "gguf.value", "its family"},
      {"mixtral-bf16", "gguf.value", "windows"},
      {"nemotron-h-bf16", "gguf.value", "feed_forward_length"},
  };
  const TempDir folder;
  for (const Case& c : kCases) {
    const Error error = refusal(testing::golden_folder(c.golden), folder);
    EXPECT_EQ(error.code, c.code) << c.golden << ": " << error.message;
    EXPECT_NE(error.message.find(c.words), std::string::npos) << error.message;
  }
}

// ---- tokenizers

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class GgufTokenizers : public ::testing::TestWithParam<const char*> {};

/// Those of models, written as keys of GGUF and read again, give the same ids.
TEST_P(GgufTokenizers, that_are_written_give_the_same_ids) {
  const fs::path folder = fs::path(kTestData) / "tokenizers";
  const std::string text = text_of(folder / (GetParam() + std::string(".tokenizer.json")));
  const auto original = Tokenizer::load(folder / (GetParam() + std::string(".tokenizer.json")));
  ASSERT_TRUE(original.ok()) << original.error().message;
  GgufKeys keys;
  std::vector<std::string> lost;
  const Status written = add_gguf_tokenizer(
      {.tokenizer = text, .where = GetParam(), .num_ids = static_cast<uint64_t>(original->size())},
      keys, lost);
  ASSERT_TRUE(written.ok()) << written.error().message;
  const TempDir temporary;
  const auto weights = lay_out_gguf(keys, std::vector<WriteStep>{}, "model.gguf");
  ASSERT_TRUE(weights.ok());
  // A file without tensors is a vocabulary alone.
  std::string bytes = weights->files.front().head;
  const auto file = GgufFile::of(MappedFile::of(std::as_bytes(std::span(bytes)), "model.gguf"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto json = gguf_tokenizer_json(*file);
  ASSERT_TRUE(json.ok()) << json.error().message;
  const auto found = Tokenizer::load(temporary.write("tokenizer.json", *json));
  ASSERT_TRUE(found.ok()) << found.error().message;
  const auto cases =
      json::parse(text_of(folder / (GetParam() + std::string(".cases.json"))), "cases");
  ASSERT_TRUE(cases.ok());
  ASSERT_GE(cases->size(), 100U);
  for (const json::Value& item : *cases) {
    const std::string& said = item["text"].string();
    EXPECT_EQ(*found->encode_prompt(said, SpecialTokens::kRecognize),
              *original->encode_prompt(said, SpecialTokens::kRecognize))
        << said;
    const auto ids = *original->encode(said, SpecialTokens::kRecognize);
    EXPECT_EQ(*found->decode(ids, false), *original->decode(ids, false));
    EXPECT_EQ(*found->decode(ids, true), *original->decode(ids, true));
  }
}

/// Scores become merges, and merges scores that make the same ones.
TEST(GgufTokenizer, with_scores_comes_back) {
  GgufBytes made;
  made.text("tokenizer.ggml.model", "llama");
  made.texts("tokenizer.ggml.tokens",
             {"<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "a", "b", "ab", "\u2581a", "\u2581ab"});
  made.numbers("tokenizer.ggml.scores", 6, std::vector<float>{0, 0, 0, 0, -9, -9, -9, -2, -1, -3});
  made.numbers("tokenizer.ggml.token_type", 5, std::vector<int32_t>{2, 3, 3, 6, 1, 1, 1, 1, 1, 1});
  made.u32("tokenizer.ggml.bos_token_id", 1);
  made.u32("tokenizer.ggml.eos_token_id", 2);
  const std::string bytes = made.bytes();
  const auto file = GgufFile::of(MappedFile::of(std::as_bytes(std::span(bytes)), "a.gguf"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto json = gguf_tokenizer_json(*file);
  ASSERT_TRUE(json.ok()) << json.error().message;
  GgufKeys keys;
  std::vector<std::string> lost;
  const Status status =
      add_gguf_tokenizer({.tokenizer = *json, .where = "a", .num_ids = 10}, keys, lost);
  ASSERT_TRUE(status.ok()) << status.error().message;
  const auto weights = lay_out_gguf(keys, std::vector<WriteStep>{}, "b.gguf");
  const std::string again = weights->files.front().head;
  const auto second = GgufFile::of(MappedFile::of(std::as_bytes(std::span(again)), "b.gguf"));
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(*gguf_tokenizer_json(*second), *json);
}

/// Words of HF's own trainer say one pair for a token, and scores say all.
TEST(GgufTokenizer, refuses_merges_that_no_scores_say) {
  const fs::path folder = fs::path(kTestData) / "tokenizers";
  for (const char* const name : {"llama2", "gemma"}) {
    const std::string text = text_of(folder / (name + std::string(".tokenizer.json")));
    GgufKeys keys;
    std::vector<std::string> lost;
    const Status status =
        add_gguf_tokenizer({.tokenizer = text, .where = name, .num_ids = 2000}, keys, lost);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, "gguf.tokenizer");
    EXPECT_NE(status.error().message.find("other merges"), std::string::npos);
  }
}

/// What changes few texts may be left out, when that is asked for.
TEST(GgufTokenizer, loses_what_it_has_no_words_for_only_when_asked) {
  const std::string text =
      R"({"added_tokens":[{"id":2,"content":"<x>","rstrip":true,"special":true}],
    "normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
    "model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})";
  GgufTokenizerSource source = {.tokenizer = text, .where = "t", .num_ids = 3};
  GgufKeys keys;
  std::vector<std::string> lost;
  const Status status = add_gguf_tokenizer(source, keys, lost);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "convert.inexact");
  source.allow_lossy = true;
  GgufKeys others;
  EXPECT_TRUE(add_gguf_tokenizer(source, others, lost).ok());
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_NE(lost.front().find("rstrip"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Kinds, GgufTokenizers,
                         ::testing::Values("llama3", "qwen", "qwen35", "deepseek", "o200k"),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
