#include "models/step_recorder.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "models/tensor_spec.h"

namespace subbyte {

StepRecorder::StepRecorder(const ModelConfig& config, const ModelWeights& weights)
    : config_(config),
      weights_(weights),
      rope_(std::make_shared<const Rope>(config.head_dim, config.rope_theta, config.rope_scaling)) {
}

ValueId StepRecorder::embed() {
  return record_.embed(kTable, weights_.matrix(kTable));
}

void StepRecorder::begin_layer(int64_t layer) {
  layer_ = layer;
  prefix_ = fmt::format("layers.{}.", layer);
  record_.set_prefix(prefix_);
}

ValueId StepRecorder::add_norm(std::string_view name, ValueId& x, ValueId delta) {
  return record_.add_norm(name, x, delta, norm(name));
}

ValueId StepRecorder::self_attention(ValueId h) {
  Recorder::Attention attention;
  attention.shape = {config_.num_heads, config_.num_kv_heads, config_.head_dim,
                     1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                     config_.windows[layer_]};
  attention.rope = rope_;
  attention.norms = {weights_.vector(in_layer("self_attn.q_norm")),
                     weights_.vector(in_layer("self_attn.k_norm")), config_.rms_norm_eps};
  attention.sinks = weights_.vector(in_layer("self_attn.sinks"));
  const ValueId qkv =
      record_.linear("self_attn.qkv_proj", h, weights_.matrix(in_layer("self_attn.qkv_proj")));
  const ValueId heads = record_.attention("self_attn", qkv, attention);
  return record_.linear("self_attn.o_proj", heads, weights_.matrix(in_layer("self_attn.o_proj")));
}

ValueId StepRecorder::gated_block(ValueId h) {
  const ValueId gated =
      record_.gated_linear("mlp.gate_up_proj", h, weights_.matrix(in_layer("mlp.gate_up_proj")));
  return record_.linear("mlp.down_proj", gated, weights_.matrix(in_layer("mlp.down_proj")));
}

ValueId StepRecorder::experts(std::string_view router, ValueId h) {
  const std::string name = fmt::format("mlp.{}", router);
  const ValueId logits = record_.exact_linear(name, h, weights_.matrix(in_layer(name)));
  return record_.experts("mlp.experts", h, logits, weights_.experts(in_layer("mlp.experts")));
}

Result<StepPlan> StepRecorder::finish(ValueId x, ValueId delta) && {
  record_.set_prefix("");
  prefix_.clear();
  const ValueId h = record_.head_norm(kFinalNorm, x, delta, norm(kFinalNorm));
  record_.logits(kHead, h, weights_.matrix(kHead));
  return std::move(record_).finish();
}

}  // namespace subbyte
