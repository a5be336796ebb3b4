// gpt-oss. Attention has biases, a sink per head and, in every other layer, a sliding window; the
// feed-forward block is a mixture of experts with interleaved gate and up rows and a clamped
// SwiGLU. Reference: transformers, models/gpt_oss.

#include <fmt/format.h>

#include "models/model_family.h"
#include "models/self_attention.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/norm.h"

namespace subbyte {
namespace {

constexpr float kSwigluAlpha = 1.702f;

struct Layer {
  std::vector<float> input_norm;  // [hidden]
  SelfAttention attention;
  std::vector<float> post_attention_norm;  // [hidden]
  Linear router;                           // [experts][hidden]
  ExpertLinears gate_up;                   // of [2 * intermediate][hidden]
  ExpertLinears down;                      // of [hidden][intermediate]
};

class GptOss : public Model {
 public:
  explicit GptOss(const ModelConfig& config)
      : Model(config), rope_(config.head_dim, config.rope_theta, config.rope_scaling) {}

  Status load(WeightLoader& loader) {
    SUBBYTE_TRY(embedding_,
                loader.table("model.embed_tokens", config_.vocab_size, config_.hidden_size));
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      layers_.emplace_back();
      const std::string prefix = fmt::format("model.layers.{}.", i);
      SUBBYTE_CHECK(load_attention(loader, prefix, layers_.back()));
      SUBBYTE_CHECK(load_experts(loader, prefix, layers_.back()));
    }
    SUBBYTE_TRY(final_norm_, loader.vector("model.norm.weight", config_.hidden_size));
    SUBBYTE_TRY(head_, loader.head(config_, embedding_));
    return {};
  }

 private:
  Status load_attention(WeightLoader& loader, const std::string& prefix, Layer& layer) const {
    const int64_t hidden = config_.hidden_size;
    const std::string name = prefix + "self_attn.";
    SUBBYTE_TRY(layer.input_norm, loader.vector(prefix + "input_layernorm.weight", hidden));
    SUBBYTE_TRY(layer.attention, load_projections(loader, name, config_, Bias::kRequired));
    SUBBYTE_TRY(layer.attention.sinks, loader.vector(name + "sinks", config_.num_heads));
    return {};
  }

  Status load_experts(WeightLoader& loader, const std::string& prefix, Layer& layer) const {
    const int64_t hidden = config_.hidden_size;
    const int64_t inner = config_.intermediate_size;
    const int64_t experts = config_.num_experts;
    const int64_t used = config_.experts_per_token;
    const std::string name = prefix + "mlp.experts.";
    SUBBYTE_TRY(layer.post_attention_norm,
                loader.vector(prefix + "post_attention_layernorm.weight", hidden));
    SUBBYTE_TRY(layer.router,
                loader.linear(prefix + "mlp.router", experts, hidden, Bias::kRequired));
    SUBBYTE_TRY(layer.gate_up,
                loader.alternating_experts(name + "gate_up_proj", name + "gate_proj",
                                           name + "up_proj", {experts, 2 * inner, hidden, used}));
    SUBBYTE_TRY(layer.down, loader.experts(name + "down_proj", {experts, hidden, inner, used}));
    return {};
  }

  Norm norm(std::span<const float> weight) const {
    return {weight, config_.rms_norm_eps, NormOrder::kScaleThenRound, ActivationType::kF32};
  }

  void run_layers(Execution& execution, std::span<const int32_t> tokens, KvCache& cache,
                  std::span<float> x) const override {
    embed(x, tokens, embedding_.view);
    const int64_t num_tokens = std::ssize(tokens);
    Workspace work(execution, config_, rope_, num_tokens, cache.size(), 0);
    std::vector<float> logits(num_tokens * config_.num_experts);
    std::vector<Route> routes(num_tokens * config_.experts_per_token);
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      const Layer& layer = layers_[i];
      work.start_block(execution, x, norm(layer.input_norm));
      run_self_attention(execution, layer.attention, config_.rms_norm_eps, config_, i, cache, work);
      work.start_block(execution, x, norm(layer.post_attention_norm));
      exact_linear(execution, logits, work.h, num_tokens, layer.router.matrix.view,
                   layer.router.bias);
      route_top_k(routes, logits, config_.num_experts, config_.experts_per_token);
      mixture_of_experts(execution, work.delta, work.h, routes, config_.experts_per_token,
                         {layer.gate_up.matrices, layer.gate_up.bias, layer.down.matrices,
                          layer.down.bias, kSwigluAlpha, config_.swiglu_limit});
    }
    work.finish(execution, x);
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
  auto model = std::make_unique<GptOss>(config);
  SUBBYTE_CHECK(model->load(loader));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

extern const ModelFamily gpt_oss_family;
const ModelFamily gpt_oss_family = {"gpt_oss", 1e-5, 128, true, load};

}  // namespace subbyte
