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
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      run_self_attention(execution, layers_[i].attention, norm(layers_[i].input_norm), rope_,
                         config_, i, cache, x);
      run_feed_forward(execution, layers_[i], x);
    }
  }

  void run_feed_forward(Execution& execution, const Layer& layer, std::span<float> x) const {
    const int64_t tokens = static_cast<int64_t>(x.size()) / config_.hidden_size;
    std::vector<float> h(x.size());
    std::vector<float> gate(tokens * config_.intermediate_size), up(gate.size());

    rms_norm(h, x, norm(layer.post_attention_norm));
    linear(execution, gate, h, tokens, layer.gate.matrix.view);
    linear(execution, up, h, tokens, layer.up.matrix.view);
    silu_gate(gate, up);
    linear(execution, h, gate, tokens, layer.down.matrix.view);
    execution.kernels().axpy(x.data(), 1.0f, h.data(), static_cast<int64_t>(x.size()));
  }

  void run_head(Execution& execution, std::span<float> logits,
                std::span<const float> hidden) const override {
    std::vector<float> h(hidden.size());
    rms_norm(h, hidden, norm(final_norm_));
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
