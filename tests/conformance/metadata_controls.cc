// Directories that must load: what a loader that is too strict would refuse.

#include "conformance/metadata_set.h"

namespace subbyte::conformance {
namespace {

void add_gptq_controls(MetadataList& list) {
  for (const int bits : {2, 3, 4, 8}) {
    GptqKind kind;
    kind.bits = bits;
    list.add("gptq_" + std::to_string(bits) + "_bits", {}, gptq_model(kind));
  }
  list.add("gptq_v2", {}, gptq_model({.v1 = false}));
  list.add("gptq_whole_row", {}, gptq_model({.group_size = -1}));
  list.add("gptq_act_order", {}, gptq_model({.act_order = true}));
  list.add("gptq_without_g_idx", {}, gptq_model({.with_g_idx = false}));
  list.add("gptq_symmetric", {}, gptq_model({.sym = true}));
  list.add("gptq_v2_symmetric", {}, gptq_model({.v1 = false, .sym = true}));
  TinyModel model = gptq_model();
  model.quantization().erase("checkpoint_format");
  model.quantization().erase("sym");
  model.quantization()["damp_percent"] = 0.01;
  model.quantization()["meta"] = {{"quantizer", "tool:1.0"}};
  list.add("gptq_older_config", {}, model);
  model = gptq_model();
  model.other_files.emplace_back("quantize_config.json", model.quantization().text());
  model.config.erase("quantization_config");
  list.add("gptq_side_file", {}, model);
  model = gptq_model({.group_size = -1});
  model.quantization()["group_size"] = 1024;  // more than there are inputs: one group
  list.add("gptq_group_of_more_than_the_row", {}, model);
}

void add_awq_controls(MetadataList& list) {
  list.add("awq", {}, awq_model());
  list.add("awq_whole_row", {}, awq_model(-1));
  TinyModel model = awq_model();
  model.quantization() = nullptr;
  model.other_files.emplace_back(
      "quant_config.json",
      R"({"zero_point": true, "q_group_size": 16, "w_bit": 4, "version": "GEMM"})");
  list.add("awq_side_file", {}, model);
  model = awq_model();
  model.up(".scales") = filled<uint16_t>(std::string(kUp) + ".scales", DType::kF16, {2, kInner}, 0);
  list.add("awq_scales_of_zero", {}, model);
  model = awq_model();
  model.up(".scales").set<uint16_t>(3, 0x0001);
  list.add("awq_scale_subnormal", {}, model);
}

void add_other_controls(MetadataList& list) {
  list.add("mxfp4", {}, mxfp4_model());
  TinyModel model = mxfp4_model();
  TestTensor& scales = model.tensor("model.layers.0.mlp.experts.down_proj_scales");
  scales.set<uint8_t>(0, 0);
  list.add("mxfp4_smallest_scale", {}, model);
  list.add("gpt_oss_without_quantization", {}, dequantized_gpt_oss());
  list.add("bf16", {}, dense_model(DType::kBF16));
  list.add("f16", {}, dense_model(DType::kF16));
  list.add("f32", {}, dense_model(DType::kF32));
  model = awq_model();
  model.config["tie_word_embeddings"] = true;
  model.remove("lm_head.weight");
  list.add("tied", {}, model);
  model = awq_model();
  model.config["auto_map"] = {{"AutoConfig", "evil.py--Config"}, {"AutoModel", "evil.Model"}};
  model.other_files.emplace_back("evil.py", "raise SystemExit(1)\n");
  list.add("auto_map_is_ignored", {}, model);
  model = awq_model();
  model.config["some_future_key"] = {{"deep", {1, 2, 3}}};
  list.add("unknown_key", {}, model);
  model = awq_model();
  model.config.erase("rope_theta");
  model.config["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "default"}};
  list.add("rope_parameters", {}, model);
  model = awq_model();
  model.config["eos_token_id"] = {2, 15};
  model.config["layer_types"] = {"full_attention"};
  list.add("lists", {}, model);
}

}  // namespace

void add_metadata_controls(MetadataList& list) {
  list.section(0);
  add_gptq_controls(list);
  add_awq_controls(list);
  add_other_controls(list);
}

}  // namespace subbyte::conformance
