// Class 71: config.json, and weights that do not fit it.

#include "conformance/metadata_set.h"

namespace subbyte::conformance {
namespace {

const std::string kName(kUp);

class ConfigList {
 public:
  explicit ConfigList(MetadataList& list) : list_(list) {}

  /// One key of config.json replaced.
  void change(std::string_view name, const char* key, const json::Value& value,
              std::string_view code) {
    TinyModel model = awq_model();
    model.config[key] = value;
    list_.add(name, code, model, {key});
  }
  void erase(std::string_view name, const char* key, std::string_view code) {
    TinyModel model = awq_model();
    model.config.erase(key);
    list_.add(name, code, model, {key});
  }
  /// A config.json of this text.
  void text(std::string_view name, std::string text, std::string_view code) {
    auto files = awq_model().files();
    for (auto& [file, content] : files) {
      if (file == "config.json") content = text;
    }
    list_.add_files(name, code, std::move(files), {"config.json"});
  }
  MetadataList& list() { return list_; }

 private:
  MetadataList& list_;
};

void add_sizes(ConfigList& list) {
  list.change("layers_0", "num_hidden_layers", 0, "json.range");
  list.change("layers_negative", "num_hidden_layers", -1, "json.range");
  list.change("layers_2_to_the_31", "num_hidden_layers", uint64_t{1} << 31, "json.range");
  list.change("layers_2_to_the_64", "num_hidden_layers", 1e20, "json.type");
  list.change("layers_text", "num_hidden_layers", "1", "json.type");
  list.change("layers_fraction", "num_hidden_layers", 1.5, "json.type");
  list.erase("layers_missing", "num_hidden_layers", "json.missing");
  list.change("hidden_size_0", "hidden_size", 0, "json.range");
  list.change("hidden_size_array", "hidden_size", json::Value::array({32}), "json.type");
  list.change("intermediate_size_null", "intermediate_size", nullptr, "json.missing");
  list.change("heads_0", "num_attention_heads", 0, "json.range");
  list.change("heads_not_dividing", "num_attention_heads", 5, "config.heads");
  list.change("kv_heads_0", "num_key_value_heads", 0, "json.range");
  list.change("kv_heads_not_dividing", "num_key_value_heads", 3, "config.heads");
  list.change("kv_heads_more_than_heads", "num_key_value_heads", 8, "config.heads");
  list.change("head_dim_0", "head_dim", 0, "json.range");
  list.change("head_dim_odd", "head_dim", 15, "config.heads");
  list.change("head_dim_huge", "head_dim", int64_t{1} << 40, "json.range");
  list.change("vocabulary_0", "vocab_size", 0, "json.range");
  list.change("eos_beyond_vocabulary", "eos_token_id", kVocabulary, "config.eos_token_id");
  list.change("eos_negative", "eos_token_id", -1, "config.eos_token_id");
  list.change("eos_text", "eos_token_id", "2", "config.eos_token_id");
  list.change("positions_0", "max_position_embeddings", 0, "json.range");
}

void add_numbers(ConfigList& list) {
  list.change("rope_theta_0", "rope_theta", 0, "json.range");
  list.change("rope_theta_negative", "rope_theta", -10000, "json.range");
  list.change("rope_theta_1", "rope_theta", 1, "json.range");
  list.change("rope_theta_nan_text", "rope_theta", "NaN", "json.type");
  list.change("eps_0", "rms_norm_eps", 0, "json.range");
  list.change("eps_negative", "rms_norm_eps", -1e-6, "json.range");
  list.change("eps_tiny", "rms_norm_eps", 1e-13, "json.range");
  list.change("eps_text", "rms_norm_eps", "1e-6", "json.type");
  list.change("tied_text", "tie_word_embeddings", "false", "json.type");
  list.change("tied_number", "tie_word_embeddings", 0, "json.type");
  list.change("activation_unknown", "hidden_act", "relu", "config.hidden_act");
  list.change("model_type_unknown", "model_type", "falcon", "config.model_type");
  list.change("model_type_number", "model_type", 3, "json.type");
  list.erase("model_type_missing", "model_type", "json.missing");
  list.change("rope_type_unknown", "rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}},
              "config.rope");
  list.change("rope_factor_missing", "rope_scaling", {{"rope_type", "linear"}}, "json.missing");
  list.change("rope_factor_0", "rope_scaling", {{"rope_type", "yarn"}, {"factor", 0}},
              "json.range");
  list.change("rope_scaling_text", "rope_scaling", "yarn", "json.type");
  list.change("layer_types_too_many", "layer_types",
              json::Value::array({"full_attention", "full_attention"}), "config.layer_types");
  list.change("layer_types_empty", "layer_types", json::Value::array(), "config.layer_types");
  list.change("layer_types_unknown", "layer_types", json::Value::array({"linear_attention"}),
              "config.layer_types");
  list.change("layer_types_window_of_no_size", "layer_types",
              json::Value::array({"sliding_attention"}), "config.layer_types");
  list.change("sliding_window_negative", "sliding_window", -1, "json.range");
  TinyModel model = mxfp4_model();
  model.config["num_experts_per_tok"] = kExperts + 1;
  list.list().add("more_experts_per_token_than_experts", "json.range", model, {"num_experts"});
  model = mxfp4_model();
  model.config["num_local_experts"] = 0;
  list.list().add("experts_0", "json.range", model, {"num_local_experts"});
}

void add_text(ConfigList& list) {
  const std::string good = awq_model().config.text();
  list.text("empty", "", "json.syntax");
  list.text("array", "[]", "json.type");
  list.text("cut", good.substr(0, good.size() / 2), "json.syntax");
  list.text("two_objects", good + good, "json.syntax");
  list.text("byte_order_mark", "\xEF\xBB\xBF" + good, "json.syntax");
  list.text("latin_1",
            R"({"model_type": "qwen3", "author": ")"
            "\xE9"
            R"("})",
            "json.utf8");
  list.text("nan", R"({"model_type": "qwen3", "rope_theta": NaN})", "json.syntax");
  list.text("duplicate_key", R"({"num_hidden_layers": 1, )" + good.substr(1), "json.duplicate_key");
  list.text("nested_too_deep",
            R"({"model_type": )" + std::string(10'000, '[') + std::string(10'000, ']') + "}",
            "json.depth");
  auto files = awq_model().files();
  std::erase_if(files, [](const auto& file) { return file.first == "config.json"; });
  list.list().add_files("no_config", "file.not_found", std::move(files), {"config.json"});
  TinyModel model = awq_model();
  model.other_files.emplace_back("generation_config.json", R"({"eos_token_id": 16})");
  list.list().add("generation_config_eos", "config.eos_token_id", model,
                  {"generation_config.json"});
}

void add_weights(MetadataList& list) {
  Random random(1);
  const auto add = [&](std::string_view name, std::string_view code, TestTensor tensor) {
    TinyModel model = dense_model(DType::kBF16);
    model.tensor(tensor.name) = tensor;
    list.add(name, code, model, {tensor.name.substr(0, tensor.name.rfind('.'))});
  };
  const auto floats = [&](std::string name, Shape shape) {
    return random_floats(std::move(name), DType::kBF16, std::move(shape), random);
  };
  const std::string layer = "model.layers.0.";
  add("embedding_of_fewer_tokens", "model.weight_shape",
      floats("model.embed_tokens.weight", {kVocabulary - 1, kHidden}));
  add("embedding_of_another_width", "model.weight_shape",
      floats("model.embed_tokens.weight", {kVocabulary, kHidden + 8}));
  add("head_of_more_tokens", "model.weight_shape",
      floats("lm_head.weight", {kVocabulary + 1, kHidden}));
  add("matrix_transposed", "model.weight_shape", floats(kName + ".weight", {kHidden, kInner}));
  add("matrix_rank_1", "import.shape", floats(kName + ".weight", {kHidden * kInner}));
  add("matrix_empty", "import.shape", floats(kName + ".weight", {0, kHidden}));
  add("norm_of_another_width", "import.shape", floats("model.norm.weight", {kHidden - 1}));
  add("norm_rank_2", "import.shape", floats("model.norm.weight", {1, kHidden}));
  add("norm_i32", "dense.dtype",
      filled<int32_t>(layer + "input_layernorm.weight", DType::kI32, {kHidden}, 1));
  add("q_norm_of_all_heads", "import.shape",
      floats(layer + "self_attn.q_norm.weight", {kHeads * kHeadDim}));
  add("matrix_f8", "dense.dtype",
      random_bits(kName + ".weight", DType::kF8E4M3, {kInner, kHidden}, random));
}

void add_missing(MetadataList& list) {
  const std::string layer = "model.layers.0.";
  for (const char* name :
       {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
        "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.k_norm.weight"}) {
    TinyModel model = dense_model(DType::kBF16);
    model.remove(name);
    const std::string_view full(name);
    std::string short_name(full.substr(0, full.rfind('.')));
    short_name = short_name.substr(short_name.rfind('.') + 1);
    list.add("missing_" + short_name, "import.missing", model, {short_name});
  }
  TinyModel model = dense_model(DType::kBF16);
  model.config["num_hidden_layers"] = 2;
  list.add("missing_layer", "import.missing", model, {"model.layers.1."});
  model = dense_model(DType::kBF16);
  model.tensors.push_back(
      filled<uint16_t>(layer + "self_attn.q_proj.bias", DType::kBF16, {kHeads * kHeadDim}, 0));
  model.tensors.back().set<uint16_t>(7, 0x8000);  // -0
  list.section(0);
  list.add("bias_of_zeros", {}, model);
  list.section(71);
  model.tensors.back().set<uint16_t>(7, 0x0001);
  list.add("bias_too_many", "model.surplus", model, {"q_proj"});
  model = mxfp4_model();
  model.remove(layer + "self_attn.q_proj.bias");
  list.add("bias_missing", "import.missing", model, {"q_proj.bias"});
  model = mxfp4_model();
  model.remove(layer + "self_attn.sinks");
  list.add("sinks_missing", "import.missing", model, {"sinks"});
  model = awq_model();
  const TinyModel donor = awq_model();
  model.remove("model.embed_tokens.weight");
  for (TestTensor tensor : donor.tensors) {
    // A matrix of 16 outputs fits the vocabulary: a quantized embedding.
    if (!tensor.name.starts_with(kName + ".")) continue;
    const std::string part = tensor.name.substr(kName.size());
    tensor.shape.back() = tensor.shape.back() * kVocabulary / kInner;
    tensor.bytes.resize(bytes_of(tensor.dtype, tensor.shape));
    tensor.name = "model.embed_tokens" + part;
    model.tensors.push_back(tensor);
  }
  list.section(0);
  list.add("embedding_quantized", {}, model);
  list.section(71);
}

}  // namespace

void add_config_metadata(MetadataList& list) {
  list.section(71);
  ConfigList config(list);
  add_sizes(config);
  add_numbers(config);
  add_text(config);
  add_weights(list);
  add_missing(list);
}

}  // namespace subbyte::conformance
