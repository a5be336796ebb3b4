#pragma once
// A step of a model as data: the list of its operations. A model records it once, when it is loaded
// (ops/recorder.h), a backend compiles it once (Backend::compile), and nothing in it knows a batch.
//
//   values       %0 [tokens][4096] float   %1 [tokens][4096] activation   %2 [tokens][6144] ...
//   operations   %0 = embed   %1 = norm %0   %2 = linear %1   %3 = rotate %2   %4 = attend %3   ...
//
// One operation writes a value, and those after it read it. A result that takes over the memory of
// an operand (a residual sum, rotated heads) is a value of its own: nothing reads the operand any
// more.
//
// An operation lists its operands itself: what it reads and writes, of which sizes and types. What
// is printed, who reads a value, what memory values share and what is refused follow from that.
//
// A new operation is a struct in a file of its own (mamba.h), a row of SUBBYTE_OPERATIONS, a file
// of each backend, and a test.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/routing.h"
#include "ops/attention.h"
#include "ops/cache_layout.h"
#include "ops/columns.h"
#include "ops/delta_net.h"
#include "ops/exchange.h"
#include "ops/mamba.h"
#include "ops/operand.h"
#include "ops/rope.h"
#include "ops/short_conv.h"
#include "ops/weights.h"

namespace subbyte {

/// "[rows][cols]"
std::string size_text(const Weight& weight);

/// y[t] = row tokens[t] of a table [vocabulary][hidden], times `factor`.
struct EmbedOp {
  ValueId y = kNoValue;
  Weight table;
  float factor = 1;

  Operands operands() const { return {writes(y, table.cols, ValueType::kFloat)}; }
  std::string text() const { return "embed " + size_text(table); }
};

/// y = x / sqrt(mean(x^2) + eps) * weight + bias for each row; the mean is accumulated in double
/// precision.
struct Norm {
  Vector weight;
  float eps = 1e-6f;
  bool is_centred = false;  // LayerNorm: of x less its mean
  Vector bias = {};         // or of size 0: none

  bool is_rms() const { return !is_centred && bias.size == 0; }
};

/// sum = scale * (x + factor * delta) in the memory of x, unless `delta` is no value; y = the
/// normalised sum. Where y has the head rows, the sum of other rows is not computed. `scale` [1],
/// or of size 0: 1.
struct AddNormOp {
  ValueId y = kNoValue;
  ValueId sum = kNoValue;
  ValueId x = kNoValue;
  ValueId delta = kNoValue;
  Norm norm;
  float factor = 1;
  Vector scale = {};
  ValueRows rows = ValueRows::kTokens;  // of y

  Operands operands() const;
  std::string text() const { return delta == kNoValue ? "norm" : "add, norm"; }
};

/// sum = x + factor * delta in the memory of x, unless `delta` is no value; y = the sum as an
/// activation: what a block reads that has no norm before it.
struct AddOp {
  ValueId y = kNoValue;
  ValueId sum = kNoValue;
  ValueId x = kNoValue;
  ValueId delta = kNoValue;
  float factor = 1;

  Operands operands() const;
  std::string text() const { return delta == kNoValue ? "activations" : "add, activations"; }
};

/// y = the normalised rows of x, both activations: of what a block gives before it is added. A row
/// has `runs` times as many columns as the norm has numbers, each run by itself. With `first` so
/// many columns from that one on are normalised as the norm has numbers, in the memory of x, and
/// the others stay.
struct NormOp {
  ValueId y = kNoValue;
  ValueId x = kNoValue;
  Norm norm;
  std::optional<int64_t> first = {};
  int64_t runs = 1;

  Operands operands() const;
  std::string text() const;
};

/// y = W x + b.
struct LinearOp {
  ValueId y = kNoValue;
  ValueId x = kNoValue;
  Weight weight;
  /// The activations are the most exact ones that the machine has for such weights, whatever it
  /// rounds them to elsewhere: for small products that decide something, such as which experts a
  /// token goes to.
  bool exact = false;
  bool squares_relu = false;                // y = max(W x + b, 0)^2: Gate::kSquaredRelu
  ValueType type = ValueType::kActivation;  // of y

  Operands operands() const { return {reads(x, weight.cols), writes(y, weight.rows, type)}; }
  std::string text() const;
};

/// y = gate(g) * u, where g and u are the first and the second half of the outputs of W x + b.
struct GatedLinearOp {
  ValueId y = kNoValue;
  ValueId x = kNoValue;
  Weight gate_up;
  Gate gate = Gate::kSilu;

  Operands operands() const {
    return {reads(x, gate_up.cols),
            holds("rows of gate and up together, by 2 a rest of", 0, gate_up.rows % 2),
            writes(y, gate_up.rows / 2)};
  }
  std::string text() const { return "gated linear " + size_text(gate_up); }
};

/// Cosines and sines of the angles of each token's position, [tokens][half of what turns].
struct AnglesOp {
  ValueId cos = kNoValue;
  ValueId sin = kNoValue;
  std::shared_ptr<const Rope> rope;

  Operands operands() const;
  std::string text() const { return "angles"; }
};

/// Norms of each query and each key head; handles of size 0: none.
struct HeadNorms {
  Vector q, k;  // [head_dim]
  float eps = 1e-6f;
  bool has_values = false;      // each head of values is normalised, too, by a weight of ones
  bool are_after_rope = false;  // of heads that have turned
  bool are_plain = false;       // heads are normalised by a weight of ones: q and k are of size 0
};

/// Queries of the token at `position` are times 1 + beta ln(1 + floor((position + first) / step)).
struct QueryScale {
  float beta = 0;  // 0: they stay
  int64_t step = 1;
  int64_t first = 0;

  bool operator==(const QueryScale&) const = default;
};

/// qkv has the heads of queries, keys and values of a token one after the other, or those of
/// queries alone (AttentionShape::has_keys). Query and key heads are normalised and turned by their
/// positions, in place; keys and values go to the cache. Of a head 2 * cols(cos) numbers turn, and
/// the others stay; all stay without cos and sin.
struct RotateOp {
  ValueId y = kNoValue;
  ValueId qkv = kNoValue;
  ValueId cos = kNoValue;
  ValueId sin = kNoValue;
  HeadNorms norms = {};
  AttentionShape shape = {};
  CacheSlot cache = {};
  RopePairs pairs = RopePairs::kHalves;
  QueryScale query_scale = {};

  /// Halves that turn, after norms with weights, if there are some, and nothing else.
  bool is_usual() const {
    return cos != kNoValue && pairs == RopePairs::kHalves && !norms.has_values &&
           !norms.are_after_rope && !norms.are_plain && query_scale.beta == 0;
  }
  Operands operands() const;
  std::string text() const { return cos == kNoValue ? "store" : "rotate, store"; }
};

/// y = the positions that a token attends to, in ascending order: where it sees more than
/// `shape.top`, those with the largest scores. The score of a position is the sum over the heads of
/// `weights` times max(q k, 0), with the keys of the cache, of which there is one head. Of tokens
/// that see no more y says nothing.
struct SelectOp {
  ValueId y = kNoValue;
  ValueId q = kNoValue;  // turned
  ValueId weights = kNoValue;
  AttentionShape shape;
  CacheSlot cache;

  Operands operands() const {
    return {reads(q, shape.q_size(), "columns of queries"),
            reads_floats(weights, shape.heads, "weights of heads"),
            holds("heads of keys", 1, shape.kv_heads), writes(y, shape.top, ValueType::kFloat)};
  }
  std::string text() const { return "select, " + std::to_string(shape.top); }
};

/// y = causal attention of the queries of qkv over the cache, or over those positions of `selected`
/// [shape.top]. `sinks` [heads], or of size 0: a logit that takes part in the softmax and has no
/// value. A machine may expand the latents of the cache for some parts of a batch: queries and
/// results of these lie in the rows as HeadsLinearOp says.
struct AttendOp {
  ValueId y = kNoValue;
  ValueId qkv = kNoValue;
  ValueId selected = kNoValue;
  AttentionShape shape;
  CacheSlot cache;
  Vector sinks;
  LatentSizes latent = {};
  Weight latent_keys = {};    // [heads * rank][nope]
  Weight latent_values = {};  // [heads * value][rank]

  Operands operands() const;
  std::string text() const;
};

/// y = the product of each head of x with a matrix of its own, of the first numbers of the head:
/// the other `kept` ones follow its outputs as they are. After all heads comes `rest`, unless it is
/// no value. Where a machine expands latents, nothing is multiplied: of queries, which have a rest,
/// the numbers stand at the end of the outputs, of results at the beginning of the inputs.
struct HeadsLinearOp {
  ValueId y = kNoValue;
  ValueId x = kNoValue;
  ValueId rest = kNoValue;
  Weight weight;  // [heads * outputs][inputs], in 16 or 32 bits
  int64_t heads = 1;
  int64_t kept = 0;
  int64_t rest_cols = 0;
  LatentSizes latent = {};

  int64_t outputs() const { return weight.rows / heads; }
  Operands operands() const;
  std::string text() const;
};

/// A rule with what it reads: numbers of each expert, or handles of size 0.
struct Router {
  Routing rule = {};
  Vector biases = {};   // that only choose
  Vector factors = {};  // of the weights
};

/// y = sum over the top_k experts that the router chooses by a token's logits [experts], weighted
/// as it says, of down(gate(gate_up(x))). Experts that every token goes to are a dense block beside
/// it, whose result is added before or after.
struct ExpertsOp {
  ValueId y = kNoValue;
  ValueId x = kNoValue;
  ValueId router_logits = kNoValue;
  Experts experts;
  Router router = {};

  Operands operands() const;
  std::string text() const;
};

/// y = some columns of x, range after range.
struct ColumnsOp {
  using Range = ColumnRange;

  ValueId y = kNoValue;
  ValueId x = kNoValue;
  Columns ranges;

  Operands operands() const;
  std::string text() const { return "columns"; }
};

/// y = sigmoid(gate) * x, and `base` is added unless it is no value. y takes the memory of x. The
/// gate has a column for each of x, or one for all: that of an expert that every token goes to; or
/// it is no value, and y = x + base.
struct SigmoidGateOp {
  ValueId y = kNoValue;
  ValueId x = kNoValue;
  ValueId gate = kNoValue;
  ValueId base = kNoValue;

  Operands operands() const;
  std::string text() const {
    return gate == kNoValue ? "add" : base == kNoValue ? "sigmoid gate" : "sigmoid gate, add";
  }
};

/// y = gate(x) * u, where u are as many columns of `up` from `first` on.
struct GateOp {
  ValueId y = kNoValue;
  ValueId x = kNoValue;
  ValueId up = kNoValue;
  int64_t first = 0;
  Gate gate = Gate::kSilu;

  Operands operands() const {
    return {reads(x, Operand::kAnyCols), reads(up, Operand::kAnyCols),
            writes(y, Operand::kAnyCols)};
  }
  std::string text() const { return "gate, columns from " + std::to_string(first); }
};

/// logits = cap * tanh(factor * logits / cap), or factor * logits where `cap` is 0: what the step
/// gives [head rows][vocabulary], and what the tokens are chosen by. The last operation of every
/// plan, but of stages that send (ops/exchange.h).
struct LogitsOp {
  ValueId logits = kNoValue;
  float factor = 1;
  float cap = 0;

  Operands operands() const { return {reads_floats(logits, Operand::kAnyCols)}; }
  std::string text() const { return "logits, choices"; }
};

/// All kinds, of which each backend has a function for each: run() of the CPU, launch() of a GPU.
#define SUBBYTE_OPERATIONS(ROW) \
  ROW(EmbedOp)                  \
  ROW(AddNormOp)                \
  ROW(AddOp)                    \
  ROW(NormOp)                   \
  ROW(LinearOp)                 \
  ROW(GatedLinearOp)            \
  ROW(AnglesOp)                 \
  ROW(RotateOp)                 \
  ROW(SelectOp)                 \
  ROW(AttendOp)                 \
  ROW(HeadsLinearOp)            \
  ROW(ExpertsOp)                \
  ROW(ColumnsOp)                \
  ROW(SigmoidGateOp)            \
  ROW(GateOp)                   \
  ROW(DeltaNetOp)               \
  ROW(ShortConvOp)              \
  ROW(MambaOp)                  \
  ROW(AllReduceOp)              \
  ROW(AllGatherOp)              \
  ROW(ReceiveOp)                \
  ROW(SendOp)                   \
  ROW(LogitsOp)

template <class, class... Kinds>
using OneOf = std::variant<Kinds...>;
using Operation = OneOf<void
#define SUBBYTE_KIND(Kind) , Kind
                            SUBBYTE_OPERATIONS(SUBBYTE_KIND)
#undef SUBBYTE_KIND
                        >;

struct Op {
  std::string name;  // "layers.3.self_attn.o_proj"
  std::vector<ValueId> inputs, outputs;
  Operation what;
};

struct StepPlan {
  std::vector<StepValue> values;
  std::vector<Op> ops;
  CacheLayout cache;

  const StepValue& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  /// The operation, if it is of that kind and there is one (op >= 0); else nullptr.
  template <class Kind>
  const Kind* as(int64_t op) const {
    return op < 0 ? nullptr : std::get_if<Kind>(&ops[static_cast<std::size_t>(op)].what);
  }
  /// The value whose memory `id` lies in.
  ValueId memory_of(ValueId id) const;
  int64_t vocab_size() const;
};

/// The operations of a kind, in their order.
template <class T>
std::vector<const T*> ops_of(const StepPlan& plan) {
  std::vector<const T*> found;
  for (const Op& op : plan.ops) {
    if (const T* const what = std::get_if<T>(&op.what)) found.push_back(what);
  }
  return found;
}

/// By value: the operations that read it, in their order.
std::vector<std::vector<int64_t>> readers_of(const StepPlan& plan);

/// For people: a line for each operation, "%4 = linear %3 [4096][12288] layers.0.mlp.down_proj".
std::string to_string(const StepPlan& plan);

}  // namespace subbyte
