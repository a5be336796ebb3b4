// Qwen3, dense. No biases; queries and keys are normalised per head before the rotary embedding;
// the feed-forward block is SwiGLU. Reference: transformers, models/qwen3.

#include <fmt/format.h>

#include "models/model_family.h"
#include "models/self_attention.h"

namespace subbyte {
namespace {

struct Layer {
  Norm input_norm;
  SelfAttention attention;
  Norm post_attention_norm;
  Weight gate_up;  // [intermediate, then intermediate][hidden]
  Weight down;     // [hidden][intermediate]
};

class Qwen3 : public Model {
 public:
  explicit Qwen3(const ModelConfig& config)
      : Model(config), rope_(config.head_dim, config.rope_theta, config.rope_scaling) {}

  Status load(WeightLoader& loader) {
    SUBBYTE_TRY(embedding_, loader.table(kTableModule, config_.vocab_size, config_.hidden_size));
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      SUBBYTE_TRY(layers_.emplace_back(), load_layer(loader, fmt::format("model.layers.{}.", i)));
    }
    SUBBYTE_TRY(final_norm_, loader.norm("model.norm.weight", config_));
    SUBBYTE_TRY(head_, loader.head(config_, embedding_));
    return {};
  }

 private:
  Result<Layer> load_layer(WeightLoader& loader, const std::string& prefix) const {
    const int64_t hidden = config_.hidden_size;
    const int64_t inner = config_.intermediate_size;
    const std::string attention = prefix + "self_attn.";
    Layer layer;
    SUBBYTE_TRY(layer.input_norm, loader.norm(prefix + "input_layernorm.weight", config_));
    SUBBYTE_TRY(layer.attention, load_projections(loader, attention, config_, Bias::kNone));
    SUBBYTE_TRY(layer.attention.norms.q,
                loader.vector(attention + "q_norm.weight", config_.head_dim));
    SUBBYTE_TRY(layer.attention.norms.k,
                loader.vector(attention + "k_norm.weight", config_.head_dim));
    SUBBYTE_TRY(layer.post_attention_norm,
                loader.norm(prefix + "post_attention_layernorm.weight", config_));
    SUBBYTE_TRY(layer.gate_up,
                loader.joined({{prefix + "mlp.gate_proj", inner}, {prefix + "mlp.up_proj", inner}},
                              hidden));
    SUBBYTE_TRY(layer.down, loader.linear(prefix + "mlp.down_proj", hidden, inner));
    return layer;
  }

  void run(Backend& backend) const override {
    const Tensor x = backend.tensor(config_.hidden_size);
    const Tensor h = backend.tensor(config_.hidden_size);
    const Tensor delta = backend.tensor(config_.hidden_size);
    const Tensor gated = backend.tensor(config_.intermediate_size);
    const AttentionTensors attention(backend, config_);
    backend.embed(x, embedding_);
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      const Layer& layer = layers_[i];
      backend.add_norm(h, x, i == 0 ? Tensor{} : delta, layer.input_norm);
      run_self_attention(backend, layer.attention, rope_, config_, i, attention, delta, h);
      backend.add_norm(h, x, delta, layer.post_attention_norm);
      backend.gated_linear(gated, h, layer.gate_up);
      backend.linear(delta, gated, layer.down);
    }
    backend.logits(x, delta, final_norm_, head_);
  }

  Rope rope_;
  Weight embedding_;  // [vocabulary][hidden]
  std::vector<Layer> layers_;
  Norm final_norm_;
  Weight head_;
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
