#include "transform/transform.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/goldens.h"
#include "support/json_of.h"
#include "support/model_configs.h"
#include "support/quantized_model.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using testing::Contents;
using testing::random_matrix;
using Verdict = ComparedWeight::Verdict;

const fs::path kGoldens = fs::path(SUBBYTE_TEST_DATA) / "goldens";
constexpr WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};

ModelDiff diff_of(const fs::path& a, const fs::path& b, int threads = 2) {
  ThreadPool pool(threads);
  auto diff = diff_models(a, b, pool);
  EXPECT_TRUE(diff.ok()) << diff.error().message;
  return diff.ok() ? std::move(diff).value() : ModelDiff();
}

const ComparedWeight* find(const ModelDiff& diff, const std::string& name) {
  const auto found = std::ranges::find(diff.weights, name, &ComparedWeight::name);
  return found == diff.weights.end() ? nullptr : &*found;
}

/// A directory with these tensors and no quantization.
void write_plain(const TempDir& folder, const std::string& directory,
                 const std::vector<TestTensor>& tensors) {
  folder.write(directory + "/config.json", R"({"model_type": "qwen3"})");
  ASSERT_TRUE(write_tensors(folder / (directory + "/model.safetensors"), tensors).ok());
}

TestTensor floats(const std::string& name, DType dtype, const Shape& shape, float value) {
  TestTensor tensor{name, dtype, shape, std::string(bytes_of(dtype, shape), '\0')};
  const FormatInfo& format = info(dtype == DType::kF32 ? Format::kF32 : Format::kF16);
  for (std::size_t i = 0; i < tensor.bytes.size() / (format.bits / 8); ++i) {
    const uint32_t code = format.encode(value, Rounding::kNearestEven);
    std::memcpy(tensor.bytes.data() + i * (format.bits / 8), &code, format.bits / 8);
  }
  return tensor;
}

TEST(DiffModels, a_wrapper_and_its_text_are_the_same) {
  const TempDir folder;
  const auto write = [&](const char* directory, const std::string& prefix, const std::string& head,
                         float norm) {
    write_plain(folder, directory,
                {floats(prefix + "layers.0.mlp.up_proj.weight", DType::kF16, {4, 8}, 2),
                 floats(prefix + "norm.weight", DType::kF16, {8}, norm),
                 floats(head + ".weight", DType::kF16, {16, 8}, 0.5)});
  };
  write("text", "model.", "lm_head", 1);
  write("wrapper", "model.language_model.", "lm_head", 1);
  write("older", "language_model.model.", "language_model.lm_head", 1);
  write("other", "model.language_model.", "lm_head", 3);
  for (const char* one : {"text", "wrapper", "older"}) {
    for (const char* two : {"text", "wrapper", "older"}) {
      const ModelDiff diff = diff_of(folder / one, folder / two);
      EXPECT_TRUE(diff.same_bytes()) << one << " " << two;
      EXPECT_EQ(diff.weights.size(), 3u);
    }
  }
  const ModelDiff diff = diff_of(folder / "text", folder / "other");
  const ComparedWeight* norm = find(diff, "model.norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->verdict, Verdict::kDifferent);
  EXPECT_EQ(diff.count(Verdict::kSameBytes), 2);
}

TEST(DiffModels, a_directory_is_itself) {
  for (const char* golden : testing::goldens(testing::kKind)) {
    const ModelDiff diff = diff_of(kGoldens / golden, kGoldens / golden);
    EXPECT_TRUE(diff.same_bytes()) << golden;
    EXPECT_GT(diff.weights.size(), 10u);
  }
}

TEST(DiffModels, the_two_versions_of_gptq_differ_in_nothing_but_their_label) {
  const TempDir folder;
  fs::copy(kGoldens / "qwen3-gptq-v2", folder / "source");
  std::string config = folder.read("source/config.json");
  const std::size_t label = config.find("gptq_v2");
  ASSERT_NE(label, std::string::npos);
  config.replace(label, 7, "gptq");
  const std::size_t symmetric = config.find("\"sym\": true");  // which would give it away
  if (symmetric != std::string::npos) config.replace(symmetric, 11, "\"sym\": false");
  folder.write("source/config.json", config);
  const ModelDiff diff = diff_of(kGoldens / "qwen3-gptq-v2", folder / "source");
  EXPECT_FALSE(diff.same_values());
  EXPECT_EQ(diff.count(Verdict::kDifferent), 14);
}

TEST(DiffModels, says_how_far_weights_are_apart) {
  const TempDir folder;
  write_plain(folder, "a",
              {floats("m.weight", DType::kF32, {2, 3}, 2), floats("v", DType::kF16, {4}, 1)});
  TestTensor changed = floats("m.weight", DType::kF32, {2, 3}, 2);
  changed.set(4, 2.5f);
  write_plain(folder, "b", {changed, floats("v", DType::kF32, {4}, 1)});
  const ModelDiff diff = diff_of(folder / "a", folder / "b");
  const ComparedWeight* weight = find(diff, "m");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->verdict, Verdict::kDifferent);
  EXPECT_EQ(weight->difference.unequal, 1);
  EXPECT_EQ(weight->difference.max, 0.5);
  EXPECT_DOUBLE_EQ(weight->difference.mean(), 0.5 / 6);
  EXPECT_NEAR(weight->difference.signal_to_noise_db(), 10 * std::log10(24 / 0.25), 1e-12);
  EXPECT_EQ(find(diff, "v")->verdict, Verdict::kSameValues);
  EXPECT_FALSE(diff.same_values());
}

TEST(DiffModels, lists_what_is_missing_surplus_or_of_another_shape) {
  const TempDir folder;
  write_plain(folder, "a",
              {floats("x.weight", DType::kF32, {2, 3}, 1), floats("only_a", DType::kF32, {2}, 1),
               floats("m.weight", DType::kF32, {2, 3}, 1), floats("s", DType::kF32, {2, 1, 2}, 1),
               filled("i", DType::kI32, {1}, 7), filled("j", DType::kI32, {1}, 7)});
  write_plain(folder, "b",
              {floats("x.weight", DType::kF32, {3, 2}, 1), floats("only_b", DType::kF32, {2}, 1),
               floats("n.weight", DType::kF32, {2, 3}, 1), floats("s", DType::kF32, {2, 2}, 1),
               filled("i", DType::kI32, {1}, 8), filled("j", DType::kU32, {1}, 7)});
  const ModelDiff diff = diff_of(folder / "a", folder / "b");
  const std::map<std::string, Verdict> expected = {
      {"x", Verdict::kShape},     {"only_a", Verdict::kOnlyFirst}, {"only_b", Verdict::kOnlySecond},
      {"m", Verdict::kOnlyFirst}, {"n", Verdict::kOnlySecond},     {"s", Verdict::kShape},
      {"i", Verdict::kDifferent}, {"j", Verdict::kShape}};
  EXPECT_EQ(diff.weights.size(), expected.size());
  for (const auto& [name, verdict] : expected) {
    const ComparedWeight* weight = find(diff, name);
    ASSERT_NE(weight, nullptr) << name;
    EXPECT_EQ(weight->verdict, verdict) << name;
  }
}

/// Three experts, as a stack or with names of their own, expert 1 perhaps with another code.
QuantizedModel experts(bool stack, bool changed) {
  QuantizedModel model = {stack ? "mxfp4" : "mxfp4_pack_quantized", {}};
  if (stack) model.modules.push_back({"model.layers.0.mlp.experts.up_proj", {}});
  for (int e = 0; e < 3; ++e) {
    auto matrix = random_matrix(kMxfp4, 32, 64, Contents::kReal, e + 1);
    if (changed && e == 1) matrix.codes->data()[5] ^= std::byte{0x01};
    if (!stack)
      model.modules.push_back({fmt::format("model.layers.0.mlp.experts.{}.up_proj", e), {}});
    model.modules.back().matrices.push_back(std::move(matrix));
  }
  return model;
}

TEST(DiffModels, experts_of_a_stack_are_those_with_names_of_their_own) {
  const TempDir folder;
  write_model(experts(true, false), folder, "stack");
  write_model(experts(false, false), folder, "single");
  write_model(experts(false, true), folder, "changed");
  EXPECT_TRUE(diff_of(folder / "stack", folder / "single").same_values());
  EXPECT_TRUE(diff_of(folder / "single", folder / "stack").same_values());
  for (const bool first : {true, false}) {
    const ModelDiff diff = first ? diff_of(folder / "stack", folder / "changed")
                                 : diff_of(folder / "changed", folder / "stack");
    EXPECT_EQ(diff.count(Verdict::kDifferent), 1);
    const ComparedWeight* weight = find(diff, "model.layers.0.mlp.experts.1.up_proj");
    ASSERT_NE(weight, nullptr);
    EXPECT_EQ(weight->verdict, Verdict::kDifferent);
    EXPECT_EQ(weight->difference.unequal, 1);
  }
}

/// A directory of Granite has a tensor for all experts, its GGUF file is read with a module for
/// each: what becomes of both is the same.
TEST(DiffModels, experts_of_granite_are_those_of_its_file) {
  for (const char* const golden : {"granitemoe-bf16", "granitemoehybrid-bf16"}) {
    const TempDir folder;
    ThreadPool pool(2);
    const fs::path file = folder / "written.gguf";
    ASSERT_TRUE(convert_model(kGoldens / golden, file, {.format = "gguf"}, pool).ok());
    for (const auto& [source, name] : {std::pair(kGoldens / golden, "stacks"), {file, "modules"}}) {
      const auto report = quantize_model(source, folder / name, {.format = "int8"}, pool);
      ASSERT_TRUE(report.ok()) << report.error().message;
    }
    const ModelDiff diff = diff_of(folder / "stacks", folder / "modules");
    EXPECT_TRUE(diff.same_values()) << golden;
    EXPECT_GT(diff.weights.size(), 30u);
  }
}

/// Written out or not.
TEST(DiffModels, a_tied_head_is_its_embedding) {
  const TempDir folder;
  const TestTensor table = floats("model.embed_tokens.weight", DType::kF16, {4, 8}, 1);
  TestTensor head = floats("lm_head.weight", DType::kF16, {4, 8}, 1);
  const auto write = [&](const char* name, bool tied, const std::vector<TestTensor>& tensors) {
    write_plain(folder, name, tensors);
    json::Value config = json_of(testing::kQwen3);
    config["tie_word_embeddings"] = tied;
    folder.write(std::string(name) + "/config.json", config.text());
  };
  write("tied", true, {table});
  write("written", true, {table, head});
  write("untied", false, {table, head});
  write("headless", false, {table});
  for (const char* other : {"tied", "written", "untied"}) {
    EXPECT_TRUE(diff_of(folder / "tied", folder / other).same_values()) << other;
    EXPECT_TRUE(diff_of(folder / other, folder / "tied").same_values()) << other;
  }
  EXPECT_FALSE(diff_of(folder / "headless", folder / "untied").same_values());
  head = floats("lm_head.weight", DType::kF16, {4, 8}, 2);
  write("other", false, {table, head});
  const ModelDiff diff = diff_of(folder / "tied", folder / "other");
  EXPECT_EQ(diff.count(Verdict::kDifferent), 1);
  EXPECT_EQ(find(diff, "lm_head")->verdict, Verdict::kDifferent);
}

TEST(DiffModels, the_same_sums_for_any_number_of_threads) {
  const ModelDiff one = diff_of(kGoldens / "qwen3-awq", kGoldens / "qwen3-bf16", 1);
  EXPECT_GE(one.count(Verdict::kDifferent), 14);  // the linear layers
  for (const int threads : {2, 8}) {
    const ModelDiff other = diff_of(kGoldens / "qwen3-awq", kGoldens / "qwen3-bf16", threads);
    ASSERT_EQ(one.weights.size(), other.weights.size());
    for (std::size_t i = 0; i < one.weights.size(); ++i) {
      EXPECT_EQ(one.weights[i].difference.noise, other.weights[i].difference.noise);
      EXPECT_EQ(one.weights[i].difference.sum, other.weights[i].difference.sum);
    }
  }
}

}  // namespace
}  // namespace subbyte
