#include "models/step_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/float16.h"
#include "models/model_family.h"

namespace subbyte {

AttentionShape attention_shape(const ModelConfig& config, int64_t layer) {
  return {config.num_heads, config.num_kv_heads, config.head_dim,
          1.0f / std::sqrt(static_cast<float>(config.head_dim)), config.windows[layer]};
}

float StepRecorder::root_of(int64_t width) const {
  const float root = std::sqrt(static_cast<float>(width));
  if (config_.is_in_f32) return root;
  if (facts_.table == Format::kBF16) return to_float(to_bfloat16(root));
  return facts_.table == Format::kF16 ? to_float(to_float16(root)) : root;
}

// ---- weights

int64_t StepRecorder::bytes_of(std::string_view name) const {
  if (bytes_ == nullptr) return 0;
  const auto found = bytes_->find(name);
  return found == bytes_->end() ? 0 : found->second;
}

Weight StepRecorder::matrix(TensorSpec spec) {
  Weight weight = {spec.rows, spec.cols, bytes_of(spec.name), nullptr};
  if (weight.bytes == 0) weight.bytes = bytes_of(spec.tied_to);
  if (weights_ != nullptr) weight = weights_->matrix(spec.name);
  tensors_.push_back(std::move(spec));
  return weight;
}

Weight StepRecorder::matrix(std::string_view name, int64_t rows, int64_t cols,
                            const Linear& linear) {
  TensorSpec spec = {.name = in_layer(name),
                     .rows = rows,
                     .cols = cols,
                     .may_be_quantized = linear.may_be_quantized,
                     .has_bias = linear.has_bias};
  for (const PartSpec& part : linear.parts) spec.parts.push_back({in_layer(part.name), part.rows});
  return matrix(std::move(spec));
}

Vector StepRecorder::vector(TensorSpec spec) {
  Vector vector = {spec.rows * (spec.role == TensorRole::kFilters ? spec.cols : 1), nullptr};
  if (weights_ != nullptr) vector = weights_->vector(spec.name);
  tensors_.push_back(std::move(spec));
  return vector;
}

Norm StepRecorder::norm_of(std::string_view name, int64_t size) {
  Norm norm = {vector({.name = in_layer(name),
                       .role = TensorRole::kNorm,
                       .rows = size,
                       .offset = stream_.norm_offset}),
               config_.rms_norm_eps, stream_.is_centred};
  if (stream_.has_norm_bias) {
    norm.bias =
        vector({.name = in_layer(name) + ".bias", .role = TensorRole::kVector, .rows = size});
  }
  return norm;
}

Experts StepRecorder::experts(int64_t hidden, const Mixture& mixture) {
  const auto under = [&](std::string_view name) {
    return in_layer(fmt::format("{}{}", mixture.prefix, name));
  };
  TensorSpec gate_up = {
      .name = under(mixture.joined),
      .role = TensorRole::kExpertsGateUp,
      .rows = 2 * mixture.inner,
      .cols = hidden,
      .experts = mixture.experts,
      .use = mixture.use,
      .may_be_quantized = true,
      .has_bias = mixture.has_bias,
      .parts = {{under(mixture.gate_name), mixture.inner}, {under(mixture.up), mixture.inner}}};
  if (!is_gated(mixture.use.gate)) {
    gate_up.name = under(mixture.up);
    gate_up.rows = mixture.inner;
    gate_up.parts.clear();
  }
  const TensorSpec down = {.name = under(mixture.down),
                           .role = TensorRole::kExpertsDown,
                           .rows = hidden,
                           .cols = mixture.inner,
                           .experts = mixture.experts,
                           .use = mixture.use,
                           .may_be_quantized = true,
                           .has_bias = mixture.has_bias};
  tensors_.insert(tensors_.end(), {gate_up, down});
  if (weights_ != nullptr) return weights_->experts(down.parent());
  return {.count = mixture.experts,
          .top_k = mixture.use.per_token,
          .hidden = hidden,
          .inner = mixture.inner,
          .storage = nullptr,
          .has_two_formats = facts_.has_two_formats,
          .bytes = bytes_of(gate_up.name) + bytes_of(down.name)};
}

// ---- the stream

ValueId StepRecorder::embed(const Stream& stream) {
  stream_ = stream;
  const Weight table = matrix({.name = std::string(kTable),
                               .role = TensorRole::kTable,
                               .rows = config_.vocab_size,
                               .cols = config_.hidden_size});
  return record_.embed(kTable, table, stream.embedding_factor);
}

ValueId StepRecorder::embed_far(std::string_view name, int64_t cols, float factor) {
  const Weight table = matrix({.name = std::string(name),
                               .role = TensorRole::kTable,
                               .rows = config_.vocab_size,
                               .cols = cols,
                               .is_far = true});
  return record_.embed(name, table, factor);
}

void StepRecorder::begin_layer(int64_t layer) {
  prefix_ = fmt::format("layers.{}.", layer);
  record_.set_prefix(prefix_);
}

ValueId StepRecorder::add_norm(std::string_view name, ValueId& x, ValueId delta) {
  return record_.add_norm(name, x, delta, norm_of(name, config_.hidden_size),
                          stream_.residual_factor, std::exchange(scale_, {}));
}

ValueId StepRecorder::scaled_norm(std::string_view name, ValueId x, float factor) {
  const Vector factors = vector({.name = in_layer(name),
                                 .role = TensorRole::kFactors,
                                 .rows = config_.hidden_size,
                                 .factor = factor});
  return record_.add_norm(name, x, kNoValue, {factors, config_.rms_norm_eps});
}

void StepRecorder::scale_next_sum(std::string_view name) {
  scale_ = vector({.name = in_layer(name), .role = TensorRole::kFactors, .rows = 1});
}

ValueId StepRecorder::add(std::string_view name, ValueId& x, ValueId delta) {
  return record_.activations(name, x, delta, stream_.residual_factor);
}

ValueId StepRecorder::norm(std::string_view name, ValueId delta) {
  return record_.norm(name, delta, norm_of(name, record_.cols(delta)));
}

ValueId StepRecorder::norm_runs(std::string_view name, ValueId x, int64_t cols, float eps_factor) {
  Norm norm = norm_of(name, cols);
  norm.eps *= eps_factor;
  return record_.norm(name, x, norm, record_.cols(x) / cols);
}

ValueId StepRecorder::linear(std::string_view name, ValueId h, int64_t rows, const Linear& linear) {
  return record_.linear(name, h, matrix(name, rows, record_.cols(h), linear));
}

void StepRecorder::finish(ValueId x, ValueId delta, const Logits& logits) {
  record_.set_prefix("");
  prefix_.clear();
  const ValueId h =
      record_.head_norm(logits.norm, x, delta, norm_of(logits.norm, config_.hidden_size),
                        stream_.residual_factor, std::exchange(scale_, {}));
  const Weight head = matrix({.name = std::string(kHead),
                              .role = TensorRole::kHead,
                              .rows = config_.vocab_size,
                              .cols = config_.hidden_size,
                              .has_bias = logits.has_bias,
                              .tied_to = config_.tie_word_embeddings ? kTable : std::string_view(),
                              .is_untied_if_there = config_.contradicts_ties});
  record_.logits(kHead, h, head, logits.factor, logits.cap);
}

// ---- blocks

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

/// "self_attn" of "self_attn."
std::string_view without_dot(std::string_view prefix) {
  return prefix.substr(0, prefix.size() - 1);
}

}  // namespace

/// Of a token what its projections give: queries, with their gates, then keys and values.
ValueId StepRecorder::projected_heads(ValueId h, const Attention& attention) {
  const AttentionShape& shape = attention.shape;
  const auto under = [&](std::string_view name) { return attention.prefix + std::string(name); };
  const int64_t q_rows = attention.has_gate ? 2 * shape.q_size() : shape.q_size();
  Linear linear_of = {.has_bias = config_.attention_bias,
                      .may_be_quantized = attention.may_be_quantized};
  if (attention.keys_of >= 0) return linear(under("q_proj"), h, q_rows, linear_of);
  linear_of.parts = {{under("q_proj"), q_rows}, {under("k_proj"), shape.kv_size()}};
  if (!attention.values_are_keys) linear_of.parts.push_back({under("v_proj"), shape.kv_size()});
  int64_t rows = 0;
  for (const PartSpec& part : linear_of.parts) rows += part.rows;
  const ValueId heads = linear(under("qkv_proj"), h, rows, linear_of);
  if (!attention.values_are_keys) return heads;
  return record_.columns(under("values"), heads, {{0, rows}, {q_rows, shape.kv_size()}});
}

ValueId StepRecorder::attention(ValueId h, const Attention& attention) {
  const auto under = [&](std::string_view name) { return attention.prefix + std::string(name); };
  AttentionShape shape = attention.shape;
  shape.has_keys = attention.keys_of < 0;
  ValueId qkv = projected_heads(h, attention);
  Recorder::Attention recorded;
  recorded.shape = shape;
  recorded.rope = attention.rope;
  recorded.pairs = attention.pairs;
  recorded.query_scale = attention.query_scale;
  if (!shape.has_keys) recorded.source = caches_[attention.keys_of];
  recorded.norms.has_values = attention.norms_values && shape.has_keys;
  recorded.norms.eps = config_.rms_norm_eps;
  const std::string q_norm = under(attention.q_norm);
  const std::string k_norm = under(attention.k_norm);
  if (attention.norms == HeadsNorm::kEach || attention.norms == HeadsNorm::kEachAfterRope) {
    const Norm q = norm_of(q_norm, shape.head_dim);
    recorded.norms.q = q.weight;
    if (shape.has_keys) recorded.norms.k = norm_of(k_norm, shape.head_dim).weight;
    recorded.norms.are_after_rope = attention.norms == HeadsNorm::kEachAfterRope;
  }
  if (attention.norms == HeadsNorm::kPlainAfterRope) {
    recorded.norms.are_after_rope = recorded.norms.are_plain = true;
  }
  if (attention.norms == HeadsNorm::kAll) {
    const Norm q = norm_of(q_norm, shape.q_size());
    const Norm k = norm_of(k_norm, shape.kv_size());
    qkv = record_.norm_columns(q_norm, qkv, 0, q);
    qkv = record_.norm_columns(k_norm, qkv, shape.q_size(), k);
  }
  if (attention.has_sinks) {
    recorded.sinks = vector(
        {.name = in_layer(under("sinks")), .role = TensorRole::kVector, .rows = shape.heads});
  }
  ValueId gate = kNoValue;
  if (attention.has_gate) {
    gate = record_.columns(under("gate"), qkv, query_columns(shape, true));
    qkv = record_.columns(under("qkv"), qkv, query_columns(shape, false));
  }
  ValueId heads = record_.attention(without_dot(attention.prefix), qkv, recorded);
  caches_.push_back(record_.last_cache());
  if (attention.has_gate) heads = record_.sigmoid_gate(under("gated"), heads, gate);
  return linear(under(attention.output), heads, config_.hidden_size,
                {.has_bias = attention.has_output_bias.value_or(config_.attention_bias),
                 .may_be_quantized = attention.may_be_quantized});
}

ValueId StepRecorder::latent_attention(ValueId h, const LatentAttention& a) {
  const auto norm = [&](std::string_view name, int64_t size) {
    Norm found = norm_of(name, size);
    found.eps = a.norm_eps;
    return found;
  };
  const int64_t turning = a.rope->dim();
  const int64_t q_rows = a.heads * (a.nope + turning);
  ValueId q = kNoValue;
  if (a.query_rank > 0) {
    q = linear("self_attn.q_a_proj", h, a.query_rank, {.has_bias = config_.attention_bias});
    q = record_.norm("self_attn.q_a_layernorm", q, norm("self_attn.q_a_layernorm", a.query_rank));
    if (a.indexer.heads > 0 && a.selects) selected_ = selection(h, q, a);
    q = linear("self_attn.q_b_proj", q, q_rows, {});
  } else {
    q = linear("self_attn.q_proj", h, q_rows, {});
  }
  ValueId latent = linear("self_attn.kv_a_proj_with_mqa", h, a.rank + turning,
                          {.has_bias = config_.attention_bias});
  latent = record_.norm_columns("self_attn.kv_a_layernorm", latent, 0,
                                norm("self_attn.kv_a_layernorm", a.rank));
  Recorder::Attention attention;
  attention.shape.scale = a.scale;
  attention.latent = {.heads = a.heads,
                      .rank = a.rank,
                      .turning = turning,
                      .nope = a.nope,
                      .value = a.value,
                      .top = a.indexer.top};
  const LatentWeights both = latent_weights("self_attn.kv_b_proj", a);
  attention.latent_keys = both.keys;
  attention.latent_values = both.values;
  attention.rope = a.rope;
  attention.pairs = a.pairs;
  attention.query_scale = a.query_scale;
  if (a.indexer.heads > 0) attention.selected = selected_;
  const ValueId heads =
      record_.latent_attention("self_attn", "self_attn.kv_b_proj", q, latent, attention);
  return linear("self_attn.o_proj", heads, config_.hidden_size,
                {.has_bias = config_.attention_bias});
}

ValueId StepRecorder::selection(ValueId h, ValueId rank, const LatentAttention& a) {
  const Indexer& indexer = a.indexer;
  const auto norm_numbers = [&](const char* name, TensorRole role) {
    return vector({.name = in_layer(name), .role = role, .rows = indexer.head_dim});
  };
  const std::string name = "self_attn.indexer";
  const ValueId q = linear(name + ".wq_b", rank, indexer.heads * indexer.head_dim, {});
  const Weight wk = matrix(name + ".wk", indexer.head_dim, record_.cols(h), {});
  ValueId k = record_.add(name + ".wk", LinearOp{.x = h, .weight = wk, .type = ValueType::kFloat});
  const Norm norm = {norm_numbers("self_attn.indexer.k_norm", TensorRole::kNorm), 1e-6f, true,
                     norm_numbers("self_attn.indexer.k_norm.bias", TensorRole::kVector)};
  k = record_.add_norm(name + ".k_norm", k, kNoValue, norm);
  const Weight weights =
      matrix(name + ".weights_proj", indexer.heads, record_.cols(h), {.may_be_quantized = false});
  const ValueId of_heads = record_.exact_linear(name + ".weights_proj", h, weights);
  const AttentionShape shape = {
      .heads = indexer.heads, .kv_heads = 1, .head_dim = indexer.head_dim, .top = indexer.top};
  return record_.selection(name, q, k, of_heads, shape, a.rope, indexer.pairs);
}

LatentWeights StepRecorder::latent_weights(std::string_view name, const LatentAttention& a) {
  TensorSpec spec = {.name = in_layer(name),
                     .rows = a.heads * (a.nope + a.value),
                     .cols = a.rank,
                     .may_be_quantized = true,
                     .latent = {a.heads, a.nope, a.value}};
  const int64_t bytes = bytes_of(spec.name);
  const int64_t of_keys = bytes * a.nope / std::max<int64_t>(a.nope + a.value, 1);
  LatentWeights both = {.keys = {a.heads * a.rank, a.nope, of_keys, nullptr},
                        .values = {a.heads * a.value, a.rank, bytes - of_keys, nullptr}};
  if (weights_ != nullptr) both = weights_->latent(spec.name);
  tensors_.push_back(std::move(spec));
  return both;
}

void StepRecorder::read_input(ValueId h, std::string_view prefix, const MixerInput& input,
                              bool has_bias) {
  const auto under = [&](std::string_view name) { return fmt::format("{}{}", prefix, name); };
  Linear linear_of = {.has_bias = has_bias, .may_be_quantized = input.may_be_quantized};
  for (const auto& [name, rows] : input.parts) linear_of.parts.push_back({under(name), rows});
  *input.value = linear(under(input.name), h, input.rows, linear_of);
}

ValueId StepRecorder::mixer_output(std::string_view prefix, ValueId mixed, bool has_bias) {
  return linear(fmt::format("{}out_proj", prefix), mixed, config_.hidden_size,
                {.has_bias = has_bias});
}

ValueId StepRecorder::gated_block(ValueId h, const GatedBlock& block) {
  const auto under = [&](std::string_view name) { return block.prefix + std::string(name); };
  const Linear up = {.has_bias = config_.mlp_bias};
  ValueId inner = kNoValue;
  if (is_gated(block.gate)) {
    const std::string name = under(block.joined);
    Linear both = up;
    both.parts = {{under(block.gate_name), block.inner}, {under(block.up), block.inner}};
    const Weight gate_up = matrix(name, 2 * block.inner, record_.cols(h), both);
    inner = record_.gated_linear(name, h, gate_up, block.gate);
  } else {
    const std::string name = under(block.up);
    inner = record_.linear(name, h, matrix(name, block.inner, record_.cols(h), up), true);
  }
  return linear(under(block.down), inner, config_.hidden_size, {.has_bias = config_.mlp_bias});
}

ValueId StepRecorder::mixture(ValueId h, const Mixture& mixture) {
  const SharedExpert& shared = mixture.shared;
  if (shared.inner == 0) return experts(h, mixture);
  const std::string name = fmt::format("{}{}", mixture.prefix, shared.name);
  ValueId gate = kNoValue;
  if (shared.has_gate) {
    const std::string gate_name = name + "_gate";
    const Weight weight = matrix(gate_name, 1, record_.cols(h), {.may_be_quantized = false});
    gate = record_.exact_linear(gate_name, h, weight);
  }
  const ValueId chosen = experts(h, mixture);
  const ValueId beside =
      gated_block(h, {.inner = shared.inner, .gate = mixture.use.gate, .prefix = name + "."});
  return record_.sigmoid_gate(name + (shared.has_gate ? ".gated" : ".added"), beside, gate, chosen);
}

ValueId StepRecorder::mixture(ValueId h, const ExpertConfig& experts, Mixture mixture) {
  mixture.routing = experts.routing;
  mixture.experts = experts.count;
  mixture.use.per_token = experts.per_token;
  mixture.inner = experts.inner;
  mixture.shared.inner = experts.shared_inner;
  return this->mixture(h, mixture);
}

ValueId StepRecorder::experts(ValueId h, const Mixture& mixture) {
  const auto under = [&](std::string_view name) {
    return fmt::format("{}{}", mixture.prefix, name);
  };
  const auto of_each = [&](std::string_view name, TensorRole role, bool is_row) {
    if (name.empty()) return Vector();
    return vector(
        {.name = in_layer(under(name)), .role = role, .rows = mixture.experts, .is_row = is_row});
  };
  const ValueId chosen_by = mixture.router_input == kNoValue ? h : mixture.router_input;
  const std::string name = under(mixture.router);
  const Weight chooser = matrix({.name = in_layer(name),
                                 .role = TensorRole::kRouter,
                                 .rows = mixture.experts,
                                 .cols = record_.cols(chosen_by),
                                 .has_bias = mixture.has_bias});
  const ValueId logits = record_.exact_linear(name, chosen_by, chooser);
  Router router = {.rule = mixture.routing};
  router.biases = of_each(mixture.choice_bias, TensorRole::kVector, mixture.is_bias_row);
  router.factors = of_each(mixture.factors, TensorRole::kFactors, false);
  return record_.experts(under("experts"), h, logits, experts(record_.cols(h), mixture), router);
}

// ---- what is recorded of a model

std::vector<TensorSpec> tensors_of(const ModelConfig& config) {
  StepRecorder step(config);
  family_of(config).record(config, step);
  return step.tensors();
}

std::vector<std::string> left_modules_of(const ModelConfig& config) {
  StepRecorder step(config);
  family_of(config).record(config, step);
  return step.left_modules();
}

std::optional<TensorSpec> expert_stack_of(const ModelConfig& config) {
  const std::vector<TensorSpec> tensors = tensors_of(config);
  const auto found = std::ranges::find_if(tensors, &TensorSpec::is_of_experts);
  return found == tensors.end() ? std::nullopt : std::optional(*found);
}

}  // namespace subbyte
