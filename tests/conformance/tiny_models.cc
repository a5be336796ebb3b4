#include "conformance/tiny_models.h"

#include <algorithm>
#include <functional>

namespace subbyte::conformance {
namespace {

const std::string kLayer = "model.layers.0.";

/// Adds the tensors of the linear layer `module`.
using AddLinear =
    std::function<void(TinyModel& model, const std::string& module, uint64_t rows, uint64_t cols)>;

json::Value common_config(const char* model_type) {
  return {{"model_type", model_type},      {"hidden_size", kHidden},
          {"intermediate_size", kInner},   {"num_hidden_layers", 1},
          {"num_attention_heads", kHeads}, {"num_key_value_heads", kKvHeads},
          {"head_dim", kHeadDim},          {"vocab_size", kVocabulary},
          {"max_position_embeddings", 64}, {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000.0},         {"tie_word_embeddings", false},
          {"hidden_act", "silu"},          {"eos_token_id", 2}};
}

class Builder {
 public:
  Builder(TinyModel& model, DType dtype, uint64_t seed)
      : model_(model), dtype_(dtype), random_(seed) {}

  void floats(const std::string& name, Shape shape) {
    model_.tensors.push_back(random_floats(name, dtype_, std::move(shape), random_));
  }
  void add(TestTensor tensor) { model_.tensors.push_back(std::move(tensor)); }
  Random& random() { return random_; }

 private:
  TinyModel& model_;
  DType dtype_;
  Random random_;
};

void add_frame(TinyModel& model, DType dtype) {
  Builder builder(model, dtype, 1);
  builder.floats("model.embed_tokens.weight", {kVocabulary, kHidden});
  builder.floats("lm_head.weight", {kVocabulary, kHidden});
  builder.floats("model.norm.weight", {kHidden});
  builder.floats(kLayer + "input_layernorm.weight", {kHidden});
  builder.floats(kLayer + "post_attention_layernorm.weight", {kHidden});
}

/// Name, outputs and inputs of the four matrices of attention.
std::vector<std::tuple<std::string, uint64_t, uint64_t>> attention_matrices() {
  const std::string attention = kLayer + "self_attn.";
  return {{attention + "q_proj", kHeads * kHeadDim, kHidden},
          {attention + "k_proj", kKvHeads * kHeadDim, kHidden},
          {attention + "v_proj", kKvHeads * kHeadDim, kHidden},
          {attention + "o_proj", kHidden, kHeads * kHeadDim}};
}

TinyModel qwen3_model(DType dtype, const AddLinear& add_linear) {
  TinyModel model;
  model.config = common_config("qwen3");
  add_frame(model, dtype);
  Builder builder(model, dtype, 2);
  builder.floats(kLayer + "self_attn.q_norm.weight", {kHeadDim});
  builder.floats(kLayer + "self_attn.k_norm.weight", {kHeadDim});
  for (const auto& [name, rows, cols] : attention_matrices()) add_linear(model, name, rows, cols);
  add_linear(model, kLayer + "mlp.gate_proj", kInner, kHidden);
  add_linear(model, kLayer + "mlp.up_proj", kInner, kHidden);
  add_linear(model, kLayer + "mlp.down_proj", kHidden, kInner);
  return model;
}

/// gpt-oss without its experts.
TinyModel gpt_oss_frame() {
  TinyModel model;
  model.config = common_config("gpt_oss");
  model.config["num_local_experts"] = kExperts;
  model.config["num_experts_per_tok"] = 1;
  model.config["sliding_window"] = 8;
  add_frame(model, DType::kBF16);
  Builder builder(model, DType::kBF16, 3);
  for (const auto& [name, rows, cols] : attention_matrices()) {
    builder.floats(name + ".weight", {rows, cols});
    builder.floats(name + ".bias", {rows});
  }
  builder.floats(kLayer + "self_attn.sinks", {kHeads});
  builder.floats(kLayer + "mlp.router.weight", {kExperts, kHidden});
  builder.floats(kLayer + "mlp.router.bias", {kExperts});
  builder.floats(kLayer + "mlp.experts.gate_up_proj_bias", {kExperts, 2 * kInner});
  builder.floats(kLayer + "mlp.experts.down_proj_bias", {kExperts, kHidden});
  return model;
}

uint64_t groups_of(uint64_t cols, int64_t group_size) {
  return group_size == -1 ? 1 : cols / static_cast<uint64_t>(group_size);
}

/// A word full of the code `code`, as long as `bits` divides 32.
uint32_t repeated(uint32_t code, int bits) {
  uint32_t word = 0;
  for (int at = 0; at < 32; at += bits) word |= code << at;
  return word;
}

void add_gptq(TinyModel& model, const std::string& module, uint64_t rows, uint64_t cols,
              const GptqKind& kind) {
  Builder builder(model, DType::kF16, 4 + rows * 7 + cols);
  const auto bits = static_cast<uint64_t>(kind.bits);
  const uint64_t groups = groups_of(cols, kind.group_size);
  builder.add(
      random_bits(module + ".qweight", DType::kI32, {cols * bits / 32, rows}, builder.random()));
  const Shape shape = {groups, rows * bits / 32};
  if (kind.sym) {
    const uint32_t middle = uint32_t{1} << (kind.bits - 1);
    builder.add(filled(module + ".qzeros", DType::kI32, shape,
                       repeated(kind.v1 ? middle - 1 : middle, kind.bits)));
  } else {
    builder.add(random_bits(module + ".qzeros", DType::kI32, shape, builder.random()));
  }
  builder.floats(module + ".scales", {groups, rows});
  if (!kind.with_g_idx) return;
  std::vector<int32_t> index(cols);
  for (uint64_t k = 0; k < cols; ++k) {
    // With act-order the groups take turns.
    index[k] = static_cast<int32_t>(kind.act_order ? k % groups : k * groups / cols);
  }
  builder.add(int32_tensor(module + ".g_idx", {cols}, index));
}

}  // namespace

TestTensor& TinyModel::tensor(std::string_view name) {
  // A case that damages what is not there is a mistake in the case: .at() throws.
  const auto found = std::ranges::find(tensors, name, &TestTensor::name);
  return tensors.at(static_cast<std::size_t>(found - tensors.begin()));
}

void TinyModel::remove(std::string_view name) {
  std::erase_if(tensors, [&](const TestTensor& tensor) { return tensor.name == name; });
}

std::vector<std::pair<std::string, std::string>> TinyModel::files() const {
  std::vector<std::pair<std::string, std::string>> all = other_files;
  all.emplace_back("config.json", json::to_text(config, 1) + "\n");
  all.emplace_back("model.safetensors", tensor_file(tensors));
  return all;
}

TinyModel dense_model(DType dtype) {
  return qwen3_model(
      dtype, [dtype](TinyModel& model, const std::string& module, uint64_t rows, uint64_t cols) {
        Builder builder(model, dtype, rows + cols);
        builder.floats(module + ".weight", {rows, cols});
      });
}

TinyModel awq_model(int64_t group_size) {
  TinyModel model = qwen3_model(DType::kF16, [group_size](TinyModel& made,
                                                          const std::string& module, uint64_t rows,
                                                          uint64_t cols) {
    Builder builder(made, DType::kF16, rows * 5 + cols);
    const uint64_t groups = groups_of(cols, group_size);
    builder.add(random_bits(module + ".qweight", DType::kI32, {cols, rows / 8}, builder.random()));
    builder.add(random_bits(module + ".qzeros", DType::kI32, {groups, rows / 8}, builder.random()));
    builder.floats(module + ".scales", {groups, rows});
  });
  model.quantization() = {{"quant_method", "awq"},
                          {"bits", 4},
                          {"group_size", group_size},
                          {"zero_point", true},
                          {"version", "gemm"}};
  return model;
}

TinyModel gptq_model(const GptqKind& kind) {
  TinyModel model =
      qwen3_model(DType::kF16, [&](TinyModel& made, const std::string& module, uint64_t rows,
                                   uint64_t cols) { add_gptq(made, module, rows, cols, kind); });
  model.quantization() = {
      {"quant_method", "gptq"},        {"bits", kind.bits},
      {"group_size", kind.group_size}, {"sym", kind.sym},
      {"desc_act", kind.act_order},    {"checkpoint_format", kind.v1 ? "gptq" : "gptq_v2"}};
  return model;
}

TinyModel mxfp4_model() {
  TinyModel model = gpt_oss_frame();
  Builder builder(model, DType::kBF16, 5);
  const std::string name = kLayer + "mlp.experts.";
  const auto add = [&](const std::string& module, uint64_t rows, uint64_t cols) {
    builder.add(random_bits(module + "_blocks", DType::kU8, {kExperts, rows, cols / 32, 16},
                            builder.random()));
    builder.add(filled<uint8_t>(module + "_scales", DType::kU8, {kExperts, rows, cols / 32}, 122));
  };
  add(name + "gate_up_proj", 2 * kInner, kHidden);
  add(name + "down_proj", kHidden, kInner);
  model.quantization() = {{"quant_method", "mxfp4"}};
  return model;
}

TinyModel dequantized_gpt_oss() {
  TinyModel model = gpt_oss_frame();
  Builder builder(model, DType::kBF16, 6);
  const std::string name = kLayer + "mlp.experts.";
  builder.floats(name + "gate_up_proj", {kExperts, kHidden, 2 * kInner});
  builder.floats(name + "down_proj", {kExperts, kInner, kHidden});
  return model;
}

}  // namespace subbyte::conformance
