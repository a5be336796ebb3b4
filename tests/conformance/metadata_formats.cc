// Classes 67 to 70: AWQ, contradicting methods, MXFP4, NF4, scales that are no numbers.

#include "conformance/metadata_set.h"
#include "formats/format.h"

namespace subbyte::conformance {
namespace {

const std::string kName(kUp);
const std::string kGateUp = "model.layers.0.mlp.experts.gate_up_proj";

void add_awq(MetadataList& list) {
  list.section(67);
  const auto add_version = [&](std::string_view name, const json::Value& version,
                               std::string_view code) {
    TinyModel model = awq_model();
    model.quantization()["version"] = version;
    list.add(name, code, model, {"version"});
  };
  add_version("awq_gemv", "gemv", "quantization.version");
  add_version("awq_gemv_fast", "gemv_fast", "quantization.version");
  add_version("awq_unknown_version", "gemm2", "quantization.version");
  add_version("awq_version_number", 1, "json.type");
  TinyModel model = awq_model();
  model.quantization()["zero_point"] = false;
  list.add("awq_zero_point_false_beside_qzeros", "import.config", model, {"zero_point"});
  model = awq_model();
  model.remove(kName + ".qzeros");
  list.add("awq_without_qzeros", "import.missing", model, {"up_proj.qzeros"});
  Random random(1);
  const auto add = [&](std::string_view name, std::string_view code, TestTensor tensor) {
    TinyModel made = awq_model();
    made.tensor(tensor.name) = tensor;
    list.add(name, code, made, {"up_proj"});
  };
  add("awq_60_outputs", "import.shape",
      random_floats(kName + ".scales", DType::kF16, {2, 60}, random));
  add("awq_qweight_one_word_more", "import.shape",
      random_bits(kName + ".qweight", DType::kI32, {kHidden, kInner / 8 + 1}, random));
  add("awq_qweight_u8", "import.dtype",
      random_bits(kName + ".qweight", DType::kU8, {kHidden, kInner / 2}, random));
  add("awq_qzeros_unpacked", "import.shape",
      random_bits(kName + ".qzeros", DType::kI32, {2, kInner}, random));
  add("awq_qzeros_i16", "import.dtype",
      random_bits(kName + ".qzeros", DType::kI16, {2, kInner / 8}, random));
  add("awq_scales_u8", "import.dtype",
      random_bits(kName + ".scales", DType::kU8, {2, kInner}, random));
}

void add_methods(MetadataList& list) {
  TinyModel model = gptq_model({.with_g_idx = false});
  model.quantization() = awq_model().quantization();
  list.add("method_awq_tensors_gptq", "import.config", model, {"\"awq\"", "\"gptq\""});
  model = gptq_model();
  model.quantization() = awq_model().quantization();
  list.add("method_awq_tensors_gptq_with_g_idx", "import.config", model, {"\"awq\"", "\"gptq\""});
  model = awq_model();
  model.quantization() = gptq_model().quantization();
  list.add("method_gptq_tensors_awq", "import.config", model, {"\"awq\"", "\"gptq\""});
  model = awq_model();
  model.config.erase("quantization_config");
  list.add("method_none_tensors_awq", "import.config", model, {"\"none\"", "\"awq\""});
  model = awq_model();
  model.quantization() = mxfp4_model().quantization();
  list.add("method_mxfp4_tensors_awq", "import.config", model, {"\"mxfp4\"", "\"awq\""});
  const auto add = [&](std::string_view name, std::string_view code, const json::Value& section) {
    TinyModel made = awq_model();
    made.quantization() = section;
    list.add(name, code, made, {"quant"});
  };
  add("method_unknown", "quantization.method", {{"quant_method", "quip"}});
  add("method_missing", "json.missing", {{"bits", 4}});
  add("method_number", "json.type", {{"quant_method", 4}});
  add("quantization_config_array", "json.type", json::Value::array({1}));
  for (const char* format : {"marlin", "gptq_p", "gptq_v3"}) {
    TinyModel made = gptq_model();
    made.quantization()["checkpoint_format"] = format;
    // Marlin's layout is read, but these tensors do not have it.
    const bool other_tensors = std::string_view(format) == "marlin";
    list.add(std::string("gptq_format_") + format,
             other_tensors ? "import.config" : "quantization.version", made,
             {other_tensors ? "Marlin" : format});
  }
}

void add_mxfp4(MetadataList& list) {
  list.section(68);
  Random random(2);
  const auto add = [&](std::string_view name, std::string_view code, TestTensor tensor) {
    TinyModel model = mxfp4_model();
    model.tensor(tensor.name) = tensor;
    list.add(name, code, model, {"gate_up_proj"});
  };
  const auto blocks = [&](DType dtype, Shape shape) {
    return random_bits(kGateUp + "_blocks", dtype, std::move(shape), random);
  };
  const auto scales = [&](DType dtype, Shape shape) {
    return filled<uint8_t>(kGateUp + "_scales", dtype, std::move(shape), 122);
  };
  constexpr uint64_t kRows = 2 * kInner;
  add("mxfp4_blocks_rank_3", "import.shape", blocks(DType::kU8, {kExperts, kRows, 16}));
  add("mxfp4_blocks_of_8_bytes", "import.shape", blocks(DType::kU8, {kExperts, kRows, 1, 8}));
  add("mxfp4_blocks_i8", "import.dtype", blocks(DType::kI8, {kExperts, kRows, 1, 16}));
  add("mxfp4_blocks_f4", "import.dtype", blocks(DType::kF4, {kExperts, kRows, 1, 32}));
  add("mxfp4_blocks_empty", "import.shape", blocks(DType::kU8, {0, kRows, 1, 16}));
  add("mxfp4_scales_of_more_groups", "import.shape", scales(DType::kU8, {kExperts, kRows, 2}));
  add("mxfp4_scales_of_fewer_rows", "import.shape", scales(DType::kU8, {kExperts, kRows - 1, 1}));
  add("mxfp4_scales_of_one_expert", "import.shape", scales(DType::kU8, {1, kRows, 1}));
  add("mxfp4_scales_rank_2", "import.shape", scales(DType::kU8, {kExperts, kRows}));
  add("mxfp4_scales_e8m0", "import.dtype", scales(DType::kF8E8M0, {kExperts, kRows, 1}));
  TestTensor nan = scales(DType::kU8, {kExperts, kRows, 1});
  nan.set<uint8_t>(200, 0xFF);
  add("mxfp4_scale_nan", "import.scale_not_finite", nan);
  TinyModel model = mxfp4_model();
  model.remove(kGateUp + "_scales");
  list.add("mxfp4_without_scales", "import.missing", model, {"gate_up_proj_scales"});
  model = mxfp4_model();
  model.config.erase("quantization_config");
  list.add("mxfp4_without_quantization_config", "import.config", model, {"\"none\""});
  model = mxfp4_model();
  model.config["num_local_experts"] = 3;
  list.add("mxfp4_experts_other_than_config", "model.weight_shape", model, {"router"});
  model = mxfp4_model();
  model.tensor(kGateUp + "_blocks") = blocks(DType::kU8, {kExperts, kRows - 2, 1, 16});
  model.tensor(kGateUp + "_scales") = scales(DType::kU8, {kExperts, kRows - 2, 1});
  list.add("mxfp4_rows_other_than_config", "model.weight_shape", model, {"gate_up_proj"});
}

/// NF4 of bitsandbytes with blocks of 32, as many as a row has inputs.
TinyModel nf4_model(uint64_t blocksize = kHidden) {
  TinyModel model = dense_model(DType::kBF16);
  model.quantization() = {
      {"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}};
  model.up(".weight") =
      filled<uint8_t>(kName + ".weight", DType::kU8, {kInner * kHidden / 2, 1}, 0x77);
  const uint64_t blocks = kInner * kHidden / blocksize;
  model.tensors.push_back(filled<float>(kName + ".weight.absmax", DType::kF32, {blocks}, 0.5F));
  TestTensor map = filled<float>(kName + ".weight.quant_map", DType::kF32, {16}, 0);
  for (std::size_t i = 0; i < 16; ++i) {
    map.set(i, static_cast<float>(info(Format::kNF4).decode(static_cast<uint32_t>(i))));
  }
  model.tensors.push_back(map);
  const std::string state = R"({"quant_type": "nf4", "blocksize": )" + std::to_string(blocksize) +
                            R"(, "dtype": "bfloat16", "shape": [64, 32]})";
  model.tensors.push_back(
      {kName + ".weight.quant_state.bitsandbytes__nf4", DType::kU8, {state.size()}, state});
  return model;
}

void add_nf4(MetadataList& list) {
  list.section(69);
  TinyModel model = dense_model(DType::kBF16);
  model.up(".weight") =
      filled<uint8_t>(kName + ".weight", DType::kU8, {kInner * kHidden / 2, 1}, 0x77);
  list.add("nf4_bytes_alone", "dense.dtype", model, {"up_proj", "U8"});
  list.section(0);
  list.add("nf4_blocks_across_rows", {}, nf4_model(2 * kHidden));
  list.section(69);
  model = nf4_model();
  model.up(".weight.quant_map").set(4, 0.25F);
  list.add("nf4_another_table", "bnb_nf4.quant_map", model, {"code 4", "0.25"});
  model = nf4_model();
  model.up(".weight.absmax").set<uint32_t>(7, 0x7FC00000u);
  list.add("nf4_scale_nan", "import.scale_not_finite", model, {"block 7"});
  model = nf4_model();
  model.quantization()["bnb_4bit_use_double_quant"] = true;
  list.add("nf4_double_quant_by_label_only", "import.config", model, {"nested_absmax"});
  model = nf4_model();
  model.quantization()["bnb_4bit_quant_type"] = "fp4";
  list.add("nf4_labelled_fp4", "quantization.quant_type", model, {"fp4"});
  model = nf4_model();
  model.remove(kName + ".weight.absmax");
  list.add("nf4_without_absmax", "import.missing", model, {"absmax"});
  model = nf4_model();
  model.config.erase("quantization_config");
  list.add("nf4_without_quantization_config", "import.config", model, {"\"none\""});
}

void add_scales(MetadataList& list) {
  list.section(70);
  const auto add = [&](std::string_view name, TinyModel model, uint16_t pattern) {
    model.up(".scales").set<uint16_t>(kInner + 3, pattern);
    list.add(name, "import.scale_not_finite", model, {"up_proj.scales", "[1, 3]"});
  };
  add("awq_scale_nan", awq_model(), 0x7E00);
  add("awq_scale_signalling_nan", awq_model(), 0xFC01);
  add("awq_scale_infinite", awq_model(), 0x7C00);
  add("gptq_scale_nan", gptq_model(), 0xFE00);
  add("gptq_scale_minus_infinite", gptq_model(), 0xFC00);
  const auto with = [](DType dtype) {
    TinyModel model = awq_model();
    Random random(3);
    model.up(".scales") = random_floats(kName + ".scales", dtype, {2, kInner}, random);
    return model;
  };
  add("awq_bf16_scale_nan", with(DType::kBF16), 0x7FC0);
  add("awq_bf16_scale_infinite", with(DType::kBF16), 0xFF80);
  TinyModel model = with(DType::kF32);
  model.up(".scales").set<uint32_t>(5, 0x7F800001u);
  list.add("awq_f32_scale_nan", "import.scale_not_finite", model, {"[0, 5]"});
}

}  // namespace

void add_other_metadata(MetadataList& list) {
  add_awq(list);
  add_methods(list);
  add_mxfp4(list);
  add_nf4(list);
  add_scales(list);
}

}  // namespace subbyte::conformance
