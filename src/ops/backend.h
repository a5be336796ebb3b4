#pragma once
// A machine that models run on: the CPU, a GPU. A model file is a list of these calls, the same for
// every machine; src/devices/ makes the backends.
//
//   loading    upload...()   weights go to the memory of the machine, in the form of its kernels.
//                            Only these refuse; whatever was taken is served in every step.
//   a step     begin(batch)  then operations in the order of the model, then end(). Operations are
//                            enqueued and return at once.
//              finish(...)   waits for the oldest step that is not finished; the first error of a
//                            step is what it returns. A GPU has work all the time where the next
//                            step is enqueued before that: steps_in_flight().
//
// Tensors of a step have a row for each token of the batch. Results of a token do not depend on how
// many threads there are; in batch-invariant mode they do not depend on the other tokens either.
// One thread at a time uses a backend.

#include <string>

#include "base/executor.h"
#include "base/status.h"
#include "ops/attention.h"
#include "ops/batch.h"
#include "ops/machine_memory.h"
#include "ops/rope.h"
#include "ops/tensor.h"

namespace subbyte {

/// y = x / sqrt(mean(x^2) + eps) * weight for each row; the mean is accumulated in double
/// precision.
struct Norm {
  Vector weight;
  float eps = 1e-6f;
};

/// Norms of each query and each key head before the rotary embedding; handles of size 0: none.
struct HeadNorms {
  Vector q, k;  // [head_dim]
  float eps = 1e-6f;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // --- the machine

  /// "amx kernels, 2 threads"
  virtual std::string description() const = 0;
  /// How the last step that ended runs, where a backend has several ways: "one kernel", "a graph",
  /// "launches".
  virtual std::string last_step() const { return {}; }
  /// Tokens of a prompt that a step is best given: more keep a larger machine busy, and take room.
  virtual int64_t prompt_chunk() const = 0;
  /// Bytes per second that the machine reads from memory, measured now, on the bytes of `weight`;
  /// 0 when they fit into its caches.
  virtual double measure_read_bandwidth(const Weight& weight) = 0;
  /// The threads of the host, for work beside the operations, such as importing.
  virtual Executor& host() = 0;
  /// nullptr: the machine computes in the memory of the host, where weights may stay in their file.
  virtual MachineMemory* memory() { return nullptr; }

  // --- loading

  /// Code linear.unsupported names what is supported. `bias` [rows] or empty.
  virtual Result<Weight> upload(Matrix matrix, std::vector<float> bias = {}) = 0;
  /// Matrices with as many columns, whose outputs follow each other: q, k, v; gate, up.
  virtual Result<Weight> upload_joined(std::vector<Matrix> matrices,
                                       std::vector<float> bias = {}) = 0;
  virtual Result<Experts> upload(ExpertMatrices experts) = 0;
  virtual Result<Vector> upload(std::vector<float> numbers) = 0;
  /// Code kv.memory when there is no room for so many pages.
  virtual Result<KvPool> make_kv_pool(const KvShape& shape, int64_t num_pages) = 0;

  // --- a step

  /// Steps that may be on their way at once: begin() may follow end() so many times before the
  /// first finish(). With one every token of a batch is known; with two there may be
  /// chosen_before(), of a choice that the step before has.
  virtual int64_t steps_in_flight() const { return 1; }

  /// The sequences of the batch have room for its tokens (Sequence::reserve) and know their lengths
  /// before them. The batch must stay until it is finished, the tokens of its parts until end().
  virtual void begin(const Batch& batch) = 0;

  /// A tensor for this step.
  virtual Tensor tensor(int64_t cols) = 0;

  /// y[t] = row tokens[t] of a table [vocabulary][hidden]; every token is inside.
  virtual void embed(Tensor y, const Weight& table) = 0;
  /// x += delta, unless `delta` is no tensor; then y = the normalised x. What delta holds is used
  /// up: it is not read again before it is written.
  virtual void add_norm(Tensor y, Tensor x, Tensor delta, const Norm& norm) = 0;
  /// y = W x + b.
  virtual void linear(Tensor y, Tensor x, const Weight& weight) = 0;
  /// The same with the most exact activations that the machine has for such weights, whatever it
  /// rounds them to elsewhere: for small products that decide something, such as which experts a
  /// token goes to. One matrix, not several joined; likewise the table of embed().
  virtual void exact_linear(Tensor y, Tensor x, const Weight& weight) = 0;
  /// y = silu(gate) * up, silu(x) = x / (1 + exp(-x)), where gate and up are the first and the
  /// second half of the outputs of W x.
  virtual void gated_linear(Tensor y, Tensor x, const Weight& gate_up) = 0;
  /// qkv has the heads of queries, keys and values of a token one after the other. Query and key
  /// heads are normalised and turned by their positions; keys and values go to the cache of
  /// `layer`.
  virtual void rotate_and_store(Tensor qkv, const HeadNorms& norms, const Rope& rope,
                                const AttentionShape& shape, int64_t layer) = 0;
  /// y = causal attention of the queries of qkv over the cache of `layer`. `sinks` [heads], or of
  /// size 0: a logit that takes part in the softmax and has no value.
  virtual void attend(Tensor y, Tensor qkv, const AttentionShape& shape, int64_t layer,
                      const Vector& sinks) = 0;
  /// y = sum over the top_k largest of a token's router logits [experts] (the lower index on ties),
  /// weighted by a softmax of these (RouteWeights), of down(SwiGLU(gate_up(x))). Experts that every
  /// token goes to are a dense block beside it, whose result add_norm() adds before or after.
  virtual void experts(Tensor y, Tensor x, Tensor router_logits, const Experts& experts) = 0;
  /// The logits that the batch asks for or lets choose from: head(norm(x + delta)).
  virtual void logits(Tensor x, Tensor delta, const Norm& norm, const Weight& head) = 0;

  /// After the last operation of a step.
  virtual void end() = 0;

  /// Waits for the operations before; whether every number of `x` is finite. To find where a step
  /// went wrong; slow. An operation that failed makes it true.
  virtual bool is_finite(Tensor x) = 0;

  /// Waits for the oldest step that has ended and is not finished, of which there is one. `logits`
  /// has its Batch::num_logits() rows then, and a token for each part with a choice: the one that
  /// TokenChooser takes of the same logits.
  virtual Status finish(Logits& logits) = 0;
};

}  // namespace subbyte
