// gpt-oss. Attention has biases, a sink per head and, in every other layer, a sliding window; the
// feed-forward block is a mixture of experts with interleaved gate and up rows and a clamped
// SwiGLU. Reference: transformers, models/gpt_oss.

#include <fmt/format.h>

#include "models/model_family.h"
#include "models/self_attention.h"

namespace subbyte {
namespace {

constexpr float kSwigluAlpha = 1.702f;

struct Layer {
  Norm input_norm;
  SelfAttention attention;
  Norm post_attention_norm;
  Weight router;  // [experts][hidden]
  Experts experts;
};

class GptOss : public Model {
 public:
  explicit GptOss(const ModelConfig& config)
      : Model(config), rope_(config.head_dim, config.rope_theta, config.rope_scaling) {}

  Status load(WeightLoader& loader) {
    SUBBYTE_TRY(embedding_, loader.table(kTableModule, config_.vocab_size, config_.hidden_size));
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      layers_.emplace_back();
      const std::string prefix = fmt::format("model.layers.{}.", i);
      SUBBYTE_CHECK(load_attention(loader, prefix, layers_.back()));
      SUBBYTE_CHECK(load_experts(loader, prefix, layers_.back()));
    }
    SUBBYTE_TRY(final_norm_, loader.norm("model.norm.weight", config_));
    SUBBYTE_TRY(head_, loader.head(config_, embedding_));
    return {};
  }

 private:
  Status load_attention(WeightLoader& loader, const std::string& prefix, Layer& layer) const {
    const std::string name = prefix + "self_attn.";
    SUBBYTE_TRY(layer.input_norm, loader.norm(prefix + "input_layernorm.weight", config_));
    SUBBYTE_TRY(layer.attention, load_projections(loader, name, config_, Bias::kRequired));
    SUBBYTE_TRY(layer.attention.sinks, loader.vector(name + "sinks", config_.num_heads));
    return {};
  }

  Status load_experts(WeightLoader& loader, const std::string& prefix, Layer& layer) const {
    const int64_t hidden = config_.hidden_size;
    const int64_t inner = config_.expert_size;
    const int64_t experts = config_.num_experts;
    const int64_t used = config_.experts_per_token;
    const std::string name = prefix + "mlp.experts.";
    SUBBYTE_TRY(layer.post_attention_norm,
                loader.norm(prefix + "post_attention_layernorm.weight", config_));
    SUBBYTE_TRY(layer.router,
                loader.linear(prefix + "mlp.router", experts, hidden, Bias::kRequired));
    ExpertMatrices matrices;
    SUBBYTE_TRY(auto gate_up,
                loader.alternating_experts(name + "gate_up_proj", name + "gate_proj",
                                           name + "up_proj", {experts, 2 * inner, hidden, used}));
    SUBBYTE_TRY(auto down, loader.experts(name + "down_proj", {experts, hidden, inner, used}));
    matrices.gate_up = std::move(gate_up.matrices);
    matrices.gate_up_bias = std::move(gate_up.bias);
    matrices.down = std::move(down.matrices);
    matrices.down_bias = std::move(down.bias);
    matrices.top_k = used;
    matrices.swiglu = {kSwigluAlpha, config_.swiglu_limit, 1};
    SUBBYTE_TRY(layer.experts, loader.upload(name, std::move(matrices)));
    return {};
  }

  void run(Backend& backend) const override {
    const Tensor x = backend.tensor(config_.hidden_size);
    const Tensor h = backend.tensor(config_.hidden_size);
    const Tensor delta = backend.tensor(config_.hidden_size);
    const Tensor router_logits = backend.tensor(config_.num_experts);
    const AttentionTensors attention(backend, config_);
    backend.embed(x, embedding_);
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      const Layer& layer = layers_[i];
      backend.add_norm(h, x, i == 0 ? Tensor{} : delta, layer.input_norm);
      run_self_attention(backend, layer.attention, rope_, config_, i, attention, delta, h);
      backend.add_norm(h, x, delta, layer.post_attention_norm);
      backend.exact_linear(router_logits, h, layer.router);
      backend.experts(delta, h, router_logits, layer.experts);
    }
    backend.logits(x, delta, final_norm_, head_);
  }

  Rope rope_;
  Weight embedding_;  // [vocabulary][hidden]
  std::vector<Layer> layers_;
  Norm final_norm_;
  Weight head_;
};

Status read(const json::Object& config, ModelConfig& model) {
  SUBBYTE_TRY(model.num_experts, config.required_integer("num_local_experts", 1, kMaxExperts));
  const char* key = config.has("num_experts_per_tok") ? "num_experts_per_tok" : "experts_per_token";
  SUBBYTE_TRY(model.experts_per_token, config.required_integer(key, 1, model.num_experts));
  SUBBYTE_TRY(const auto limit, config.number("swiglu_limit", 1e-3, 1e6));
  model.swiglu_limit = static_cast<float>(limit.value_or(7.0));
  model.expert_size = model.intermediate_size;
  model.expert_layers.assign(model.num_layers, true);
  return {};
}

Result<std::unique_ptr<Model>> load(const ModelConfig& config, WeightLoader& loader) {
  auto model = std::make_unique<GptOss>(config);
  SUBBYTE_CHECK(model->load(loader));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

extern const ModelFamily gpt_oss_family;
const ModelFamily gpt_oss_family = {"gpt_oss", 1e-5, 128, read, load};

}  // namespace subbyte
