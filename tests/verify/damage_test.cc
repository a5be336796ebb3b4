// Sound models give no finding; one thing damaged gives that finding and no other.

#include <gtest/gtest.h>

#include <ostream>

#include "verify/sound_models.h"

namespace subbyte::conformance {
namespace {

const std::string kModule(kUp);
const std::string kLayer = "model.layers.0.";
const std::string kExpertsName = kLayer + "mlp.experts.gate_up_proj";

struct Damage {
  const char* name;
  TinyModel (*make)();
  std::function<void(TinyModel&)> change;
  std::string line;   // the only one
  std::string found;  // what its text must contain
};

std::ostream& operator<<(std::ostream& out, const Damage& damage) {
  return out << damage.name;
}

TinyModel gptq() {
  return sound_gptq();
}

TinyModel gptq_v2() {
  return sound_gptq(false);
}

/// Not symmetric, with zero points of 8.
TinyModel asymmetric_gptq() {
  TinyModel model = sound_gptq();
  model.quantization()["sym"] = false;
  return model;
}

/// AWQ: the eight outputs of a word mean 0 for every input.
void zero_word_of_outputs(TinyModel& model) {
  TestTensor& codes = model.up(".qweight");
  TestTensor& zeros = model.up(".qzeros");
  constexpr std::size_t kWords = kInner / 8;
  for (std::size_t k = 0; k < kHidden; ++k) codes.set<uint32_t>(k * kWords + 3, 0x55555555);
  for (std::size_t g = 0; g < kHidden / kGroup; ++g) {
    zeros.set<uint32_t>(g * kWords + 3, 0x55555555);
  }
}

std::vector<Damage> scale_damages() {
  return {
      {"scale_nan", sound_awq, [](TinyModel& m) { m.up(".scales").set<uint16_t>(5, 0x7E00); },
       "error import.scale_not_finite " + kModule + ".scales", "1 of 128 scales"},
      {"scale_infinite", gptq, [](TinyModel& m) { m.up(".scales").set<uint16_t>(70, 0x7C00); },
       "error import.scale_not_finite " + kModule + ".scales", "first at [1, 6]"},
      {"scale_huge", sound_awq, [](TinyModel& m) { m.up(".scales").set<uint16_t>(5, 0x7BFF); },
       "note verify.beyond_f16 " + kModule + ".scales", "1 of 128 scales that make larger ones"},
      {"norm_huge", sound_mxfp4,
       [](TinyModel& m) { m.tensor("model.norm.weight").set<uint16_t>(31, 0x7F70); },
       "error verify.magnitude model.norm.weight", "1 of 32 that are larger"},
      {"norm_zero", sound_mxfp4,
       [](TinyModel& m) {
         std::string& bytes = m.tensor("model.norm.weight").bytes;
         bytes.assign(bytes.size(), '\0');
       },
       "error verify.norm_zero model.norm.weight", "all 0"},
      {"scale_zero", sound_awq,
       [](TinyModel& m) {
         m.up(".scales").set<uint16_t>(5, 0);
         m.up(".scales").set<uint16_t>(64 + 9, 0x8000);
       },
       "warning verify.scale_zero " + kModule + ".scales",
       "2 of 128 scales that are 0, the first of output 5, group 0"},
      {"scale_negative", gptq,
       [](TinyModel& m) {
         TestTensor& scales = m.up(".scales");
         scales.set<uint16_t>(64 + 7, static_cast<uint16_t>(scales.at<uint16_t>(71) | 0x8000));
       },
       "warning verify.scale_negative " + kModule + ".scales",
       "1 of 128 scales that are negative, the first of output 7, group 1"},
      {"scale_e8m0_nan", sound_mxfp4,
       [](TinyModel& m) { m.tensor(kExpertsName + "_scales").set<uint8_t>(200, 0xFF); },
       "error import.scale_not_finite " + kExpertsName + "_scales", "0xFF"},
      {"zero_points_of_other_version_v1", gptq,
       [](TinyModel& m) {
         m.up(".qzeros") = filled<uint32_t>(kModule + ".qzeros", DType::kI32, {2, 8}, 0x88888888);
       },
       "error gptq.version " + kModule + ".qzeros", "stored as 8"},
      {"zero_points_of_other_version_v2", gptq_v2,
       [](TinyModel& m) {
         m.up(".qzeros") = filled<uint32_t>(kModule + ".qzeros", DType::kI32, {2, 8}, 0x77777777);
       },
       "error gptq.version " + kModule + ".qzeros", "stored as 7"},
      {"zero_points_of_other_version_without_sym", asymmetric_gptq,
       [](TinyModel& m) {
         m.up(".qzeros") = filled<uint32_t>(kModule + ".qzeros", DType::kI32, {2, 8}, 0x88888888);
       },
       "warning verify.gptq_version " + kModule + ".qzeros", "all 128 stored as 8"},
      {"zero_points_not_symmetric", gptq,
       [](TinyModel& m) { m.up(".qzeros").set<uint32_t>(3, 0x77777776); },
       "warning verify.not_symmetric " + kModule + ".qzeros", "found 7 to 8"},
      {"zero_point_beyond_the_codes", asymmetric_gptq,
       [](TinyModel& m) { m.up(".qzeros").set<uint32_t>(8 + 2, 0x7777F777); },
       "warning verify.zero_point_range " + kModule + ".qzeros", "output 19, group 1"},
  };
}

std::vector<Damage> weight_damages() {
  return {
      {"dead_rows_of_codes", sound_awq, zero_word_of_outputs,
       "warning verify.dead_rows " + kModule + ".qweight",
       "8 of 64 outputs have weights that are all 0, the first of output 24"},
      {"dead_row_dense", sound_dense,
       [](TinyModel& m) {
         for (std::size_t k = 0; k < kHidden; ++k) {
           m.up(".weight").set<uint16_t>(11 * kHidden + k, k % 2 == 0 ? 0 : 0x8000);
         }
       },
       "warning verify.dead_rows " + kModule + ".weight", "1 of 64 outputs"},
      {"empty_tokens", sound_dense,
       [](TinyModel& m) {
         TestTensor& table = m.tensor("model.embed_tokens.weight");
         std::fill(table.bytes.begin() + 256 * kHidden * 2, table.bytes.end(), '\0');
       },
       "note verify.empty_tokens model.embed_tokens.weight", "16 of 272 tokens"},
      {"unused_codes", gptq,
       [](TinyModel& m) {
         TestTensor& codes = m.up(".qweight");
         for (std::size_t i = 0; i < codes.bytes.size() / 4; ++i) {
           codes.set(i, codes.at<uint32_t>(i) | 0x11111111u);
         }
       },
       "note verify.unused_codes " + kModule + ".qweight",
       "8 of 16 codes never occur: 0, 2, 4, 6, 8, 10, 12, 14"},
      {"unused_code_of_experts", sound_mxfp4,
       [](TinyModel& m) {
         for (char& byte : m.tensor(kExpertsName + "_blocks").bytes) {
           if ((byte & 0x0F) == 0x08) byte = static_cast<char>(byte & ~0x08);
           if ((byte & 0xF0) == 0x80) byte = static_cast<char>(byte & ~0x80);
         }
       },
       "note verify.unused_codes " + kExpertsName + "_blocks", "1 of 16 codes never occur: 8"},
      {"weight_nan", sound_dense,
       [](TinyModel& m) { m.up(".weight").set<uint16_t>(3 * kHidden + 4, 0x7FC0); },
       "error import.not_finite " + kModule + ".weight", "output 3, input 4"},
      {"head_infinite", sound_awq,
       [](TinyModel& m) { m.tensor("lm_head.weight").set<uint16_t>(0, 0xFC00); },
       "error import.not_finite lm_head.weight", "1 of 8704"},
      {"norm_nan", sound_mxfp4,
       [](TinyModel& m) { m.tensor("model.norm.weight").set<uint16_t>(31, 0x7F81); },
       "error import.not_finite model.norm.weight",
       "1 of 32 that are NaN or infinite, the first "
       "at index 31"},
      {"g_idx_range", gptq, [](TinyModel& m) { m.up(".g_idx").set<int32_t>(4, 2); },
       "error gptq.g_idx_range " + kModule + ".g_idx", "value 2 at index 4"},
      {"g_idx_counts", gptq, [](TinyModel& m) { m.up(".g_idx").set<int32_t>(4, 1); },
       "error gptq.g_idx_counts " + kModule + ".g_idx", "16 inputs each"},
      {"g_idx_length", gptq,
       [](TinyModel& m) {
         m.up(".g_idx") = filled<int32_t>(kModule + ".g_idx", DType::kI32, {kHidden - 1}, 0);
       },
       "error import.shape " + kModule + ".g_idx", "shape [32], found [31]"},
  };
}

std::vector<Damage> format_damages() {
  const std::string weight = kModule + ".weight";
  return {
      {"scale_e4m3_nan", sound_nvfp4,
       [](TinyModel& m) {
         m.up(".weight_scale").set<uint8_t>(9, 0xFF);
         m.up(".weight_scale").set<uint8_t>(50, 0x7F);
       },
       "error import.scale_not_finite " + weight + "_scale",
       "0xFF (NaN) at index 9, the first of 2 among 128"},
      {"scale_e4m3_zero", sound_nvfp4,
       [](TinyModel& m) { m.up(".weight_scale").set<uint8_t>(9, 0x80); },
       "warning verify.scale_zero " + weight + "_scale", "output 4, group 1"},
      {"scale_of_tensor_nan", sound_nvfp4,
       [](TinyModel& m) { m.up(".weight_scale_2").set<uint32_t>(0, 0x7FC00000); },
       "error import.scale_not_finite " + weight + "_scale_2", "nan"},
      {"scale_of_tensor_zero", sound_nvfp4,
       [](TinyModel& m) { m.up(".weight_scale_2").set<float>(0, 0); },
       "warning verify.dead_rows " + weight, "64 of 64 outputs"},
      {"scale_of_blocks_nan", sound_nf4,
       [](TinyModel& m) { m.up(".weight.absmax").set<uint32_t>(7, 0x7FC00000); },
       "error import.scale_not_finite " + weight + ".absmax", "block 7"},
      {"scale_of_blocks_negative", sound_nf4,
       [](TinyModel& m) { m.up(".weight.absmax").set<float>(7, -1); },
       "warning verify.scale_negative " + weight + ".absmax", "1 of 64"},
      {"table_of_codes", sound_nf4,
       [](TinyModel& m) { m.up(".weight.quant_map").set<float>(3, 0); },
       "error bnb_nf4.quant_map " + weight + ".quant_map", "code 3"},
      {"state_of_blocks", sound_nf4,
       [](TinyModel& m) {
         TestTensor& state = m.up(".weight.quant_state.bitsandbytes__nf4");
         state.bytes.replace(state.bytes.find("[64"), 3, "[63");
       },
       "error import.shape " + weight, "[1008, 1]"},
      {"packed_scale_infinite", sound_packed,
       [](TinyModel& m) { m.up(".weight_scale").set<uint16_t>(2, 0x7F80); },
       "error import.scale_not_finite " + weight + "_scale", "1 of 128"},
      {"packed_unused_codes", sound_packed,
       [](TinyModel& m) {
         for (char& byte : m.up(".weight_packed").bytes) byte = static_cast<char>(byte | 0x11);
       },
       "note verify.unused_codes " + weight + "_packed", "8 of 16"},
      {"experts_of_another_number", sound_mxfp4,
       [](TinyModel& m) {
         Random random(8);
         m.tensor(kExpertsName + "_blocks") = random_bits(
             kExpertsName + "_blocks", DType::kU8, {kExperts + 1, 2 * kInner, 1, 16}, random);
         m.tensor(kExpertsName + "_scales") = filled<uint8_t>(kExpertsName + "_scales", DType::kU8,
                                                              {kExperts + 1, 2 * kInner, 1}, 122);
       },
       "error model.weight_shape " + kExpertsName + "_blocks",
       "expected 2 experts of 128 outputs and 32 inputs (config.json), found 3 experts"},
      {"packed_shape", sound_packed,
       [](TinyModel& m) { m.up(".weight_shape").set<int64_t>(0, 63); },
       "error import.shape " + weight + "_shape", "63"},
  };
}

std::vector<Damage> tensor_damages() {
  const auto sized = [](std::string name, Shape shape) {
    Random random(3);
    return random_floats(std::move(name), DType::kBF16, std::move(shape), random);
  };
  return {
      {"part_missing", sound_awq, [](TinyModel& m) { m.remove(kModule + ".qzeros"); },
       "error import.missing " + kModule + ".qzeros", "missing"},
      {"module_missing", sound_dense, [](TinyModel& m) { m.remove(kModule + ".weight"); },
       "error import.missing " + kModule, "no weights"},
      {"norm_missing", gptq, [](TinyModel& m) { m.remove(kLayer + "input_layernorm.weight"); },
       "error import.missing " + kLayer + "input_layernorm.weight", "none of that name"},
      {"experts_missing", sound_mxfp4, [](TinyModel& m) { m.remove(kExpertsName + "_scales"); },
       "error import.missing " + kExpertsName + "_scales", "missing"},
      {"tensor_surplus", sound_awq,
       [&](TinyModel& m) { m.tensors.push_back(sized("model.layers.1.extra", {4})); },
       "error model.surplus model.layers.1.extra", "config.json"},
      {"bias_surplus", sound_dense,
       [&](TinyModel& m) { m.tensors.push_back(sized(kModule + ".bias", {kInner})); },
       "error model.surplus " + kModule + ".bias", "another one"},
      {"norm_shape", sound_dense,
       [&](TinyModel& m) {
         m.tensor("model.norm.weight") = sized("model.norm.weight", {kHidden + 1});
       },
       "error import.shape model.norm.weight", "[32] (config.json), found [33]"},
      {"norm_dtype", sound_dense,
       [](TinyModel& m) {
         m.tensor("model.norm.weight") =
             filled<int32_t>("model.norm.weight", DType::kI32, {kHidden}, 1);
       },
       "error dense.dtype model.norm.weight", "found I32"},
      {"matrix_transposed", sound_dense,
       [&](TinyModel& m) {
         m.up(".weight") = sized(kModule + ".weight", {kHidden, kInner});
       },
       "error model.weight_shape " + kModule + ".weight",
       "expected 64 outputs and 32 inputs (config.json), found 32 outputs and 64 inputs"},
      {"embedding_of_fewer_tokens", sound_dense,
       [&](TinyModel& m) {
         m.tensor("model.embed_tokens.weight") =
             sized("model.embed_tokens.weight", {kTokens - 1, kHidden});
       },
       "error model.weight_shape model.embed_tokens.weight", "found 271 outputs"},
      {"blocks_shape", sound_mxfp4,
       [](TinyModel& m) {
         m.tensor(kExpertsName + "_blocks").shape = {kExperts, 2 * kInner, 2, 8};
       },
       "error import.shape " + kExpertsName + "_blocks", "[2, 128, 2, 8]"},
      {"tied_head_differs", sound_dense,
       [](TinyModel& m) { m.config["tie_word_embeddings"] = true; },
       "error model.surplus lm_head.weight", "tie_word_embeddings"},
  };
}

std::vector<Damage> config_damages() {
  const auto set = [](const char* key, json::Value value) {
    return [key, value](TinyModel& m) { m.config[key] = value; };
  };
  const auto generation = [](std::string text) {
    return [text](TinyModel& m) { set_file(m, "generation_config.json", text); };
  };
  return {
      {"heads", sound_dense, set("num_attention_heads", 5), "error config.heads config.json",
       "divisor"},
      {"eps", sound_dense, set("rms_norm_eps", 0), "error json.range config.json", "rms_norm_eps"},
      {"unknown_model", sound_awq, set("model_type", "falcon"),
       "warning config.model_type config.json", "falcon"},
      {"remote_code", sound_awq, set("auto_map", {{"AutoModel", "evil.Model"}}),
       "note verify.remote_code config.json", "never run"},
      {"eos_beyond_vocabulary", sound_awq, set("eos_token_id", kTokens),
       "error config.eos_token_id config.json", "below vocab_size (272), found 272"},
      {"eos_list", sound_awq, set("eos_token_id", json::Value::array({2, -1})),
       "error config.eos_token_id config.json", "found -1"},
      {"generation_eos", sound_awq, generation(R"({"eos_token_id": [2, 5000]})"),
       "error config.eos_token_id generation_config.json", "found 5000"},
      {"generation_pad", sound_awq, generation(R"({"pad_token_id": 999})"),
       "warning verify.special_token generation_config.json", "pad_token_id"},
      {"sampling_value", sound_awq, generation(R"({"temperature": -1})"),
       "error json.range generation_config.json", "found -1"},
      {"generation_text", sound_awq, generation("{"), "error json.syntax generation_config.json",
       ""},
      {"bits", gptq, [](TinyModel& m) { m.quantization()["bits"] = 0; },
       "error quantization.bits config.json", "2, 3, 4 or 8"},
      {"group_size", sound_awq, [](TinyModel& m) { m.quantization()["group_size"] = 0; },
       "error quantization.group_size config.json", "found 0"},
      {"awq_version", sound_awq, [](TinyModel& m) { m.quantization()["version"] = "gemv"; },
       "error quantization.version config.json", "gemv"},
      {"method_unknown", sound_awq, [](TinyModel& m) { m.quantization()["quant_method"] = "exl3"; },
       "error quantization.method config.json", "exl3"},
      {"method_of_no_weight", sound_dense,
       [](TinyModel& m) { m.quantization() = sound_awq().quantization(); },
       "error import.config config.json", "none that is quantized"},
  };
}

/// Keys, files and tensors that would change answers, or might.
std::vector<Damage> key_damages() {
  const auto set = [](const char* key, json::Value value) {
    return [key, value](TinyModel& m) { m.config[key] = value; };
  };
  const auto generation = [](std::string text) {
    return [text](TinyModel& m) { set_file(m, "generation_config.json", text); };
  };
  return {
      {"generation_not_computed", sound_awq, generation(R"({"num_beams": 4})"),
       "error config.not_computed generation_config.json", "expected num_beams: nothing or 1"},
      {"generation_unknown", sound_awq, generation(R"({"brand_new": 4, "other": null})"),
       "note verify.unknown_keys generation_config.json", "\"brand_new\""},
      {"config_not_computed", sound_awq, set("per_layer_config", {{"0", {{"head_dim", 2}}}}),
       "error config.not_computed config.json", "per_layer_config"},
      {"config_unknown", sound_awq, set("brand_new", 1), "note verify.unknown_keys config.json",
       "\"brand_new\""},
      {"quantization_unknown", sound_awq, [](TinyModel& m) { m.quantization()["brand_new"] = 1; },
       "note verify.unknown_keys config.json", "\"quantization_config.brand_new\""},
      {"quantization_not_computed", sound_awq,
       [](TinyModel& m) { m.quantization()["act_bits"] = 8; },
       "error config.not_computed config.json", "act_bits"},
      {"module_that_is_not_to_be_quantized", sound_awq,
       [](TinyModel& m) { m.quantization()["modules_to_not_convert"] = {"mlp.up_proj"}; },
       "error import.config " + kModule + ".qweight", "\"mlp.up_proj\" of"},
      {"two_names_of_one_field", [] { return sound_gptq(); },
       [](TinyModel& m) {
         m.quantization()["checkpoint_format"] = "gptq";
         m.quantization()["format"] = "gptq_v2";
       },
       "error quantization.contradiction config.json", "what checkpoint_format says, \"gptq\""},
      {"two_files", sound_nvfp4,
       [](TinyModel& m) {
         set_file(m, "hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
       },
       "warning verify.config_differs hf_quant_config.json", "quant_algo \"NVFP4\", as "},
      {"adapter", sound_awq, [](TinyModel& m) { set_file(m, "adapter_config.json", "{}"); },
       "error model.adapter adapter_config.json", "adapter"},
      {"cache_scales", sound_nvfp4,
       [](TinyModel& m) {
         for (const char* name : {"self_attn.k_scale", "self_attn.v_scale"}) {
           m.tensors.push_back(filled<uint32_t>(kLayer + name, DType::kF32, {1}, 0x3F000000));
         }
       },
       "note verify.cache_scales " + kLayer + "self_attn.k_scale", "2 scales"},
  };
}

std::vector<Damage> tokenizer_damages() {
  const auto tokenizer = [](std::function<void(TokenizerJson&)> change) {
    return [change](TinyModel& m) {
      TokenizerJson text = tokenizer_of(m);
      change(text);
      set_file(m, "tokenizer.json", text.dump());
    };
  };
  return {
      {"tokenizer_missing", sound_awq, [](TinyModel& m) { m.other_files.clear(); },
       "note verify.no_tokenizer tokenizer.json", "no such file"},
      {"tokenizer_text", sound_awq, [](TinyModel& m) { set_file(m, "tokenizer.json", "{]"); },
       "error json.syntax tokenizer.json", ""},
      {"tokenizer_kind", sound_awq,
       tokenizer([](TokenizerJson& t) { t["model"]["type"] = "Unigram"; }),
       "warning tokenizer.unsupported tokenizer.json", "Unigram"},
      {"tokenizer_duplicate_id", sound_awq,
       tokenizer([](TokenizerJson& t) { t["model"]["vocab"]["zzz"] = 7; }),
       "error tokenizer.duplicate_id tokenizer.json", "id 7"},
      {"tokenizer_id_beyond_vocabulary", sound_awq, tokenizer([](TokenizerJson& t) {
         t["added_tokens"].push_back(added_token(256, "<end>")),
             t["added_tokens"].push_back(added_token(272, "<more>"));
         for (int i = 257; i < 272; ++i) {
           t["added_tokens"].push_back(added_token(i, "<" + std::to_string(i) + ">"));
         }
       }),
       "error verify.token_id_range tokenizer.json", "found ids up to 272"},
      {"tokenizer_ids_missing", sound_awq,
       tokenizer([](TokenizerJson& t) { t["added_tokens"].push_back(added_token(260, "<end>")); }),
       "warning verify.token_ids_missing tokenizer.json", "none for 4 of them, the first is 256"},
      {"control_token_in_vocabulary", sound_awq,
       [](TinyModel& m) {
         TokenizerJson json = tokenizer_of(m);
         json["model"]["vocab"]["<|im_end|>"] = 256;
         set_file(m, "tokenizer.json", json.dump());
       },
       "warning verify.control_token tokenizer.json", "token 256 of the vocabulary alone"},
      {"special_token_unknown", sound_awq, [](TinyModel& m) { m.config["bos_token_id"] = 256; },
       "warning verify.special_token config.json", "256, which it does not have"},
  };
}

/// What stands in files beside tokenizer.json.
std::vector<Damage> tokenizer_config_damages() {
  const auto tokenizer_config = [](std::string text) {
    return [text](TinyModel& m) { set_file(m, "tokenizer_config.json", text); };
  };
  return {
      {"special_name_beyond_vocabulary", sound_awq,
       [](TinyModel& m) {
         TokenizerJson names = TokenizerJson::array();
         for (int id = 256; id <= 272; ++id) names.push_back("<" + std::to_string(id) + ">");
         set_file(m, "tokenizer_config.json",
                  TokenizerJson{{"bos_token", nullptr}, {"extra_special_tokens", names}}.dump());
       },
       "warning verify.special_token tokenizer_config.json",
       "expected \"<272>\" with an id below vocab_size (272), found 272"},
      {"tokenizer_config_text", sound_awq, tokenizer_config("{"),
       "error json.syntax tokenizer_config.json", ""},
      {"tokenizer_config_prefix", sound_awq, tokenizer_config(R"({"add_prefix_space": true})"),
       "warning tokenizer.unsupported tokenizer_config.json", "add_prefix_space"},
      {"tokenizer_config_unknown", sound_awq, tokenizer_config(R"({"brand_new": 1})"),
       "note verify.unknown_keys tokenizer_config.json", "\"brand_new\""},
      {"tokenizer_config_template", sound_awq, tokenizer_config(R"({"chat_template": "{%"})"),
       "warning verify.chat_template tokenizer_config.json", "chats are refused"},
      {"template_file", sound_awq, [](TinyModel& m) { set_file(m, "chat_template.jinja", "{{ x"); },
       "warning verify.chat_template chat_template.jinja", "chats are refused"},
      {"added_token_flags", sound_awq,
       [](TinyModel& m) {
         TokenizerJson json = tokenizer_of(m);
         json["added_tokens"].push_back(added_token(256, "<end>"));
         set_file(m, "tokenizer.json", json.dump());
         set_file(m, "tokenizer_config.json",
                  R"({"added_tokens_decoder": {"256": {"content": "<end>", "special": true}}})");
       },
       "warning verify.added_token tokenizer_config.json", "the first is \"<end>\""},
      {"end_tokens_of_names", sound_awq, tokenizer_config(R"({"eos_token": "<end>"})"),
       "warning verify.end_tokens config.json", "(256), found 2"},
      {"end_tokens_of_files", sound_awq,
       [](TinyModel& m) { set_file(m, "generation_config.json", R"({"eos_token_id": [3, 4]})"); },
       "warning verify.end_tokens generation_config.json", "(2), found 3, 4"},
  };
}

std::vector<Damage> all_damages() {
  std::vector<Damage> all;
  for (const auto& part :
       {scale_damages(), weight_damages(), format_damages(), tensor_damages(), config_damages(),
        key_damages(), tokenizer_damages(), tokenizer_config_damages()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

class Damaged : public testing::TestWithParam<Damage> {};

TEST_P(Damaged, gives_its_finding_and_no_other) {
  const Damage& damage = GetParam();
  TinyModel model = damage.make();
  damage.change(model);
  const VerifyReport report = verify_model(model);
  ASSERT_EQ(lines(report), std::vector<std::string>{damage.line})
      << to_string(report.findings.empty() ? Finding{} : report.findings[0]);
  const std::string text = to_string(report.findings[0]);
  EXPECT_NE(text.find(damage.found), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(All, Damaged, testing::ValuesIn(all_damages()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(Sound, models_give_no_finding) {
  EXPECT_EQ(lines(verify_model(sound_dense())), std::vector<std::string>{});
  EXPECT_EQ(lines(verify_model(sound_awq())), std::vector<std::string>{});
  EXPECT_EQ(lines(verify_model(sound_gptq(true))), std::vector<std::string>{});
  EXPECT_EQ(lines(verify_model(sound_gptq(false))), std::vector<std::string>{});
  EXPECT_EQ(lines(verify_model(asymmetric_gptq())), std::vector<std::string>{});
  EXPECT_EQ(lines(verify_model(sound_mxfp4())), std::vector<std::string>{});
  EXPECT_EQ(lines(verify_model(sound_nvfp4())), std::vector<std::string>{});
  EXPECT_EQ(lines(verify_model(sound_fp8())), std::vector<std::string>{});
  EXPECT_EQ(lines(verify_model(sound_nf4())), std::vector<std::string>{});
  EXPECT_EQ(lines(verify_model(sound_packed())), std::vector<std::string>{});
}

}  // namespace
}  // namespace subbyte::conformance
