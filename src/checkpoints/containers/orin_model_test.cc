// Offsets and sizes are worked out by hand for a model of hidden size 16, intermediate size 24, two
// layers, two heads of 8 of which one has keys and values, and a vocabulary of 10.

#include "checkpoints/containers/orin_model.h"

#include <gtest/gtest.h>

#include "checkpoints/config/model_files.h"
#include "checkpoints/flavours/integer_config.h"
#include "support/import_fixture.h"
#include "support/orin_bytes.h"
#include "support/orin_files.h"
#include "support/paths.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

Result<OrinModel> read(const std::string& text) {
  return read_orin_model(std::as_bytes(std::span(text)), text.size(), "m.bin");
}

/// The code of the refusal, "" when there is none.
std::string code(const OrinBytes& file) {
  const auto model = read(file.text());
  return model.ok() ? "" : std::string(model.error().code);
}

const TensorEntry& entry(const OrinModel& model, std::string_view name) {
  for (const TensorEntry& tensor : model.tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << name;
  return model.tensors.front();
}

void expect_entry(const OrinModel& model, std::string_view name, DType dtype, const Shape& shape,
                  uint64_t begin, uint64_t end) {
  const TensorEntry& tensor = entry(model, name);
  EXPECT_EQ(tensor.dtype, dtype) << name;
  EXPECT_EQ(tensor.shape, shape) << name;
  EXPECT_EQ(tensor.begin, begin) << name;
  EXPECT_EQ(tensor.end, end) << name;
}

TEST(OrinModel, ak48) {
  const auto model = read(OrinBytes().text());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->header, (OrinHeader{5, 16, 24, 2, 2, 1, 10, 32, false, 8, 8}));
  ASSERT_EQ(model->tensors.size(), 2u * 2 + 2 + 7 * 2 * 3 + 1 + 2 * 2);
  const std::string layer = "model.layers.1.";
  expect_entry(*model, layer + "input_layernorm.weight", DType::kF16, {16}, 32, 64);
  expect_entry(*model, layer + "post_attention_layernorm.weight", DType::kF16, {16}, 96, 128);
  expect_entry(*model, "model.norm.weight", DType::kF16, {16}, 128, 160);
  expect_entry(*model, "model.embed_tokens.weight", DType::kF16, {10, 16}, 160, 480);
  expect_entry(*model, "model.layers.0.self_attn.q_proj.qweight", DType::kI32, {16, 2}, 480, 608);
  expect_entry(*model, "model.layers.0.self_attn.q_proj.qzeros", DType::kI32, {2, 2}, 608, 624);
  expect_entry(*model, "model.layers.0.self_attn.q_proj.scales", DType::kF16, {2, 16}, 624, 688);
  expect_entry(*model, layer + "self_attn.k_proj.qweight", DType::kI32, {16, 1}, 1000, 1064);
  expect_entry(*model, layer + "self_attn.v_proj.scales", DType::kF16, {2, 8}, 1280, 1312);
  expect_entry(*model, layer + "self_attn.o_proj.qzeros", DType::kI32, {2, 2}, 1648, 1664);
  expect_entry(*model, "model.layers.0.mlp.gate_proj.qweight", DType::kI32, {16, 3}, 1728, 1920);
  expect_entry(*model, "model.layers.0.mlp.down_proj.qweight", DType::kI32, {24, 2}, 2352, 2544);
  expect_entry(*model, layer + "mlp.up_proj.scales", DType::kF16, {2, 24}, 3504, 3600);
  expect_entry(*model, "lm_head.weight", DType::kF16, {10, 16}, 3600, 3920);
  expect_entry(*model, layer + "self_attn.q_norm.weight", DType::kF16, {8}, 3936, 3952);
  expect_entry(*model, layer + "self_attn.k_norm.weight", DType::kF16, {8}, 3968, 3984);
}

TEST(OrinModel, head_size_is_its_own) {
  // q_proj has 2 * 24 outputs; k_proj and v_proj 24; o_proj 48 inputs.
  const auto model = read(
      OrinBytes{.rest = {24, 8}, .data = 3984 + 2 * 2 * (208 * 2 + 104 * 2) + 2 * 2 * 32}.text());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(entry(*model, "model.layers.0.self_attn.o_proj.qweight").shape, (Shape{48, 2}));
}

TEST(OrinModel, siblings) {
  const auto ak47 =
      read(OrinBytes{.magic = 0x616B3437, .version = 4, .rest = {8}, .data = 8544}.text());
  ASSERT_TRUE(ak47.ok()) << ak47.error().message;
  expect_entry(*ak47, "model.layers.0.self_attn.k_proj.weight", DType::kF16, {8, 16}, 1504, 1760);
  expect_entry(*ak47, "model.layers.1.self_attn.k_norm.weight", DType::kF16, {8}, 8528, 8544);

  OrinBytes ak42 = {.magic = 0x616B3432, .version = 3, .rest = {}, .data = 8608};
  const auto qwen2 = read(ak42.text());
  ASSERT_TRUE(qwen2.ok()) << qwen2.error().message;
  expect_entry(*qwen2, "lm_head.weight", DType::kF16, {10, 16}, 8160, 8480);
  expect_entry(*qwen2, "model.layers.1.self_attn.v_proj.bias", DType::kF16, {8}, 8592, 8608);

  ak42.version = 1;
  ak42.data = 16960;
  const auto f32 = read(ak42.text());
  ASSERT_TRUE(f32.ok()) << f32.error().message;
  expect_entry(*f32, "lm_head.weight", DType::kF32, {10, 16}, 16320, 16960);

  ak42.version = 2;
  ak42.rest = {8};
  ak42.data = 6560;
  const auto q8 = read(ak42.text());
  ASSERT_TRUE(q8.ok()) << q8.error().message;
  expect_entry(*q8, "model.norm.weight", DType::kF32, {16}, 256, 320);
  expect_entry(*q8, "model.embed_tokens.weight", DType::kI8, {10, 16}, 320, 480);
  expect_entry(*q8, "model.embed_tokens.weight.scales", DType::kF32, {10, 2}, 480, 560);
  EXPECT_EQ(q8->tensors.back().end, 6560u);

  ak42.tied = 1;
  ak42.data = 6560 - 240;
  EXPECT_EQ(code(ak42), "");
}

TEST(OrinModel, files_of_another_length_are_refused) {
  const std::string whole = OrinBytes().text();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto model = read(whole.substr(0, size));
    ASSERT_FALSE(model.ok()) << size;
    EXPECT_EQ(model.error().code, size < 4     ? "orin.magic"
                                  : size < 256 ? "orin.too_small"
                                               : "orin.truncated")
        << size;
  }
  EXPECT_EQ(read(whole + '\0').error().code, "orin.trailing_bytes");
}

TEST(OrinModel, every_field_is_checked) {
  EXPECT_EQ(code({.magic = 0x616B3439}), "orin.magic");
  EXPECT_EQ(code({.magic = 0x38346B61}), "orin.magic");  // "ak48" as text
  EXPECT_EQ(code({.version = 4}), "orin.version");
  EXPECT_EQ(code({.version = -5}), "orin.version");
  EXPECT_EQ(code({.magic = 0x616B3437, .version = 5}), "orin.version");
  EXPECT_EQ(code({.magic = 0x616B3432, .version = 0}), "orin.version");
  EXPECT_EQ(code({.tied = 2}), "orin.range");
  EXPECT_EQ(code({.hidden = 12}), "orin.shape");  // o_proj has 12 outputs, which fill no words
  EXPECT_EQ(code({.rest = {8, 5}}), "orin.shape");
  EXPECT_EQ(code({.kv_heads = 3}), "orin.range");
  EXPECT_EQ(code({.heads = 3, .kv_heads = 2}), "orin.range");
  EXPECT_EQ(code({.rest = {8, 8, 1}}), "orin.padding");
  std::string dirty = OrinBytes().text();
  dirty[255] = '\1';
  EXPECT_EQ(read(dirty).error().code, "orin.padding");
  for (const int32_t wrong : {0, -1, INT32_MIN, INT32_MAX}) {
    SCOPED_TRACE(wrong);
    EXPECT_EQ(code({.hidden = wrong}), "orin.range");
    EXPECT_EQ(code({.intermediate = wrong}), "orin.range");
    EXPECT_EQ(code({.layers = wrong}), "orin.range");
    EXPECT_EQ(code({.heads = wrong}), "orin.range");
    EXPECT_EQ(code({.kv_heads = wrong}), "orin.range");
    EXPECT_EQ(code({.vocabulary = wrong}), "orin.range");
    EXPECT_EQ(code({.positions = wrong}), "orin.range");
    EXPECT_EQ(code({.rest = {wrong, 8}}), "orin.range");
    EXPECT_EQ(code({.rest = {8, wrong}}), "orin.range");
  }
}

TEST(OrinModel, sizes_that_wrap_are_refused) {
  // 1024 layers of four times 2^52 weights, each with a scale of two bytes: beyond 2^64 bytes.
  OrinBytes huge = {.hidden = 1 << 20,
                    .intermediate = 1 << 20,
                    .layers = 1024,
                    .heads = 4096,
                    .kv_heads = 4096,
                    .vocabulary = 1 << 24,
                    .rest = {1 << 20, 1}};
  EXPECT_EQ(code(huge), "orin.range");
  huge.magic = 0x616B3437;
  huge.version = 4;
  huge.rest = {1 << 20};
  EXPECT_EQ(code(huge), "orin.range");
  huge.layers = 1;  // below 2^64, and not there
  EXPECT_EQ(code(huge), "orin.truncated");
  // Blocks of 7 fill none of the weights.
  EXPECT_EQ(code({.magic = 0x616B3432, .version = 2, .rest = {7}}), "orin.shape");
}

TEST(OrinModel, config_says_what_the_header_says) {
  const OrinHeader header = {5, 4096, 12288, 36, 32, 8, 151936, 40960, true, 128, 64};
  const json::Value config = orin_config(header);
  EXPECT_EQ(config["model_type"], "ak48");
  EXPECT_EQ(config["hidden_size"], 4096);
  EXPECT_EQ(config["intermediate_size"], 12288);
  EXPECT_EQ(config["num_hidden_layers"], 36);
  EXPECT_EQ(config["num_attention_heads"], 32);
  EXPECT_EQ(config["num_key_value_heads"], 8);
  EXPECT_EQ(config["head_dim"], 128);
  EXPECT_EQ(config["vocab_size"], 151936);
  EXPECT_EQ(config["max_position_embeddings"], 40960);
  EXPECT_EQ(config["tie_word_embeddings"], true);
  EXPECT_EQ(config["rope_theta"], 1e6);
  EXPECT_EQ(config["rms_norm_eps"], 1e-6);
  EXPECT_EQ(config["eos_token_id"], json::Value({151645, 151643}));
  EXPECT_EQ(config["quantization_config"]["group_size"], 64);
  OrinHeader longer = header;
  longer.max_positions = 262144;
  EXPECT_TRUE(orin_config(longer)["rope_theta"].is_string());
  const auto back = orin_header(*json::Object::of(config, "config.json"));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, header);
}

TEST(OrinModel, checkpoints_that_the_file_cannot_describe_are_refused) {
  const json::Value config = orin_config({5, 4096, 12288, 36, 32, 8, 151936, 40960, true, 128, 64});
  const auto code_with = [&](const char* key, const json::Value& value) -> std::string {
    json::Value changed = config;
    changed[key] = value;
    const auto header = orin_header(*json::Object::of(changed, "config.json"));
    return header.ok() ? "" : std::string(header.error().code);
  };
  EXPECT_EQ(code_with("rope_theta", 1e6), "");
  EXPECT_EQ(code_with("rope_theta", 5e6), "export.format");
  EXPECT_EQ(code_with("rope_theta", nullptr), "export.format");
  EXPECT_EQ(code_with("rope_parameters", {{"rope_theta", 5e6}}), "export.format");
  EXPECT_EQ(code_with("rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "yarn"}}),
            "export.format");
  EXPECT_EQ(code_with("rope_scaling", {{"type", "yarn"}}), "export.format");
  EXPECT_EQ(code_with("rms_norm_eps", 1e-5), "export.format");
  EXPECT_EQ(code_with("use_sliding_window", true), "export.format");
  EXPECT_EQ(code_with("quantization_config", nullptr), "export.format");
  EXPECT_EQ(code_with("quantization_config", {{"quant_method", "gptq"}, {"group_size", 64}}),
            "export.format");
  EXPECT_EQ(code_with("max_position_embeddings", 262144), "json.range");
}

class OrinGolden : public testing::Test {
 protected:
  void SetUp() override {
    auto source = TensorSource::open(golden_);
    ASSERT_TRUE(source.ok()) << source.error().message;
    source_ = std::move(source).value();
    auto config = ModelFiles(golden_).config();
    ASSERT_TRUE(config.ok()) << config.error().message;
    auto header = orin_header(*config->object());
    ASSERT_TRUE(header.ok()) << header.error().message;
    header_ = *header;
  }

  std::string write_code(const OrinHeader& header) {
    const Status written = write_orin_checkpoint(dir_.path(), header, *source_);
    return written.ok() ? "" : std::string(written.error().code);
  }

  const fs::path golden_ = fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-awq";
  TempDir dir_;
  std::optional<TensorSource> source_;
  OrinHeader header_;
};

TEST_F(OrinGolden, a_checkpoint_comes_back_byte_for_byte) {
  const fs::path path = dir_ / kOrinFileName;
  const Status written = write_orin_checkpoint(dir_.path(), header_, *source_);
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_TRUE(is_orin_model(path));
  const auto back = TensorSource::open(path);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->files(), std::vector{path});
  ASSERT_EQ(back->tensors().size(), source_->tensors().size());
  for (const auto& [name, tensor] : source_->tensors()) {
    const FileTensor* found = back->find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->dtype, tensor.dtype) << name;
    EXPECT_EQ(found->shape, tensor.shape) << name;
    EXPECT_TRUE(std::ranges::equal(found->bytes, tensor.bytes)) << name;
  }
  const auto config = ModelFiles(path).config();
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(*orin_header(*config->object()), header_);
  EXPECT_EQ(model_directory(path), dir_.path());
}

TEST_F(OrinGolden, matrices_are_those_of_the_checkpoint) {
  const fs::path path = dir_ / kOrinFileName;
  ASSERT_TRUE(write_orin_checkpoint(dir_.path(), header_, *source_).ok());
  const auto back = TensorSource::open(path);
  ASSERT_TRUE(back.ok()) << back.error().message;
  ThreadPool pool(2);
  const auto state = std::make_shared<AwqState>();
  state->sizes = {{4}, {header_.group_size}};
  const QuantizationConfig config = {.flavour = &awq_flavour, .state = state};
  for (const char* module : {"model.layers.0.self_attn.k_proj", "model.layers.1.mlp.down_proj"}) {
    const auto expected = import_matrix({*source_, config, pool}, module);
    const auto found = import_matrix({*back, config, pool}, module);
    ASSERT_TRUE(expected.ok() && found.ok()) << module;
    EXPECT_TRUE(std::ranges::equal(found->view.codes, expected->view.codes));
    EXPECT_TRUE(std::ranges::equal(found->view.scales, expected->view.scales));
    EXPECT_TRUE(std::ranges::equal(found->view.zeros, expected->view.zeros));
  }
}

TEST_F(OrinGolden, what_is_not_as_the_header_says_is_not_written) {
  EXPECT_EQ(write_code(header_), "");
  OrinHeader other = header_;
  other.num_layers = 3;
  EXPECT_EQ(write_code(other), "import.missing");
  other.num_layers = 1;
  EXPECT_EQ(write_code(other), "export.surplus");
  other = header_;
  other.tied = true;
  EXPECT_EQ(write_code(other), "export.surplus");
  other = header_;
  other.vocab_size += 1;
  EXPECT_EQ(write_code(other), "import.shape");
}

using Q8Import = ImportFixture;

TEST_F(Q8Import, codes_are_signed_and_blocks_are_of_a_row) {
  Random random(1);
  const TestTensor weight = random_bits("m.weight", DType::kI8, {6, 24}, random);
  const TestTensor scales = random_floats("m.weight.scales", DType::kF32, {6, 3}, random);
  for (const bool misaligned : {false, true}) {
    misaligned ? open_misaligned({weight, scales}, 1) : open({weight, scales});
    expect_weights(6, 24, [&](int64_t n, int64_t k) {
      return static_cast<double>(weight.at<int8_t>(n * 24 + k)) * scales.at<float>(n * 3 + k / 8);
    });
    EXPECT_EQ(matrix_.view.format, (WeightFormat{Format::kI8, Format::kF32, Zero::kNone, 8}));
  }
}

TEST_F(Q8Import, other_tensors_are_refused) {
  Random random(1);
  const TestTensor weight = random_bits("m.weight", DType::kI8, {6, 24}, random);
  const auto scales = [&](const Shape& shape, DType dtype = DType::kF32) {
    return random_floats("m.weight.scales", dtype, shape, random);
  };
  EXPECT_EQ(code_of({weight, scales({6, 3})}), "");
  EXPECT_EQ(code_of({weight, scales({6, 1})}), "");
  EXPECT_EQ(code_of({weight, scales({9})}), "import.shape");  // blocks of 16, which cross rows
  EXPECT_EQ(code_of({weight, scales({6, 5})}), "import.shape");
  EXPECT_EQ(code_of({weight, scales({5, 3})}), "import.shape");
  EXPECT_EQ(code_of({weight, scales({6, 0})}), "import.shape");
  EXPECT_EQ(code_of({weight, scales({6, 3}, DType::kF16)}), "import.dtype");
  EXPECT_EQ(code_of({random_bits("m.weight", DType::kU8, {6, 24}, random), scales({6, 3})}),
            "import.dtype");
}

}  // namespace
}  // namespace subbyte
