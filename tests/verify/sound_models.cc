#include "verify/sound_models.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/thread_pool.h"
#include "formats/format.h"
#include "models/checkpoint_names.h"
#include "models/model_family.h"

namespace subbyte::conformance {
namespace {

constexpr const char* kTokenizer = "tokenizer.json";

/// F16 and BF16 have their sign in the same place.
void make_positive(TestTensor& scales) {
  for (std::size_t i = 0; i < scales.bytes.size() / 2; ++i) {
    scales.set(i, static_cast<uint16_t>(scales.at<uint16_t>(i) & 0x7FFF));
  }
}

TinyModel sound(TinyModel model) {
  Random random(9);
  model.config["vocab_size"] = kTokens;
  for (TestTensor& tensor : model.tensors) {
    if (tensor.name.ends_with(".scales")) make_positive(tensor);
    if (tensor.shape != Shape{kVocabulary, kHidden}) continue;
    tensor = random_floats(tensor.name, tensor.dtype, {kTokens, kHidden}, random);
  }
  model.other_files.emplace_back(kTokenizer, small_tokenizer().dump());
  return model;
}

}  // namespace

TinyModel sound_dense() {
  return sound(dense_model(DType::kBF16));
}

TinyModel sound_awq() {
  return sound(awq_model());
}

TinyModel sound_gptq(bool v1) {
  return sound(gptq_model({.v1 = v1, .sym = true}));
}

TinyModel sound_mxfp4() {
  return sound(mxfp4_model());
}

TinyModel sound_nvfp4() {
  TinyModel model = sound_dense();
  Random random(4);
  const std::string name(kUp);
  model.quantization() = {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
  model.up(".weight") = random_bits(name + ".weight", DType::kU8, {kInner, kHidden / 2}, random);
  model.tensors.push_back(
      filled<uint8_t>(name + ".weight_scale", DType::kF8E4M3, {kInner, kHidden / 16}, 0x38));
  model.tensors.push_back(filled<float>(name + ".weight_scale_2", DType::kF32, {}, 0.5F));
  return model;
}

TinyModel sound_fp8() {
  TinyModel model = sound_dense();
  Random random(7);
  const std::string name(kUp);
  model.quantization() = {{"quant_method", "fp8"}, {"weight_block_size", {16, 16}}};
  model.up(".weight") = random_bits(name + ".weight", DType::kF8E4M3, {kInner, kHidden}, random);
  for (char& code : model.up(".weight").bytes) {
    if ((code & 0x7F) == 0x7F) code = 0;
  }
  model.tensors.push_back(
      filled<float>(name + ".weight_scale_inv", DType::kF32, {kInner / 16, kHidden / 16}, 0.001F));
  return model;
}

TinyModel sound_nf4() {
  TinyModel model = sound_dense();
  Random random(5);
  const std::string name = std::string(kUp) + ".weight";
  model.quantization() = {
      {"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}};
  model.up(".weight") = random_bits(name, DType::kU8, {kInner * kHidden / 2, 1}, random);
  model.tensors.push_back(filled<float>(name + ".absmax", DType::kF32, {kInner}, 0.5F));
  TestTensor map = filled<float>(name + ".quant_map", DType::kF32, {16}, 0);
  for (uint32_t code = 0; code < 16; ++code) {
    map.set(code, static_cast<float>(info(Format::kNF4).decode(code)));
  }
  model.tensors.push_back(map);
  const std::string state =
      R"({"quant_type": "nf4", "blocksize": 32, "dtype": "bfloat16", "shape": [64, 32]})";
  model.tensors.push_back(
      {name + ".quant_state.bitsandbytes__nf4", DType::kU8, {state.size()}, state});
  return model;
}

TinyModel sound_packed() {
  TinyModel model = sound_dense();
  Random random(6);
  const std::string name = std::string(kUp) + ".weight";
  model.quantization() = {{"quant_method", "compressed-tensors"},
                          {"format", "pack-quantized"},
                          {"config_groups",
                           {{"group_0",
                             {{"targets", {"Linear"}},
                              {"weights",
                               {{"num_bits", 4},
                                {"type", "int"},
                                {"symmetric", false},
                                {"strategy", "group"},
                                {"group_size", 16}}}}}}}};
  model.remove(name);
  const uint64_t groups = kHidden / 16;
  model.tensors.push_back(
      random_bits(name + "_packed", DType::kI32, {kInner, kHidden / 8}, random));
  model.tensors.push_back(
      filled<uint16_t>(name + "_scale", DType::kBF16, {kInner, groups}, 0x3C00));
  model.tensors.push_back(
      random_bits(name + "_zero_point", DType::kI32, {kInner / 8, groups}, random));
  TestTensor shape = filled<int64_t>(name + "_shape", DType::kI64, {2}, kInner);
  shape.set<int64_t>(1, kHidden);
  model.tensors.push_back(shape);
  return model;
}

TinyModel sound_delta_net() {
  TinyModel model;
  Random random(8);
  model.config = {
      {"model_type", "qwen3_5_text"}, {"hidden_size", kHidden},   {"intermediate_size", kInner},
      {"num_hidden_layers", 4},       {"num_attention_heads", 2}, {"num_key_value_heads", 1},
      {"head_dim", kHeadDim},         {"vocab_size", kTokens},    {"linear_num_key_heads", 2},
      {"linear_num_value_heads", 4},  {"linear_key_head_dim", 8}, {"linear_value_head_dim", 8},
      {"partial_rotary_factor", 0.5}};
  const auto object = json::Object::of(model.config, "config.json");
  const auto config = parse_model_config(*object);
  EXPECT_TRUE(config.ok()) << config.error().message;
  const TensorSource none = TensorSource::empty();
  const auto names = CheckpointNames::find(none, ExpertLayout::kModules);
  for (const TensorSpec& spec : tensors_of(*config)) {
    const FileTensors file = names->tensors_of(spec);
    for (const FileMatrix& matrix : file.matrices) {
      const Shape shape = {static_cast<uint64_t>(matrix.rows), static_cast<uint64_t>(matrix.cols)};
      model.tensors.push_back(
          random_floats(matrix.module + ".weight", DType::kBF16, shape, random));
    }
    for (const FileVector& vector : file.vectors) {
      model.tensors.push_back(random_floats(vector.name, DType::kBF16, vector.shape, random));
    }
  }
  model.other_files.emplace_back(kTokenizer, small_tokenizer().dump());
  return model;
}

TokenizerJson tokenizer_of(const TinyModel& model) {
  for (const auto& [name, content] : model.other_files) {
    if (name == kTokenizer) return TokenizerJson::parse(content);
  }
  return {};
}

void set_file(TinyModel& model, const std::string& name, const std::string& content) {
  std::erase_if(model.other_files, [&](const auto& file) { return file.first == name; });
  model.other_files.emplace_back(name, content);
}

void write_model(const TinyModel& model, const TempDir& dir) {
  for (const auto& [name, content] : model.files()) dir.write(name, content);
}

VerifyReport verify_path(const std::filesystem::path& path, int threads) {
  ThreadPool pool(threads);
  auto report = verify(path, {}, pool);
  EXPECT_TRUE(report.ok()) << report.error().message;
  return report.ok() ? std::move(report).value() : VerifyReport{};
}

VerifyReport verify_model(const TinyModel& model, int threads) {
  const TempDir dir;
  write_model(model, dir);
  return verify_path(dir.path(), threads);
}

std::vector<std::string> lines(const VerifyReport& report) {
  std::vector<std::string> text;
  for (const Finding& finding : report.findings) {
    text.push_back(std::string(name(finding.severity)) + " " + std::string(finding.code) + " " +
                   finding.where);
  }
  return text;
}

}  // namespace subbyte::conformance
