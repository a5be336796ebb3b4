#include <memory>
#include <utility>

#include "models/step_recorder.h"

namespace subbyte {

void record_usual_step(const ModelConfig& config, StepRecorder& step, UsualStep usual) {
  const bool before = usual.norms != BlockNorms::kAfter;
  const bool after = usual.norms != BlockNorms::kBefore;
  LayerNorms names = usual.names.value_or(LayerNorms{});
  if (!after && !usual.names) names.before_second = "post_attention_layernorm";
  const std::shared_ptr<const Rope> full_rope = step.rope();
  const bool is_shared = usual.sliding_rope == nullptr || *usual.sliding_rope == *full_rope;
  const auto sliding_rope =
      is_shared ? full_rope : std::make_shared<const Rope>(*usual.sliding_rope);
  usual.gated.inner = config.intermediate_size;
  ValueId x = step.embed(usual.stream);
  ValueId delta = kNoValue;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    step.begin_layer(i);
    StepRecorder::Attention attention = usual.attention;
    attention.shape = attention_shape(config, i);
    attention.rope = attention.shape.window > 0 ? sliding_rope : full_rope;
    if (usual.score_scale != 0) attention.shape.scale = usual.score_scale;
    attention.shape.cap = usual.score_cap;
    if (usual.of_layer) usual.of_layer(attention, i);
    ValueId h = before ? step.add_norm(names.before_first, x, delta)
                       : step.add("self_attn.input", x, delta);
    delta = usual.first ? usual.first(h, i) : kNoValue;
    if (delta == kNoValue) delta = step.attention(h, attention);
    if (after) delta = step.norm(names.after_first, delta);
    h = before ? step.add_norm(names.before_second, x, delta) : step.add("mlp.input", x, delta);
    if (usual.experts != nullptr && usual.experts->are_in(i)) {
      delta = step.mixture(h, *usual.experts, usual.mixture);
    } else {
      delta = usual.second ? usual.second(h, i) : step.gated_block(h, usual.gated);
    }
    if (after) delta = step.norm(names.after_second, delta);
  }
  step.finish(x, delta, usual.logits);
}

}  // namespace subbyte
