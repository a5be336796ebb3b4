#pragma once
// Records the step of a family from the blocks that families share. A name is that of the list
// (tensor_spec.h): the weight that it finds and the operation that it becomes.

#include <memory>
#include <string>
#include <string_view>

#include "models/model_config.h"
#include "models/model_weights.h"
#include "ops/recorder.h"

namespace subbyte {

class StepRecorder {
 public:
  /// Both must outlive this.
  StepRecorder(const ModelConfig& config, const ModelWeights& weights);

  /// The residual stream, from the embedding on.
  ValueId embed();

  /// Names are those of "layers.N." from now on.
  void begin_layer(int64_t layer);

  /// x becomes x + delta, if there is a delta; its norm.
  ValueId add_norm(std::string_view name, ValueId& x, ValueId delta);

  /// o(attention(rope(norm(q h)), rope(norm(k h)), v h)) under "self_attn.", with the norms, sinks
  /// and window that the layer has. With a gate, q has a head of queries, its gate, the next head,
  /// and what o multiplies is sigmoid(gate) times the result.
  ValueId self_attention(ValueId h, bool has_gate = false);

  /// The gated delta net under "linear_attn."
  ValueId delta_net(ValueId h);

  /// down(silu(gate h) * (up h)) under "mlp."
  ValueId gated_block(ValueId h);

  /// The mixture of experts under "mlp."; `router` is the name of what chooses them.
  ValueId experts(std::string_view router, ValueId h);

  /// experts + sigmoid(gate h) * down(silu(gate h) * (up h)) with the names under
  /// "mlp.shared_expert". The gate comes first: machines may take this expert as one of the
  /// mixture.
  ValueId experts_and_shared(std::string_view router, ValueId h);

  /// Ends with the logits of x + delta. Code plan.shape.
  Result<StepPlan> finish(ValueId x, ValueId delta) &&;

 private:
  ValueId gated_block(std::string_view prefix, ValueId h);
  ValueId linear(const std::string& name, ValueId h) {
    return record_.linear(name, h, weights_.matrix(in_layer(name)));
  }
  std::string in_layer(std::string_view name) const { return prefix_ + std::string(name); }
  Norm norm(std::string_view name) const {
    return {weights_.vector(in_layer(name)), config_.rms_norm_eps};
  }

  const ModelConfig& config_;
  const ModelWeights& weights_;
  std::shared_ptr<const Rope> rope_;
  Recorder record_;
  std::string prefix_;  // "layers.3."
  int64_t layer_ = 0;
};

}  // namespace subbyte
