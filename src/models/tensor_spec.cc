#include "models/tensor_spec.h"

#include <fmt/format.h>

#include <utility>

#include "models/model_config.h"

namespace subbyte {
namespace {

std::string in_layer(int64_t layer, std::string_view name) {
  return fmt::format("layers.{}.{}", layer, name);
}

}  // namespace

TensorList::TensorList(const ModelConfig& config, float norm_offset)
    : config_(config), norm_offset_(norm_offset) {
  specs_.push_back({.name = std::string(kTable),
                    .role = TensorRole::kTable,
                    .rows = config.vocab_size,
                    .cols = config.hidden_size});
}

void TensorList::norm(std::string name, int64_t size) {
  specs_.push_back(
      {.name = std::move(name), .role = TensorRole::kNorm, .rows = size, .offset = norm_offset_});
}

void TensorList::vector(std::string name, int64_t size) {
  specs_.push_back({.name = std::move(name), .role = TensorRole::kVector, .rows = size});
}

void TensorList::linear(std::string name, int64_t rows, int64_t cols, Split split, bool has_bias) {
  specs_.push_back({.name = std::move(name),
                    .rows = rows,
                    .cols = cols,
                    .split = split,
                    .may_be_quantized = true,
                    .has_bias = has_bias});
}

void TensorList::attention(int64_t layer, const Attention& attention) {
  const int64_t q_size = config_.num_heads * config_.head_dim;
  const int64_t q_rows = attention.has_gate ? 2 * q_size : q_size;
  const int64_t kv_size = config_.num_kv_heads * config_.head_dim;
  const std::string prefix = in_layer(layer, "self_attn.");
  specs_.push_back({.name = prefix + "qkv_proj",
                    .rows = q_rows + 2 * kv_size,
                    .cols = config_.hidden_size,
                    .split = Split::kOutputs,
                    .may_be_quantized = attention.may_be_quantized,
                    .has_bias = attention.has_bias,
                    .parts = {{prefix + "q_proj", q_rows},
                              {prefix + "k_proj", kv_size},
                              {prefix + "v_proj", kv_size}}});
  linear(prefix + "o_proj", config_.hidden_size, q_size, Split::kInputs, attention.has_output_bias);
  specs_.back().may_be_quantized = attention.may_be_quantized;
  if (attention.has_norms) {
    norm(prefix + "q_norm", config_.head_dim);
    norm(prefix + "k_norm", config_.head_dim);
  }
  if (attention.has_sinks) vector(prefix + "sinks", config_.num_heads);
}

void TensorList::block_norms(int64_t layer) {
  norm(in_layer(layer, "input_layernorm"), config_.hidden_size);
  norm(in_layer(layer, "post_attention_layernorm"), config_.hidden_size);
}

void TensorList::gated_block(int64_t layer, bool has_bias) {
  gated_block(in_layer(layer, "mlp."), config_.intermediate_size, has_bias);
}

void TensorList::shared_expert(int64_t layer) {
  const std::string prefix = in_layer(layer, "mlp.shared_expert");
  gated_block(prefix + ".", config_.shared_expert_size, false);
  linear(prefix + "_gate", 1, config_.hidden_size, Split::kNone, false);
  specs_.back().may_be_quantized = false;
}

void TensorList::delta_net(int64_t layer) {
  const DeltaNetShape& shape = config_.delta_net;
  const std::string prefix = in_layer(layer, "linear_attn.");
  const int64_t qkv = shape.channels();
  const int64_t z = shape.value_width();
  const int64_t gates = shape.value_heads;
  linear(prefix + "in_proj_qkvz", qkv + z, config_.hidden_size, Split::kOutputs, false);
  if (!shape.by_key_head) {
    specs_.back().name = prefix + "in_proj";  // which no file has: rows of in_proj_qkvz are others
    specs_.back().parts = {{prefix + "in_proj_qkv", qkv}, {prefix + "in_proj_z", z}};
  }
  linear(prefix + "in_proj_ba", 2 * gates, config_.hidden_size, Split::kOutputs, false);
  specs_.back().may_be_quantized = false;  // few rows that decide what is forgotten
  if (!shape.by_key_head) {
    specs_.back().name = prefix + "in_proj_gates";
    specs_.back().parts = {{prefix + "in_proj_b", gates}, {prefix + "in_proj_a", gates}};
  }
  specs_.push_back({.name = prefix + "conv1d",
                    .role = TensorRole::kFilters,
                    .rows = shape.channels(),
                    .cols = shape.taps});
  vector(prefix + "A_log", gates);
  vector(prefix + "dt_bias", gates);
  norm(prefix + "norm", shape.value_size);
  specs_.back().offset = 0;
  linear(prefix + "out_proj", config_.hidden_size, z, Split::kInputs, false);
}

void TensorList::gated_block(const std::string& prefix, int64_t inner, bool has_bias) {
  linear(prefix + "gate_up_proj", 2 * inner, config_.hidden_size, Split::kOutputs, has_bias);
  specs_.back().parts = {{prefix + "gate_proj", inner}, {prefix + "up_proj", inner}};
  linear(prefix + "down_proj", config_.hidden_size, inner, Split::kInputs, has_bias);
}

void TensorList::experts(int64_t layer, std::string_view router, bool has_bias) {
  const int64_t inner = config_.expert_size;
  const std::string prefix = in_layer(layer, "mlp.");
  specs_.push_back({.name = prefix + std::string(router),
                    .role = TensorRole::kRouter,
                    .rows = config_.num_experts,
                    .cols = config_.hidden_size,
                    .has_bias = has_bias});
  const std::string experts = prefix + "experts.";
  linear(experts + "gate_up_proj", 2 * inner, config_.hidden_size, Split::kOutputs, has_bias);
  specs_.back().parts = {{experts + "gate_proj", inner}, {experts + "up_proj", inner}};
  specs_.back().role = TensorRole::kExpertsGateUp;
  specs_.back().experts = config_.num_experts;
  linear(experts + "down_proj", config_.hidden_size, inner, Split::kInputs, has_bias);
  specs_.back().role = TensorRole::kExpertsDown;
  specs_.back().experts = config_.num_experts;
}

std::vector<TensorSpec> TensorList::finish() {
  norm(std::string(kFinalNorm), config_.hidden_size);
  specs_.push_back({.name = std::string(kHead),
                    .role = TensorRole::kHead,
                    .rows = config_.vocab_size,
                    .cols = config_.hidden_size,
                    .split = Split::kOutputs,
                    .tied_to = config_.tie_word_embeddings ? kTable : std::string_view(),
                    .is_untied_if_there = config_.contradicts_ties});
  return std::move(specs_);
}

}  // namespace subbyte
