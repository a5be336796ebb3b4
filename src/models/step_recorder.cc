#include "models/step_recorder.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "models/tensor_spec.h"

namespace subbyte {

StepRecorder::StepRecorder(const ModelConfig& config, const ModelWeights& weights)
    : config_(config),
      weights_(weights),
      rope_(std::make_shared<const Rope>(config.rotary_dim, config.rope_theta,
                                         config.rope_scaling)) {}

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

namespace {

/// Of heads of queries each with its gate, and of keys and values after them: all but the gates, or
/// the gates alone.
std::vector<ColumnsOp::Range> query_columns(const AttentionShape& shape, bool is_gate) {
  std::vector<ColumnsOp::Range> ranges;
  for (int64_t head = 0; head < shape.heads; ++head) {
    ranges.push_back({(2 * head + (is_gate ? 1 : 0)) * shape.head_dim, shape.head_dim});
  }
  if (!is_gate) ranges.push_back({2 * shape.q_size(), 2 * shape.kv_size()});
  return ranges;
}

}  // namespace

ValueId StepRecorder::self_attention(ValueId h, bool has_gate) {
  Recorder::Attention attention;
  attention.shape = {config_.num_heads, config_.num_kv_heads, config_.head_dim,
                     1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                     config_.windows[layer_]};
  attention.rope = rope_;
  attention.norms = {weights_.vector(in_layer("self_attn.q_norm")),
                     weights_.vector(in_layer("self_attn.k_norm")), config_.rms_norm_eps};
  attention.sinks = weights_.vector(in_layer("self_attn.sinks"));
  ValueId qkv = linear("self_attn.qkv_proj", h);
  ValueId gate = kNoValue;
  if (has_gate) {
    gate = record_.columns("self_attn.gate", qkv, query_columns(attention.shape, true));
    qkv = record_.columns("self_attn.qkv", qkv, query_columns(attention.shape, false));
  }
  ValueId heads = record_.attention("self_attn", qkv, attention);
  if (has_gate) heads = record_.sigmoid_gate("self_attn.gated", heads, gate);
  return linear("self_attn.o_proj", heads);
}

ValueId StepRecorder::delta_net(ValueId h) {
  const auto vector = [this](const char* name) {
    return weights_.vector(in_layer(std::string("linear_attn.") + name));
  };
  const bool joined = config_.delta_net.by_key_head;
  const ValueId qkvz = linear(joined ? "linear_attn.in_proj_qkvz" : "linear_attn.in_proj", h);
  const ValueId ba = linear(joined ? "linear_attn.in_proj_ba" : "linear_attn.in_proj_gates", h);
  const ValueId heads =
      record_.delta_net("linear_attn", qkvz, ba, config_.delta_net,
                        {vector("conv1d"), vector("A_log"), vector("dt_bias"), vector("norm")});
  return linear("linear_attn.out_proj", heads);
}

ValueId StepRecorder::gated_block(ValueId h) {
  return gated_block("mlp.", h);
}

ValueId StepRecorder::gated_block(std::string_view prefix, ValueId h) {
  const std::string gate_up = fmt::format("{}gate_up_proj", prefix);
  const ValueId gated = record_.gated_linear(gate_up, h, weights_.matrix(in_layer(gate_up)));
  return linear(fmt::format("{}down_proj", prefix), gated);
}

ValueId StepRecorder::experts_and_shared(std::string_view router, ValueId h) {
  const std::string name = "mlp.shared_expert_gate";
  const ValueId gate = record_.exact_linear(name, h, weights_.matrix(in_layer(name)));
  const ValueId experts = this->experts(router, h);
  const ValueId shared = gated_block("mlp.shared_expert.", h);
  return record_.sigmoid_gate("mlp.shared_expert.gated", shared, gate, experts);
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
