// OpenAI's own directory of gpt-oss, made of the golden checkpoint: other names, queries, keys and
// values in one tensor, another config.json. It is the same model, bit by bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/thread_pool.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/containers/tensor_source.h"
#include "models/model.h"
#include "support/json_of.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "support/test_tensors.h"
#include "transform/transform.h"
#include "verify/inspect.h"
#include "verify/verify.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(SUBBYTE_TEST_DATA) / "goldens/gpt-oss-mxfp4";

constexpr const char* kConfig = R"({
  "num_hidden_layers": 4, "num_experts": 8, "experts_per_token": 4, "vocab_size": 512,
  "hidden_size": 128, "intermediate_size": 128, "swiglu_limit": 7.0, "head_dim": 32,
  "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 8,
  "initial_context_length": 4096, "rope_theta": 150000, "rope_scaling_factor": 32.0,
  "rope_ntk_alpha": 1, "rope_ntk_beta": 32})";

TestTensor copy_of(const TensorSource& source, const std::string& from, const std::string& name) {
  const FileTensor* tensor = source.find(from);
  if (tensor == nullptr) {
    ADD_FAILURE() << from;
    return {name, DType::kU8, {}, {}};
  }
  const char* const bytes = reinterpret_cast<const char*>(tensor->bytes.data());
  return {name, tensor->dtype, tensor->shape, std::string(bytes, tensor->bytes.size())};
}

/// The same numbers as F32, which OpenAI's norms have.
TestTensor widened(TestTensor bf16) {
  EXPECT_EQ(bf16.dtype, DType::kBF16);
  TestTensor f32 = {bf16.name, DType::kF32, bf16.shape, std::string(bf16.bytes.size() * 2, '\0')};
  for (std::size_t i = 0; i < bf16.bytes.size() / 2; ++i) {
    f32.set(i, static_cast<uint32_t>(bf16.at<uint16_t>(i)) << 16);
  }
  return f32;
}

TestTensor stacked(TestTensor first, const TestTensor& second, const TestTensor& third) {
  first.bytes += second.bytes + third.bytes;
  first.shape[0] += second.shape[0] + third.shape[0];
  return first;
}

void add_layer(std::vector<TestTensor>& to, const TensorSource& source, int layer) {
  const std::string theirs = "model.layers." + std::to_string(layer) + ".";
  const std::string ours = "block." + std::to_string(layer) + ".";
  const auto copy = [&](const std::string& from, const std::string& name) {
    return copy_of(source, theirs + from, ours + name);
  };
  to.push_back(widened(copy("input_layernorm.weight", "attn.norm.scale")));
  to.push_back(widened(copy("post_attention_layernorm.weight", "mlp.norm.scale")));
  to.push_back(copy("self_attn.sinks", "attn.sinks"));
  for (const std::string part : {"weight", "bias"}) {
    const std::string qkv = "attn.qkv." + part;
    to.push_back(stacked(copy("self_attn.q_proj." + part, qkv),
                         copy("self_attn.k_proj." + part, qkv),
                         copy("self_attn.v_proj." + part, qkv)));
    to.push_back(copy("self_attn.o_proj." + part, "attn.out." + part));
    to.push_back(copy("mlp.router." + part, "mlp.gate." + part));
  }
  const std::pair<std::string, std::string> products[] = {{"gate_up_proj", "mlp1"},
                                                          {"down_proj", "mlp2"}};
  for (const auto& [from, name] : products) {
    to.push_back(copy("mlp.experts." + from + "_blocks", "mlp." + name + "_weight.blocks"));
    to.push_back(copy("mlp.experts." + from + "_scales", "mlp." + name + "_weight.scales"));
    to.push_back(copy("mlp.experts." + from + "_bias", "mlp." + name + "_bias"));
  }
}

std::vector<TestTensor> openai_tensors() {
  const auto source = TensorSource::open(kGolden);
  EXPECT_TRUE(source.ok());
  std::vector<TestTensor> tensors = {
      copy_of(*source, "model.embed_tokens.weight", "embedding.weight"),
      copy_of(*source, "lm_head.weight", "unembedding.weight"),
      widened(copy_of(*source, "model.norm.weight", "norm.scale"))};
  for (int layer = 0; layer < 4; ++layer) add_layer(tensors, *source, layer);
  return tensors;
}

class OpenaiDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_.write("original/config.json", kConfig);
    dir_.write("original/dtypes.json", "{}");
    write(openai_tensors());
  }

  void write(const std::vector<TestTensor>& tensors) const {
    ASSERT_TRUE(write_tensors(original_ / "model.safetensors", tensors).ok());
  }

  static std::vector<float> logits(const fs::path& path) {
    const auto backend = testing::make_test_backend(2);
    const auto model = load_model(path, *backend);
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (!model.ok()) return {};
    const std::vector<int32_t> tokens = {3, 141, 59, 265, 358, 97, 93, 238, 46, 264, 338, 327};
    return testing::logits_of(**model, *backend, tokens);
  }

  /// The error of loading what `change` makes of the tensors.
  template <typename Change>
  std::string code_after(const Change& change) const {
    std::vector<TestTensor> tensors = openai_tensors();
    for (TestTensor& tensor : tensors) change(tensor);
    write(tensors);
    const auto backend = testing::make_test_backend(2);
    const auto model = load_model(original_, *backend);
    return model.ok() ? "ok" : std::string(model.error().code);
  }

  const TempDir dir_;
  const fs::path original_ = dir_ / "original";
};

TEST_F(OpenaiDirectory, gives_the_logits_of_hugging_faces) {
  const auto expected = logits(kGolden);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(logits(original_), expected);
}

TEST_F(OpenaiDirectory, gives_them_from_shards) {
  const auto expected = logits(kGolden);
  const std::vector<TestTensor> all = openai_tensors();
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  const std::vector<TestTensor> shards[] = {{all.begin(), middle}, {middle, all.end()}};
  json::Value index = {{"weight_map", json::Value::object()}};
  for (int i = 0; i < 2; ++i) {
    const std::string name = "model--0000" + std::to_string(i + 1) + "-of-00002.safetensors";
    ASSERT_TRUE(write_tensors(original_ / name, shards[i]).ok());
    for (const TestTensor& tensor : shards[i]) index["weight_map"][tensor.name] = name;
  }
  fs::remove(original_ / "model.safetensors");
  dir_.write("original/model.safetensors.index.json", index.text());
  EXPECT_EQ(logits(original_), expected);
}

TEST_F(OpenaiDirectory, is_inspected_and_verified) {
  const auto backend = testing::make_test_backend(2);
  ThreadPool pool(2);
  const auto inspection = inspect(original_, pool, backend.get());
  ASSERT_TRUE(inspection.ok()) << inspection.error().message;
  EXPECT_EQ(inspection->architecture, "gpt_oss");
  EXPECT_EQ(inspection->quantization, "mxfp4");
  EXPECT_EQ(inspection->problems, std::vector<std::string>());
  EXPECT_EQ(inspection->parameters, inspect(kGolden, pool)->parameters);
  const auto report = verify(original_, {.checksums = true}, pool, backend.get());
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const Finding& finding : report->findings) {
    EXPECT_NE(finding.severity, Severity::kError) << finding.where << ": " << to_string(finding);
  }
}

TEST_F(OpenaiDirectory, is_converted_to_hugging_faces) {
  dir_.write("tokenizer.json", "{}");
  ThreadPool pool(2);
  const auto report = convert_model(original_, dir_ / "new", {.format = "mxfp4"}, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(dir_.read("new/tokenizer.json"), "{}");
  const auto found = TensorSource::open(dir_ / "new");
  const auto expected = TensorSource::open(kGolden);
  ASSERT_TRUE(found.ok() && expected.ok());
  ASSERT_EQ(found->tensors().size(), expected->tensors().size());
  for (const auto& [name, tensor] : expected->tensors()) {
    ASSERT_NE(found->find(name), nullptr) << name;
    const FileTensor& written = *found->find(name);
    if (written.dtype != tensor.dtype) continue;  // norms, which stay F32
    EXPECT_TRUE(std::ranges::equal(written.bytes, tensor.bytes)) << name;
  }
  EXPECT_EQ(logits(dir_ / "new"), logits(kGolden));
}

TEST_F(OpenaiDirectory, has_its_tokenizer_in_the_directory_above) {
  EXPECT_EQ(model_directory(original_), original_);
  dir_.write("tokenizer.json", "{}");
  EXPECT_EQ(model_directory(original_), dir_.path());
  EXPECT_EQ(model_directory(original_ / ""), dir_.path());
  EXPECT_TRUE(fs::equivalent(model_directory(original_ / "."), dir_.path()));
  dir_.write("generation_config.json", R"({"eos_token_id": [7, 9]})");
  EXPECT_EQ(read_model_config(original_)->eos_tokens, (std::vector<int32_t>{7, 9}));
  dir_.write("original/tokenizer.json", "{}");
  EXPECT_EQ(model_directory(original_), original_);
  dir_.write("other/config.json", R"({"model_type": "gpt_oss"})");
  EXPECT_EQ(model_directory(dir_ / "other"), dir_ / "other");
}

TEST_F(OpenaiDirectory, says_what_is_wrong_with_its_tensors) {
  EXPECT_EQ(code_after([](TestTensor&) {}), "ok");
  EXPECT_EQ(code_after([](TestTensor& tensor) {
              if (tensor.name == "block.2.attn.out.weight") tensor.name = "block.2.attn.away";
            }),
            "import.missing");
  EXPECT_EQ(code_after([](TestTensor& tensor) {
              if (tensor.name != "block.1.attn.qkv.bias") return;
              tensor.shape[0] -= 1;
              tensor.bytes.resize(tensor.bytes.size() - 2);
            }),
            "import.shape");
  EXPECT_EQ(code_after([](TestTensor& tensor) {
              if (tensor.name == "block.3.attn.sinks") tensor.name = "model.layers.3.surplus";
            }),
            "import.missing");
  EXPECT_EQ(code_after([](TestTensor& tensor) {
              if (tensor.name == "block.3.attn.sinks") tensor.name = "lm_head.weight";
            }),
            "index.tensor_twice");
}

TEST_F(OpenaiDirectory, says_what_is_wrong_with_its_config) {
  const auto code_of = [&](const std::string& key, const json::Value& value) {
    json::Value config = json_of(kConfig);
    config[key] = value;
    dir_.write("original/config.json", config.text());
    const auto found = read_model_config(original_);
    return found.ok() ? "ok" : std::string(found.error().code);
  };
  EXPECT_EQ(code_of("num_experts", 8), "ok");
  for (const char* key : {"num_experts", "rope_scaling_factor", "initial_context_length",
                          "rope_ntk_beta", "num_hidden_layers"}) {
    EXPECT_EQ(code_of(key, "32"), "json.type") << key;
    EXPECT_EQ(code_of(key, 1e300).substr(0, 5), "json.") << key;
  }
}

}  // namespace
}  // namespace subbyte
