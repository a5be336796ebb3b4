// quantize with matrices of odd sizes: one or seven outputs, inputs that no group divides, and a
// vocabulary that is a prime.

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "app/process.h"
#include "support/temp_dir.h"
#include "support/test_tensors.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

constexpr uint64_t kHidden = 64;
constexpr uint64_t kHead = 32;
constexpr uint64_t kVocab = 37;

class QuantizeOddSizes : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// A Qwen3 of one layer whose gate and up have `inner` outputs, and down so many inputs.
  std::string make_source(uint64_t inner) {
    const std::string name = path("source-" + std::to_string(inner));
    fs::create_directory(name);
    folder_.write(fs::path(name).filename().string() + "/config.json",
                  R"({"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 1,
                      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
                      "vocab_size": 37, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
                      "rope_theta": 10000, "tie_word_embeddings": false, "hidden_act": "silu",
                      "intermediate_size": )" +
                      std::to_string(inner) + "}");
    Random random(inner);
    const std::string layer = "model.layers.0.";
    const std::vector<std::pair<std::string, Shape>> shapes = {
        {"model.embed_tokens", {kVocab, kHidden}},
        {"lm_head", {kVocab, kHidden}},
        {"model.norm", {kHidden}},
        {layer + "input_layernorm", {kHidden}},
        {layer + "post_attention_layernorm", {kHidden}},
        {layer + "self_attn.q_proj", {2 * kHead, kHidden}},
        {layer + "self_attn.k_proj", {kHead, kHidden}},
        {layer + "self_attn.v_proj", {kHead, kHidden}},
        {layer + "self_attn.o_proj", {kHidden, 2 * kHead}},
        {layer + "self_attn.q_norm", {kHead}},
        {layer + "self_attn.k_norm", {kHead}},
        {layer + "mlp.gate_proj", {inner, kHidden}},
        {layer + "mlp.up_proj", {inner, kHidden}},
        {layer + "mlp.down_proj", {kHidden, inner}}};
    std::vector<TestTensor> tensors;
    tensors.reserve(shapes.size());
    for (const auto& [module, shape] : shapes) {
      tensors.push_back(random_floats(module + ".weight", DType::kBF16, shape, random));
    }
    EXPECT_TRUE(write_tensors(fs::path(name) / "model.safetensors", tensors).ok());
    return name;
  }

  ProcessResult quantize(const std::string& source, const std::string& format, Arguments more) {
    fs::remove_all(path("made"));
    Arguments arguments = {"quantize", source, path("made"), "--format", format, "--allow-lossy"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }

  void expect_sound() {
    const ProcessResult verified = run_program({"verify", path("made")});  // without a tokenizer
    EXPECT_NE(verified.out.find(": 0 errors"), std::string::npos) << verified.out << verified.err;
    const ProcessResult run =
        run_program({"logits", path("made"), "--ids", "1,2,36", "-o", path("logits"), "--force"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    fs::remove_all(path("floats"));
    const ProcessResult converted =
        run_program({"convert", path("made"), path("floats"), "--to", "f32", "--allow-lossy"});
    EXPECT_EQ(converted.exit_code, 0) << converted.err;
  }

  TempDir folder_;
};

/// Whole rows have no group that 7 does not fill: what was written did not run.
TEST_F(QuantizeOddSizes, inputs_that_are_no_multiple_of_8_are_refused) {
  const std::string source = make_source(7);
  for (const std::string format : {"int8", "fp8", "float_quantized", "awq", "kbit4", "nf4"}) {
    const ProcessResult refused = quantize(source, format, {});
    EXPECT_EQ(refused.exit_code, 2) << format;
    EXPECT_NE(refused.err.find("[quantize.group_size]"), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find("7 inputs are not a multiple of 8"), std::string::npos);
    EXPECT_NE(refused.err.find("--ignore"), std::string::npos) << refused.err;
    EXPECT_FALSE(fs::exists(path("made")));
  }
}

TEST_F(QuantizeOddSizes, one_output_and_seven) {
  for (const uint64_t inner : {uint64_t{1}, uint64_t{7}}) {
    const std::string source = make_source(inner);
    for (const std::string format : {"compressed-tensors", "int8", "fp8", "mxfp4", "nvfp4",
                                     "modelopt_nvfp4", "nf4", "kbit2", "kbit5", "vq2", "vq4"}) {
      SCOPED_TRACE(format + ", " + std::to_string(inner));
      const ProcessResult made = quantize(source, format, {"--ignore", "mlp.down_proj"});
      ASSERT_EQ(made.exit_code, 0) << made.err;
      expect_sound();
    }
    // Their words hold codes of several outputs.
    for (const std::string format : {"awq", "gptq"}) {
      const ProcessResult refused = quantize(source, format, {"--ignore", "mlp.down_proj"});
      EXPECT_EQ(refused.exit_code, 1);
      EXPECT_NE(refused.err.find("[export.shape]"), std::string::npos) << refused.err;
      EXPECT_NE(refused.err.find("gate_proj"), std::string::npos) << refused.err;
      EXPECT_NE(refused.err.find("--ignore"), std::string::npos) << refused.err;
    }
  }
}

TEST_F(QuantizeOddSizes, groups_are_halved_until_they_divide_all_inputs) {
  const std::string source = make_source(40);
  const ProcessResult made = quantize(source, "compressed-tensors", {"--head"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("in groups of 8"), std::string::npos) << made.err;
  expect_sound();
  ASSERT_EQ(quantize(source, "gptq", {"--group-size", "0"}).exit_code, 0);
  expect_sound();
  const ProcessResult refused = quantize(source, "gptq", {});
  EXPECT_NE(refused.err.find("--group-size 0"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace subbyte
