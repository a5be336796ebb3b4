// Classes 63 to 66: bits, groups, shapes and g_idx of GPTQ.

#include "conformance/metadata_set.h"

namespace subbyte::conformance {
namespace {

const std::string kName(kUp);

void add_bits(MetadataList& list) {
  list.section(63);
  const auto add = [&](std::string_view name, const json::Value& bits, std::string_view code) {
    TinyModel model = gptq_model();
    model.quantization()["bits"] = bits;
    list.add(name, code, model, {"bits"});
  };
  add("gptq_bits_0", 0, "quantization.bits");
  add("gptq_bits_1", 1, "quantization.bits");
  add("gptq_bits_5", 5, "quantization.bits");
  add("gptq_bits_16", 16, "quantization.bits");
  add("gptq_bits_negative", -4, "quantization.bits");
  add("gptq_bits_text", "4", "json.type");
  add("gptq_bits_fraction", 4.5, "json.type");
  add("gptq_bits_null", nullptr, "json.missing");
  add("gptq_bits_other_than_the_tensors", 8, "import.config");
  TinyModel model = awq_model();
  model.quantization()["bits"] = 8;
  list.add("awq_bits_8", "quantization.bits", model, {"bits"});
  model = gptq_model();
  model.quantization()["dynamic"] = {{"+:.*", {{"bits", 6}}}};
  list.add("gptq_override_bits_6", "quantization.bits", model, {"dynamic"});
}

void add_groups(MetadataList& list) {
  list.section(64);
  const auto add = [&](std::string_view name, const json::Value& size, std::string_view code) {
    TinyModel model = gptq_model();
    model.quantization()["group_size"] = size;
    list.add(name, code, model, {"group"});
  };
  add("gptq_group_0", 0, "quantization.group_size");
  add("gptq_group_minus_2", -2, "quantization.group_size");
  add("gptq_group_7", 7, "quantization.group_size");
  add("gptq_group_2_to_the_63", uint64_t{1} << 63, "json.range");
  add("gptq_group_text", "16", "json.type");
  add("gptq_group_null", nullptr, "json.missing");
  add("gptq_group_not_dividing", 24, "gptq.g_idx_counts");  // 32 inputs in 2 groups of 16
  add("gptq_group_other_than_the_tensors", 32, "import.config");
  add("gptq_group_whole_row_beside_2_groups", -1, "import.config");
  TinyModel model = awq_model();
  model.quantization()["group_size"] = 0;
  list.add("awq_group_0", "quantization.group_size", model);
  model = awq_model();
  model.quantization()["group_size"] = 24;
  list.add("awq_group_not_dividing", "import.shape", model, {"group size 24"});
  Random random(1);
  model = gptq_model({.with_g_idx = false});
  model.up(".scales") = random_floats(kName + ".scales", DType::kF16, {0, kInner}, random);
  model.up(".qzeros") = random_bits(kName + ".qzeros", DType::kI32, {0, kInner / 8}, random);
  list.add("gptq_0_groups", "import.shape", model, {"up_proj"});
  model = gptq_model({.with_g_idx = false});
  model.up(".scales") = random_floats(kName + ".scales", DType::kF16, {3, kInner}, random);
  model.up(".qzeros") = random_bits(kName + ".qzeros", DType::kI32, {3, kInner / 8}, random);
  list.add("gptq_3_groups", "import.config", model, {"3 groups"});
}

void add_shapes(MetadataList& list) {
  list.section(65);
  Random random(2);
  const auto ints = [&](std::string_view part, DType dtype, Shape shape) {
    return random_bits(kName + std::string(part), dtype, std::move(shape), random);
  };
  const auto add = [&](std::string_view name, std::string_view code, TestTensor tensor) {
    TinyModel model = gptq_model();
    model.tensor(tensor.name) = tensor;
    list.add(name, code, model, {"up_proj"});
  };
  add("gptq_qweight_i64", "import.dtype", ints(".qweight", DType::kI64, {4, kInner}));
  add("gptq_qweight_f32", "import.dtype", ints(".qweight", DType::kF32, {4, kInner}));
  add("gptq_qweight_rank_1", "import.shape", ints(".qweight", DType::kI32, {4 * kInner}));
  add("gptq_qweight_rank_3", "import.shape", ints(".qweight", DType::kI32, {1, 4, kInner}));
  add("gptq_qweight_transposed", "import.shape", ints(".qweight", DType::kI32, {kInner, 4}));
  add("gptq_qweight_one_output_less", "import.shape",
      ints(".qweight", DType::kI32, {4, kInner - 1}));
  add("gptq_qweight_of_64_inputs", "import.config", ints(".qweight", DType::kI32, {8, kInner}));
  add("gptq_qweight_empty", "import.shape", ints(".qweight", DType::kI32, {0, kInner}));
  add("gptq_qzeros_one_group_more", "import.shape", ints(".qzeros", DType::kI32, {3, kInner / 8}));
  add("gptq_qzeros_one_word_less", "import.shape",
      ints(".qzeros", DType::kI32, {2, kInner / 8 - 1}));
  add("gptq_qzeros_f16", "import.dtype", ints(".qzeros", DType::kF16, {2, kInner}));
  add("gptq_scales_i16", "import.dtype", ints(".scales", DType::kI16, {2, kInner}));
  add("gptq_scales_f64", "import.dtype", ints(".scales", DType::kF64, {2, kInner}));
  add("gptq_scales_rank_1", "import.shape",
      random_floats(kName + ".scales", DType::kF16, {2 * kInner}, random));
  add("gptq_scales_one_output_less", "import.shape",
      random_floats(kName + ".scales", DType::kF16, {2, kInner - 1}, random));
  for (const char* part : {".qzeros", ".scales"}) {
    TinyModel model = gptq_model();
    model.remove(kName + part);
    list.add(std::string("gptq_no_") + (part + 1), "import.missing", model, {part});
  }
  TinyModel model = gptq_model({.sym = true});
  model.quantization()["checkpoint_format"] = "gptq_v2";
  list.add("gptq_v1_zeros_labelled_v2", "gptq.version", model, {"gptq_v2", "stored as 7"});
  model = gptq_model({.v1 = false, .sym = true});
  model.quantization()["checkpoint_format"] = "gptq";
  list.add("gptq_v2_zeros_labelled_v1", "gptq.version", model, {"gptq_v2", "stored as 8"});
}

void add_g_idx(MetadataList& list) {
  list.section(66);
  const auto add = [&](std::string_view name, std::size_t index, int32_t value,
                       std::string_view code) {
    TinyModel model = gptq_model({.act_order = true});
    model.up(".g_idx").set(index, value);
    list.add(name, code, model, {"g_idx"});
  };
  add("g_idx_negative", 0, -1, "gptq.g_idx_range");
  add("g_idx_of_groups", 31, 2, "gptq.g_idx_range");
  add("g_idx_largest", 7, INT32_MAX, "gptq.g_idx_range");
  add("g_idx_smallest", 7, INT32_MIN, "gptq.g_idx_range");
  add("g_idx_unequal_groups", 1, 0, "gptq.g_idx_counts");
  const auto add_tensor = [&](std::string_view name, std::string_view code, TestTensor tensor) {
    TinyModel model = gptq_model({.act_order = true});
    model.up(".g_idx") = std::move(tensor);
    list.add(name, code, model, {"g_idx"});
  };
  const std::string name = kName + ".g_idx";
  add_tensor("g_idx_all_zero", "gptq.g_idx_counts",
             filled<int32_t>(name, DType::kI32, {kHidden}, 0));
  add_tensor("g_idx_short", "import.shape", filled<int32_t>(name, DType::kI32, {kHidden - 1}, 0));
  add_tensor("g_idx_long", "import.shape", filled<int32_t>(name, DType::kI32, {kHidden + 1}, 0));
  add_tensor("g_idx_empty", "import.shape", filled<int32_t>(name, DType::kI32, {0}, 0));
  add_tensor("g_idx_rank_2", "import.shape", filled<int32_t>(name, DType::kI32, {2, 16}, 0));
  add_tensor("g_idx_i64", "import.dtype", filled<int64_t>(name, DType::kI64, {kHidden}, 0));
  TinyModel model = gptq_model({.act_order = true});
  model.remove(name);
  list.add("g_idx_missing_beside_desc_act", "import.missing", model, {"desc_act", "g_idx"});
}

}  // namespace

void add_gptq_metadata(MetadataList& list) {
  add_bits(list);
  add_groups(list);
  add_shapes(list);
  add_g_idx(list);
}

}  // namespace subbyte::conformance
