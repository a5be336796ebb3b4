// Qwen3, dense. No biases; queries and keys are normalised per head before the rotary embedding;
// the feed-forward block is SwiGLU. Reference: transformers, models/qwen3.

#include <fmt/format.h>

#include "models/model_family.h"
#include "models/self_attention.h"
#include "ops/activation.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace subbyte {
namespace {

struct Layer {
  std::vector<float> input_norm;  // [hidden]
  SelfAttention attention;
  std::vector<float> post_attention_norm;  // [hidden]
  Linear gate, up, down;                   // [intermediate][hidden], down transposed
};

class Qwen3 : public Model {
 public:
  explicit Qwen3(const ModelConfig& config)
      : Model(config), rope_(config.head_dim, config.rope_theta, config.rope_scaling) {}

  Status load(WeightLoader& loader) {
    SUBBYTE_TRY(embedding_,
                loader.table("model.embed_tokens", config_.vocab_size, config_.hidden_size));
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      SUBBYTE_TRY(layers_.emplace_back(), load_layer(loader, fmt::format("model.layers.{}.", i)));
    }
    SUBBYTE_TRY(final_norm_, loader.vector("model.norm.weight", config_.hidden_size));
    SUBBYTE_TRY(head_, loader.head(config_, embedding_));
    return {};
  }

 private:
  Result<Layer> load_layer(WeightLoader& loader, const std::string& prefix) const {
    const int64_t hidden = config_.hidden_size;
    const int64_t inner = config_.intermediate_size;
    const std::string attention = prefix + "self_attn.";
    Layer layer;
    SUBBYTE_TRY(layer.input_norm, loader.vector(prefix + "input_layernorm.weight", hidden));
    SUBBYTE_TRY(layer.attention, load_projections(loader, attention, config_, Bias::kNone));
    SUBBYTE_TRY(layer.attention.q_norm,
                loader.vector(attention + "q_norm.weight", config_.head_dim));
    SUBBYTE_TRY(layer.attention.k_norm,
                loader.vector(attention + "k_norm.weight", config_.head_dim));
    SUBBYTE_TRY(layer.post_attention_norm,
                loader.vector(prefix + "post_attention_layernorm.weight", hidden));
    SUBBYTE_TRY(layer.gate, loader.linear(prefix + "mlp.gate_proj", inner, hidden));
    SUBBYTE_TRY(layer.up, loader.linear(prefix + "mlp.up_proj", inner, hidden));
    SUBBYTE_TRY(layer.down, loader.linear(prefix + "mlp.down_proj", hidden, inner));
    return layer;
  }

  Norm norm(std::span<const float> weight) const {
    return {weight, config_.rms_norm_eps, NormOrder::kRoundThenScale, ActivationType::kF32};
  }

  void run_layers(Execution& execution, std::span<const int32_t> tokens, KvCache& cache,
                  std::span<float> x) const override {
    embed(x, tokens, embedding_.view);
    Workspace work(execution, config_, rope_, std::ssize(tokens), cache.size(),
                   config_.intermediate_size);
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      work.start_block(execution, x, norm(layers_[i].input_norm));
      run_self_attention(execution, layers_[i].attention, config_.rms_norm_eps, config_, i, cache,
                         work);
      work.start_block(execution, x, norm(layers_[i].post_attention_norm));
      run_feed_forward(execution, layers_[i], work);
    }
    work.finish(execution, x);
  }

  static void run_feed_forward(Execution& execution, const Layer& layer, Workspace& work) {
    const LinearProduct gate_up[] = {{work.gate, work.h, work.tokens, &layer.gate.matrix.view},
                                     {work.up, work.h, work.tokens, &layer.up.matrix.view}};
    linear_group(execution, gate_up, 2, [&](int64_t, int64_t begin, int64_t end) {
      silu_gate(execution.kernels(), work.gate, work.up, work.tokens, begin, end);
    });
    linear(execution, work.delta, work.gate, work.tokens, layer.down.matrix.view);
  }

  void run_head(Execution& execution, std::span<float> logits,
                std::span<const float> hidden) const override {
    float* buffer = execution.floats(Execution::Slot::kModel, static_cast<int64_t>(hidden.size()));
    const std::span<float> h(buffer, hidden.size());
    rms_norm(execution, h, hidden, norm(final_norm_));
    linear(execution, logits, h, static_cast<int64_t>(hidden.size()) / config_.hidden_size,
           head_.matrix.view);
  }

  Rope rope_;
  Matrix embedding_;  // [vocabulary][hidden]
  std::vector<Layer> layers_;
  std::vector<float> final_norm_;
  Linear head_;
};

Result<std::unique_ptr<Model>> load(const ModelConfig& config, WeightLoader& loader) {
  auto model = std::make_unique<Qwen3>(config);
  SUBBYTE_CHECK(model->load(loader));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

extern const ModelFamily qwen3_family;
const ModelFamily qwen3_family = {"qwen3", 1e-6, 0, false, load};

}  // namespace subbyte
