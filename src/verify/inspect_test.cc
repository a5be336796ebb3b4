#include "verify/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/thread_pool.h"
#include "checkpoints/containers/tensor_source.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_tensors.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

class Inspect : public testing::Test {
 protected:
  Inspection golden(const char* name) {
    auto found = inspect(fs::path(SUBBYTE_TEST_DATA) / "goldens" / name, pool_);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return std::move(found).value();
  }
  std::string code(const fs::path& path) {
    const auto found = inspect(path, pool_);
    return found.ok() ? "" : std::string(found.error().code);
  }
  static const InspectedWeight& weight(const Inspection& inspection, const std::string& name) {
    const auto at = std::ranges::find(inspection.weights, name, &InspectedWeight::name);
    EXPECT_NE(at, inspection.weights.end()) << name;
    return *at;
  }

  /// Every byte of the file belongs to a tensor.
  static void expect_all_bytes(const Inspection& inspection) {
    auto source = TensorSource::open(inspection.files.at(0));
    ASSERT_TRUE(source.ok());
    EXPECT_EQ(inspection.bytes, source->total_bytes());
    EXPECT_TRUE(std::ranges::is_sorted(inspection.weights, {}, &InspectedWeight::name));
  }

  TempDir dir_;
  ThreadPool pool_{1};
};

TEST_F(Inspect, finds_awq) {
  const Inspection found = golden("qwen3-awq");
  EXPECT_EQ(found.architecture, "qwen3");
  EXPECT_EQ(found.quantization, "awq");
  EXPECT_TRUE(found.problems.empty());
  const InspectedWeight& down = weight(found, "model.layers.1.mlp.down_proj");
  EXPECT_EQ(down.flavour, "awq");
  EXPECT_EQ(down.format, "u4 g128 scale f16 zero u8");
  EXPECT_EQ(down.shape, (std::vector<uint64_t>{256, 512}));
  EXPECT_EQ(down.parameters, 256u * 512);
  EXPECT_EQ(down.bytes, 256u * 512 / 2 + 4 * 256 / 2 + 4 * 256 * 2);
  EXPECT_DOUBLE_EQ(down.bits_per_weight(), 4 + 20.0 / 128);  // 4-bit zero, 16-bit scale
  EXPECT_EQ(weight(found, "lm_head").flavour, "dense");
  EXPECT_EQ(weight(found, "model.norm.weight").flavour, "tensor");
  EXPECT_EQ(weight(found, "model.norm.weight").format, "f16");
  // 14 matrices of 2 layers, embedding, head; 4 norms a layer and the last one.
  EXPECT_EQ(found.weights.size(), 14u + 2 + 9);
  const uint64_t layer = 256 * 256 * 2 + 128 * 256 * 2 + 512 * 256 * 3 + 2 * 256 + 2 * 64;
  EXPECT_EQ(found.parameters, 2 * layer + 2 * 512 * 256 + 256);
  expect_all_bytes(found);
}

/// As verify says it: without a tokenizer there is no text.
TEST_F(Inspect, says_whether_texts_can_be_generated) {
  EXPECT_FALSE(golden("qwen3-awq").is_run_here());
  const auto whole = inspect(fs::path(kTestData) / "gguf/qwen3/model.gguf", pool_);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_TRUE(whole->is_run_here());
}

/// Codes as the file has them, a byte for each small scale and offset, factors of F16 for 256 of
/// them.
TEST_F(Inspect, says_how_much_memory_blocks_of_ggml_take) {
  const auto found = inspect(fs::path(kTestData) / "gguf/types-k/model.gguf", pool_);
  ASSERT_TRUE(found.ok()) << found.error().message;
  const uint64_t of_256 = 96 * (128 + 16 + 4)    // Q4_K
                          + 32 * (192 + 16 + 2)  // Q6_K
                          + 16 * (160 + 16 + 4)  // Q5_K
                          + 16 * (96 + 16 + 2)   // Q3_K
                          + 32 * (64 + 32 + 4)   // Q2_K
                          + 32 * (128 + 8 + 2);  // IQ4_XS
  const uint64_t of_32 = 256 * (20 + 2)          // Q5_0
                         + 256 * (16 + 2);       // IQ4_NL
  const uint64_t norms = (3 * 256 + 2 * 16) * 4;
  EXPECT_EQ(found->gguf->memory_bytes, of_256 + of_32 + norms);
}

TEST_F(Inspect, finds_gptq_and_act_order) {
  const Inspection plain = golden("qwen3-gptq-v2");
  EXPECT_EQ(plain.quantization, "gptq");
  EXPECT_EQ(weight(plain, "model.layers.0.mlp.up_proj").format, "u4 g32 scale f16 zero u8");
  EXPECT_FALSE(weight(plain, "model.layers.0.mlp.up_proj").act_order);
  expect_all_bytes(plain);
  const Inspection shuffled = golden("qwen3-gptq-act-order");
  EXPECT_TRUE(weight(shuffled, "model.layers.0.mlp.up_proj").act_order);
  expect_all_bytes(shuffled);
}

TEST_F(Inspect, finds_mxfp4) {
  const Inspection found = golden("gpt-oss-mxfp4");
  EXPECT_EQ(found.architecture, "gpt_oss");
  EXPECT_EQ(found.quantization, "mxfp4");
  const InspectedWeight& experts = weight(found, "model.layers.3.mlp.experts.gate_up_proj");
  EXPECT_EQ(experts.flavour, "mxfp4");
  EXPECT_EQ(experts.format, "e2m1 g32 scale e8m0");
  EXPECT_EQ(experts.shape, (std::vector<uint64_t>{8, 256, 128}));
  EXPECT_DOUBLE_EQ(experts.bits_per_weight(), 4.25);
  expect_all_bytes(found);
}

TEST_F(Inspect, finds_unquantized_models) {
  const Inspection found = golden("qwen3-bf16");
  EXPECT_EQ(found.quantization, "none");
  EXPECT_EQ(weight(found, "model.layers.0.self_attn.q_proj").format, "bf16");
  EXPECT_EQ(weight(found, "model.layers.0.self_attn.q_proj").bits_per_weight(), 16);
  expect_all_bytes(found);
}

TEST_F(Inspect, lists_the_tensors_of_a_lone_file) {
  dir_.write("a.safetensors", tensor_file({filled<uint8_t>("x", DType::kF4, {4, 2}, 0x11),
                                           filled<float>("y.weight", DType::kF32, {3, 5}, 1)}));
  const auto found = inspect(dir_ / "a.safetensors", pool_);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->architecture, "");
  ASSERT_EQ(found->weights.size(), 2u);
  EXPECT_EQ(found->weights[0].flavour, "tensor");
  EXPECT_EQ(found->weights[0].format, "f4");
  EXPECT_EQ(found->weights[0].parameters, 8u);
  EXPECT_EQ(found->weights[0].bytes, 4u);
  EXPECT_EQ(found->weights[1].name, "y.weight");
  EXPECT_EQ(found->parameters, 23u);
}

TEST_F(Inspect, shows_what_it_does_not_understand) {
  dir_.write("config.json",
             R"({"model_type": "falcon", "quantization_config": {"quant_method": "exl3"}})");
  dir_.write("model.safetensors", tensor_file({filled<float>("a.weight", DType::kF32, {2, 2}, 1)}));
  const auto found = inspect(dir_.path(), pool_);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->architecture, "falcon");
  EXPECT_EQ(found->quantization, "unsupported");
  ASSERT_EQ(found->problems.size(), 2u);
  EXPECT_NE(found->problems[0].find("falcon"), std::string::npos);
  EXPECT_NE(found->problems[1].find("exl3"), std::string::npos);
  EXPECT_EQ(found->weights.at(0).name, "a.weight");
}

TEST_F(Inspect, refuses_what_cannot_be_read) {
  EXPECT_EQ(code(dir_ / "missing"), "file.not_found");
  EXPECT_EQ(code(dir_.path()), "index.no_checkpoint");
  dir_.write("config.json", "{");
  EXPECT_EQ(code(dir_.path()), "json.syntax");
  dir_.write("config.json", R"({"model_type": 3})");
  EXPECT_EQ(code(dir_.path()), "json.type");
}

TEST_F(Inspect, lists_weights_that_contradict_the_config_as_tensors) {
  dir_.write("config.json", R"({"model_type": "qwen3", "quantization_config":
      {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}})");
  const fs::path from = fs::path(SUBBYTE_TEST_DATA) / "goldens" / "qwen3-gptq-v1";
  fs::copy_file(from / "model.safetensors", dir_ / "model.safetensors");
  const auto found = inspect(dir_.path(), pool_);
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->problems.size(), 15u);  // the config, and 7 matrices in each of 2 layers
  EXPECT_NE(found->problems[0].find("hidden_size"), std::string::npos);
  for (std::size_t i = 1; i < found->problems.size(); ++i) {
    EXPECT_NE(found->problems[i].find("\"gptq\""), std::string::npos) << found->problems[i];
  }
  EXPECT_EQ(weight(*found, "model.layers.0.mlp.up_proj.qweight").flavour, "tensor");
  EXPECT_EQ(weight(*found, "lm_head").flavour, "dense");
  expect_all_bytes(*found);
}

}  // namespace
}  // namespace subbyte
