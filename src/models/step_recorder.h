#pragma once
// Records the step of a family from the blocks that families share. One call names, sizes and uses
// a weight, so that the walk over a step is the list of its tensors (tensor_spec.h), too: without
// weights the operations have handles of the right sizes, and nothing in them.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/expert_config.h"
#include "models/model_config.h"
#include "models/model_weights.h"
#include "models/tensor_spec.h"
#include "ops/recorder.h"

namespace subbyte {

/// Heads, their scale and the window of a layer.
AttentionShape attention_shape(const ModelConfig& config, int64_t layer);

/// Norms of the queries and of the keys of a token: each head by itself, before it turns or after
/// it, or without a weight after it; or all heads together before they turn.
enum class HeadsNorm : uint8_t { kNone, kEach, kEachAfterRope, kPlainAfterRope, kAll };

class StepRecorder {
 public:
  /// Config, weights and `bytes`, for handles without storage, must outlive this.
  explicit StepRecorder(const ModelConfig& config, const LoadFacts& facts = {},
                        const ModelWeights* weights = nullptr, const WeightBytes* bytes = nullptr)
      : config_(config), facts_(facts), weights_(weights), bytes_(bytes) {}

  const LoadFacts& facts() const { return facts_; }
  /// The root of a width as the reference multiplies an embedding by it: rounded to the type of the
  /// embedding, unless all is in float32.
  float root_of(int64_t width) const;
  /// That of the config.
  std::shared_ptr<const Rope> rope() const { return std::make_shared<const Rope>(config_.rope); }

  /// How the residual stream begins, grows and is normalised.
  struct Stream {
    float embedding_factor = 1;
    float residual_factor = 1;  // of what blocks add
    /// The factors of norms are so much more than the numbers of files.
    float norm_offset = 0;
    bool is_centred = false;  // norms are LayerNorms
    bool has_norm_bias = false;
  };
  /// The residual stream, from the embedding on.
  ValueId embed(const Stream& stream);
  /// Rows of another table by the same tokens, times `factor`, in floats: one that need not fit
  /// into the memory of a machine.
  ValueId embed_far(std::string_view name, int64_t cols, float factor);

  /// Names are those of "layers.N." from now on.
  void begin_layer(int64_t layer);

  /// x becomes x + delta, if there is a delta; its norm.
  ValueId add_norm(std::string_view name, ValueId& x, ValueId delta);

  /// The same without a norm: what a block reads.
  ValueId add(std::string_view name, ValueId& x, ValueId delta);
  /// The same of other floats, to which `factor` times the delta is added.
  ValueId add(std::string_view name, ValueId& x, ValueId delta, float factor) {
    return record_.activations(name, x, delta, factor);
  }

  /// The norm of what a block gives, before it is added.
  ValueId norm(std::string_view name, ValueId delta);

  /// The same of each run of `cols` columns, with so many times the eps of other norms: of what is
  /// that many times the square of what the norm is meant for.
  ValueId norm_runs(std::string_view name, ValueId x, int64_t cols, float eps_factor);

  /// The norm of the stream, whose factors are the numbers of that name, times `factor`.
  ValueId scaled_norm(std::string_view name, ValueId x, float factor);

  /// The next sum of the stream is times the one number of that name.
  void scale_next_sum(std::string_view name);

  /// gate(x) times columns of `up` from `first` on.
  ValueId gate(std::string_view name, ValueId x, ValueId up, int64_t first, Gate gate) {
    return record_.gate(name, x, up, first, gate);
  }

  /// a + b, of which a is not used any more.
  ValueId sum(std::string_view name, ValueId a, ValueId b) {
    return record_.sigmoid_gate(name, a, kNoValue, b);
  }

  /// An operation that is no block here, and its weights that are no matrices.
  template <class Kind>
  ValueId add(std::string_view name, Kind op) {
    return record_.add(name, std::move(op));
  }
  Vector vector(TensorSpec spec);
  std::string in_layer(std::string_view name) const { return prefix_ + std::string(name); }

  struct Linear {
    bool has_bias = false;
    bool may_be_quantized = true;
    std::vector<PartSpec> parts = {};  // with names in the layer
  };
  /// `rows` outputs of h.
  ValueId linear(std::string_view name, ValueId h, int64_t rows, const Linear& linear);

  struct Attention {
    AttentionShape shape = {};
    /// One for all layers whose angles are the same; nullptr: heads do not turn.
    std::shared_ptr<const Rope> rope = nullptr;
    RopePairs pairs = RopePairs::kHalves;
    QueryScale query_scale = {};
    std::optional<bool> has_output_bias = {};  // absent: as q, k and v have, by the config
    HeadsNorm norms = HeadsNorm::kNone;        // of queries and keys
    bool norms_values = false;                 // each head, without a weight
    bool values_are_keys = false;              // before their norms: there is no v_proj
    int64_t keys_of =
        -1;  // the attention, counted from 0, whose keys and values it reads; -1: its own
    bool has_gate = false;  // rows of q_proj: a head of queries, its gate, the next head
    bool has_sinks = false;
    bool may_be_quantized = true;
    std::string prefix = "self_attn.";
    std::string_view q_norm = "q_norm", k_norm = "k_norm", output = "o_proj";  // their names
  };
  /// o(attention(rope(norm(q h)), rope(norm(k h)), v h)) under `prefix`, with the biases of the
  /// config. With a gate, what o multiplies is sigmoid(gate) times the result.
  ValueId attention(ValueId h, const Attention& attention);

  /// Selects positions for latent attention; with 0 heads there is none.
  struct Indexer {
    int64_t heads = 0;
    int64_t head_dim = 0;  // of which as many turn as of the attention
    int64_t top = 0;       // positions
    RopePairs pairs = RopePairs::kHalves;

    bool operator==(const Indexer&) const = default;
  };
  struct LatentAttention {
    int64_t heads = 0;
    int64_t query_rank = 0;  // 0: queries are a product of h itself
    int64_t rank = 0;        // of keys and values
    int64_t nope = 0;        // numbers of a query or key that do not turn; the rope has the others
    int64_t value = 0;
    float scale = 1;
    float norm_eps = 1e-6f;  // of the norms of both ranks
    std::shared_ptr<const Rope> rope = nullptr;
    RopePairs pairs = RopePairs::kNeighbours;
    QueryScale query_scale = {};
    Indexer indexer = {};  // queries have a rank, which it reads, too
    bool selects = true;   // false: the positions are those of the attention before
  };
  /// Latent attention under "self_attn.", over a cache of latents and of what turns beside them;
  /// biases of the config are those of the products that give ranks, and of o.
  ValueId latent_attention(ValueId h, const LatentAttention& attention);

  /// The mixer `op` between products of h and of what it gives, "out_proj", all under `prefix`;
  /// products may have biases. Its name and those of its weights follow from its rows
  /// (ops/operand.h).
  template <class Op>
  ValueId mixer(ValueId h, std::string_view prefix, Op op, bool has_bias = false) {
    for (const MixerInput& input : op.inputs()) read_input(h, prefix, input, has_bias);
    for (const auto& row : Op::numbers(op)) {
      if (row.rows == 0) continue;
      *row.numbers = vector({.name = in_layer(std::string(prefix) + std::string(row.name)),
                             .role = row.role,
                             .rows = row.rows,
                             .cols = row.role == TensorRole::kFilters ? row.taps : 0});
    }
    return mixer_output(prefix, record_.add(prefix.substr(0, prefix.size() - 1), op), has_bias);
  }

  struct GatedBlock {
    int64_t inner = 0;
    Gate gate = Gate::kSilu;
    std::string prefix = "mlp.";
    std::string_view joined = "gate_up_proj", gate_name = "gate_proj", up = "up_proj",
                     down = "down_proj";
  };
  /// down(gate(gate h) * (up h)) under `prefix`, or down(max(up h, 0)^2), with the biases of the
  /// config.
  ValueId gated_block(ValueId h, const GatedBlock& block);

  /// The expert that every token goes to.
  struct SharedExpert {
    int64_t inner = 0;  // 0: there is none
    std::string_view name = "shared_expert";
    bool has_gate = true;  // whose sigmoid it is multiplied by, under name + "_gate"
  };
  struct Mixture {
    std::string_view prefix = "mlp.";
    std::string_view router = "gate";  // the name of what chooses experts
    Routing routing = {};
    std::string_view choice_bias = {};  // the name of the biases that only choose; empty: none
    bool is_bias_row = false;           // which files have as [1][experts]
    ValueId router_input = kNoValue;    // what the router reads; no value: h
    std::string_view factors = {};      // the name of those of weights, one of each expert
    int64_t experts = 0;
    ExpertUse use = {};
    int64_t inner = 0;      // inputs of the last product of an expert
    bool has_bias = false;  // of all these products
    std::string_view joined = "experts.gate_up_proj", gate_name = "experts.gate_proj",
                     up = "experts.up_proj", down = "experts.down_proj";
    SharedExpert shared = {};
  };
  /// The mixture of experts under `prefix`, and beside it the shared expert, a gated block. Its
  /// gate comes first: machines may take this expert as one of the mixture.
  ValueId mixture(ValueId h, const Mixture& mixture);
  /// The same with the sizes and the rule of `experts`.
  ValueId mixture(ValueId h, const ExpertConfig& experts, Mixture mixture);

  struct Logits {
    float factor = 1;
    float cap = 0;  // 0: none
    std::string_view norm = kFinalNorm;
    bool has_bias = false;  // of a head of its own
  };
  /// Ends with the logits of x + delta.
  void finish(ValueId x, ValueId delta, const Logits& logits);

  /// A module of the layer that files may have, and that nobody reads.
  void leave(std::string_view module) { left_modules_.push_back(in_layer(module)); }
  const std::vector<std::string>& left_modules() const { return left_modules_; }

  /// Those of the operations up to here, in their order.
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  /// Code plan.shape.
  Result<StepPlan> plan() && { return std::move(record_).finish(); }

 private:
  ValueId experts(ValueId h, const Mixture& mixture);
  ValueId projected_heads(ValueId h, const Attention& attention);
  ValueId selection(ValueId h, ValueId rank, const LatentAttention& attention);
  void read_input(ValueId h, std::string_view prefix, const MixerInput& input, bool has_bias);
  ValueId mixer_output(std::string_view prefix, ValueId mixed, bool has_bias);

  int64_t bytes_of(std::string_view name) const;
  /// Each adds a tensor to the list, and finds its weight.
  Weight matrix(TensorSpec spec);
  Weight matrix(std::string_view name, int64_t rows, int64_t cols, const Linear& linear);
  LatentWeights latent_weights(std::string_view name, const LatentAttention& attention);
  Norm norm_of(std::string_view name, int64_t size);
  Experts experts(int64_t hidden, const Mixture& mixture);

  const ModelConfig& config_;
  LoadFacts facts_;
  const ModelWeights* weights_;
  const WeightBytes* bytes_;
  Recorder record_;
  std::vector<TensorSpec> tensors_;
  std::vector<std::string> left_modules_;
  Stream stream_;
  Vector scale_;                   // of the next sum
  std::vector<CacheSlot> caches_;  // of each attention
  ValueId selected_ = kNoValue;    // by the last indexer
  std::string prefix_;             // "layers.3."
};

/// Where the two blocks of a layer have norms: of what they read, of what they give, or of both.
enum class BlockNorms : uint8_t { kBefore, kAfter, kAround };

/// The names of the norms of a layer.
struct LayerNorms {
  std::string_view before_first = "input_layernorm";
  std::string_view after_first = "post_attention_layernorm";
  std::string_view before_second = "pre_feedforward_layernorm";
  std::string_view after_second = "post_feedforward_layernorm";
};

/// A step whose layers add two blocks each to the residual stream: attention, then a gated block.
struct UsualStep {
  StepRecorder::Stream stream = {};
  BlockNorms norms = BlockNorms::kBefore;
  /// Where it is not usual: before the second block alone a norm is "post_attention_layernorm".
  std::optional<LayerNorms> names = {};
  StepRecorder::Attention attention = {};  // the config says its shape and its rope
  const Rope* sliding_rope = nullptr;      // of layers that slide; nullptr: the same
  float score_scale = 0;                   // 0: 1 / sqrt(head_dim)
  float score_cap = 0;                     // 0: none
  StepRecorder::GatedBlock gated = {};     // the config says its size
  const ExpertConfig* experts = nullptr;   // the second block of layers that have them is
  StepRecorder::Mixture mixture = {};      // this, of which they say the sizes and the rule
  StepRecorder::Logits logits = {};
  /// Changes what layers have otherwise.
  std::function<void(StepRecorder::Attention& attention, int64_t layer)> of_layer = nullptr;
  /// Blocks that layers have instead of either; kNoValue of the first: a layer has attention.
  using Block = std::function<ValueId(ValueId h, int64_t layer)>;
  Block first = nullptr;
  Block second = nullptr;
};
void record_usual_step(const ModelConfig& config, StepRecorder& step, UsualStep usual = {});

}  // namespace subbyte
