#include "cpu_backend/delta_net.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace subbyte {
namespace {

constexpr int64_t kAligned = 16;            // floats that are 64 bytes
constexpr int64_t kChannelGrain = 1 << 12;  // channels that are worth a thread

float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
}

/// Chunks for as many tokens as they are faster for, where results may depend on the step that a
/// token is in and there are chunks for such heads.
cpu::DeltaChunks chunks_of(const Execution& execution, const DeltaNetShape& shape) {
  if (execution.batch_invariant()) return {};
  const cpu::DeltaChunks chunks = execution.kernels().vectors->delta_chunks;
  if (chunks.run == nullptr) return {};
  return chunks.scratch_floats(shape.key_size, shape.value_size) == 0 ? cpu::DeltaChunks{} : chunks;
}

float softplus(float x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

/// A row of the batch: a token of a part.
struct Row {
  const StatePart* part = nullptr;
  int64_t token = 0;
};

class DeltaNet {
 public:
  DeltaNet(Execution& execution, std::span<float> y, std::span<const float> qkvz,
           std::span<const float> ba, std::span<const StatePart> parts, const DeltaNetShape& shape,
           const DeltaNetNumbers& numbers)
      : execution_(execution),
        kernels_(*execution.kernels().vectors),
        y_(y.data()),
        qkvz_(qkvz.data()),
        ba_(ba.data()),
        parts_(parts),
        shape_(shape),
        numbers_(numbers),
        columns_(delta_net_columns(shape)),
        chunks_(chunks_of(execution, shape)) {
    for (const StatePart& part : parts) {
      for (int64_t t = 0; t < part.tokens; ++t) rows_.push_back({&part, t});
    }
    // RMS norms of weights that are all the same: mean(x^2) + eps / n = (sum(x^2) + eps) / n.
    const auto n = static_cast<float>(shape.key_size);
    k_scale_.assign(shape.key_size, 1 / std::sqrt(n));
    q_scale_.assign(shape.key_size, 1 / n);
    eps_ = kDeltaNetEps / n;
    const int64_t of_rows = std::ssize(rows_) * (shape.channels() + 2 * shape.value_heads);
    zeros_.assign(std::max(shape.key_size, shape.values_per_key() * shape.value_size), 0.0f);
    mixed_ = execution.floats(Execution::Slot::kScratch,
                              of_rows + execution.pool().size() * of_thread() + kAligned);
    decay_ = mixed_ + std::ssize(rows_) * shape.channels();
    beta_ = decay_ + std::ssize(rows_) * shape.value_heads;
    scratch_ = mixed_ + of_rows;
    const auto misplaced = reinterpret_cast<uintptr_t>(scratch_) / sizeof(float) % kAligned;
    scratch_ += misplaced == 0 ? 0 : kAligned - misplaced;
  }

  void run() {
    Executor& pool = execution_.pool();
    const int64_t heads = shape_.key_heads;
    const int64_t channels = shape_.channels() / heads;
    pool.parallel_for(std::ssize(rows_) * heads, std::max<int64_t>(1, kChannelGrain / channels),
                      [this, heads](int64_t begin, int64_t end, int) {
                        for (int64_t i = begin; i < end; ++i) mix(i / heads, i % heads);
                      });
    first_rows_.clear();
    int64_t row = 0;
    for (const StatePart& part : parts_) {
      first_rows_.push_back(row);
      row += part.tokens;
    }
    const int64_t values = shape_.value_heads;
    pool.parallel_for(std::ssize(parts_) * values, 1,
                      [this, values](int64_t begin, int64_t end, int thread) {
                        for (int64_t i = begin; i < end; ++i) {
                          recur(i / values, i % values, scratch_ + thread * of_thread());
                        }
                      });
  }

 private:
  /// What lies together in a row of projections: so many numbers that begin at a column, and at a
  /// channel of the convolution.
  struct Piece {
    int64_t column, channel, count;
  };

  static int64_t aligned(int64_t floats) { return (floats + kAligned - 1) / kAligned * kAligned; }

  /// Floats that a thread works in: those of the recurrence or of chunks, and a gate.
  int64_t of_thread() const { return of_rule() + aligned(shape_.value_size); }
  int64_t of_rule() const {
    const int64_t floats = shape_.key_size * cpu::kDeltaScratchColumns;
    if (chunks_.run == nullptr) return floats;
    return std::max(floats, aligned(chunks_.scratch_floats(shape_.key_size, shape_.value_size)));
  }
  int64_t row_size() const { return shape_.channels() + shape_.value_width(); }

  Piece queries(int64_t head) const {
    return {columns_.q.of(head), head * shape_.key_size, shape_.key_size};
  }
  Piece keys(int64_t head) const {
    return {columns_.k.of(head), shape_.key_width() + head * shape_.key_size, shape_.key_size};
  }
  Piece values(int64_t head) const {
    const int64_t count = shape_.values_per_key() * shape_.value_size;
    return {columns_.v.of(head), 2 * shape_.key_width() + head * count, count};
  }

  /// What the convolution reads of the token `token` of a part; a negative one is of earlier steps.
  const float* input(const StatePart& part, int64_t first_row, int64_t token,
                     const Piece& piece) const {
    if (token >= 0) return qkvz_ + (first_row + token) * row_size() + piece.column;
    if (part.from == nullptr) return zeros_.data();
    return part.from + (token + shape_.taps - 1) * shape_.channels() + piece.channel;
  }

  float* convolve(int64_t row, const Piece& piece) {
    const auto [part, token] = rows_[row];
    const float* inputs[kMaxDeltaNetTaps];
    const float* filters[kMaxDeltaNetTaps];
    for (int64_t tap = 0; tap < shape_.taps; ++tap) {
      inputs[tap] = input(*part, row - token, token - (shape_.taps - 1) + tap, piece);
      filters[tap] = numbers_.filters.data() + tap * shape_.channels() + piece.channel;
    }
    float* const to = mixed_ + row * shape_.channels() + piece.channel;
    kernels_.convolve_silu(to, inputs, filters, shape_.taps, piece.count);
    return to;
  }

  /// A key head of a row and its value heads: convolution, norms, gates.
  void mix(int64_t row, int64_t head) {
    float* const q = convolve(row, queries(head));
    kernels_.rms_norm(q, q, q_scale_.data(), shape_.key_size, eps_);
    float* const k = convolve(row, keys(head));
    kernels_.rms_norm(k, k, k_scale_.data(), shape_.key_size, eps_);
    convolve(row, values(head));
    const int64_t gates = shape_.values_per_key();
    const float* const ba = ba_ + row * 2 * shape_.value_heads;
    for (int64_t i = 0; i < gates; ++i) {
      const int64_t value_head = head * gates + i;
      const float a = ba[columns_.a.of(head) + i] + numbers_.dt_bias[value_head];
      decay_[row * shape_.value_heads + value_head] =
          std::exp(numbers_.rates[value_head] * softplus(a));
      beta_[row * shape_.value_heads + value_head] = sigmoid(ba[columns_.b.of(head) + i]);
    }
  }

  /// Keeps what the convolution of the next step reads.
  void keep_inputs(const StatePart& part, int64_t first_row, const Piece& piece) const {
    for (int64_t i = 0; i < shape_.taps - 1; ++i) {
      const float* const from = input(part, first_row, part.tokens - (shape_.taps - 1) + i, piece);
      std::copy_n(from, piece.count, part.to + i * shape_.channels() + piece.channel);
    }
  }

  /// All tokens of a part for one value head.
  void recur(int64_t part_idx, int64_t value_head, float* scratch) {
    float* const gate = scratch + of_rule();
    const StatePart& part = parts_[part_idx];
    const int64_t first_row = first_rows_[part_idx];
    const int64_t head = value_head / shape_.values_per_key();
    if (value_head % shape_.values_per_key() == 0) {
      for (const Piece& piece : {queries(head), keys(head), values(head)}) {
        keep_inputs(part, first_row, piece);
      }
    }
    const int64_t size = shape_.value_size;
    const int64_t numbers = shape_.key_size * size;
    const int64_t at = (shape_.taps - 1) * shape_.channels() + value_head * numbers;
    if (part.from == nullptr) {
      std::fill_n(part.to + at, numbers, 0.0f);
    } else {
      std::copy_n(part.from + at, numbers, part.to + at);
    }
    const float* const mixed = mixed_ + first_row * shape_.channels();
    cpu::DeltaRule rule;
    rule.state = part.to + at;
    rule.state_stride = size;
    rule.keys = shape_.key_size;
    rule.columns = size;
    rule.tokens = part.tokens;
    rule.q = mixed + queries(head).channel;
    rule.k = mixed + keys(head).channel;
    rule.v = mixed + 2 * shape_.key_width() + value_head * size;
    rule.key_stride = rule.v_stride = shape_.channels();
    rule.y = y_ + first_row * shape_.value_width() + shape_.place_of(value_head) * size;
    rule.y_stride = shape_.value_width();
    rule.decay = decay_ + first_row * shape_.value_heads + value_head;
    rule.beta = beta_ + first_row * shape_.value_heads + value_head;
    rule.gate_stride = shape_.value_heads;
    rule.scratch = scratch;
    const bool in_chunks = chunks_.run != nullptr && part.tokens >= chunks_.min_tokens;
    in_chunks ? chunks_.run(rule) : kernels_.delta_rule(rule);
    const int64_t z = columns_.z.of(head) + value_head % shape_.values_per_key() * size;
    for (int64_t t = 0; t < part.tokens; ++t) {
      float* const y = rule.y + t * rule.y_stride;
      kernels_.rms_norm(y, y, numbers_.norm.data(), size, shape_.eps);
      std::copy_n(qkvz_ + (first_row + t) * row_size() + z, size, gate);
      kernels_.silu_gate(gate, y, size);
      std::copy_n(gate, size, y);
    }
  }

  Execution& execution_;
  const cpu::VectorKernels& kernels_;
  float* y_;
  const float* qkvz_;
  const float* ba_;
  std::span<const StatePart> parts_;
  const DeltaNetShape& shape_;
  const DeltaNetNumbers& numbers_;
  DeltaNetColumns columns_;
  cpu::DeltaChunks chunks_;  // none: the recurrence for all
  std::vector<Row> rows_;
  std::vector<int64_t> first_rows_;  // of each part
  std::vector<float> k_scale_, q_scale_, zeros_;
  float eps_ = 0;
  float* mixed_ = nullptr;    // [rows][channels]: queries, keys and values as the rule has them
  float* decay_ = nullptr;    // [rows][value_heads]
  float* beta_ = nullptr;     // the same
  float* scratch_ = nullptr;  // [threads][of_thread()]
};

}  // namespace

void gated_delta_net(Execution& execution, std::span<float> y, std::span<const float> qkvz,
                     std::span<const float> ba, std::span<const StatePart> parts,
                     const DeltaNetShape& shape, const DeltaNetNumbers& numbers) {
  DeltaNet(execution, y, qkvz, ba, parts, shape, numbers).run();
}

}  // namespace subbyte
