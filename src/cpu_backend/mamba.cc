// Blocks of Mamba 2 (MambaOp): the convolution row by row, the recurrence head by head, then norms
// and gates. The recurrence is that of delta nets without its correction: B is the key, C the
// query, dt what is taken of x. Many tokens go in chunks, except in batch-invariant mode.

#include <algorithm>
#include <cmath>

#include "cpu_backend/step_runner.h"

namespace subbyte {
namespace {

constexpr int64_t kAligned = 16;            // floats that are 64 bytes
constexpr int64_t kChannelGrain = 1 << 12;  // channels that are worth a thread

int64_t aligned(int64_t floats) {
  return (floats + kAligned - 1) / kAligned * kAligned;
}

float softplus(float x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

struct MambaNumbers {
  std::span<const float> filters, bias, rates, dt_bias, d, norm;
};

class Mamba {
 public:
  /// scratch [rows][scratch_size], of all parts together.
  Mamba(Execution& execution, std::span<float> y, std::span<float> scratch,
        std::span<const float> projections, std::span<const StatePart> parts,
        const MambaShape& shape, const MambaNumbers& numbers)
      : execution_(execution),
        kernels_(*execution.kernels().vectors),
        y_(y.data()),
        projections_(projections.data()),
        parts_(parts),
        shape_(shape),
        numbers_(numbers) {
    for (const StatePart& part : parts) {
      first_rows_.push_back(std::ssize(rows_));
      for (int64_t t = 0; t < part.tokens; ++t) rows_.push_back({&part, t});
    }
    mixed_ = scratch.data();
    decay_ = mixed_ + std::ssize(rows_) * shape.channels();
    steps_ = decay_ + std::ssize(rows_) * shape.heads;
    zeros_.assign(shape.channels(), 0.0f);
    if (!numbers.bias.empty()) ones_.assign(shape.channels(), 1.0f);
    find_chunks();
    const int64_t of_threads = execution.pool().size() * of_thread();
    scratch_ = execution.floats(Execution::Slot::kScratch, of_threads + kAligned);
    const auto misplaced = reinterpret_cast<uintptr_t>(scratch_) / sizeof(float) % kAligned;
    scratch_ += misplaced == 0 ? 0 : kAligned - misplaced;
  }

  void run() {
    Executor& pool = execution_.pool();
    const int64_t rows = std::ssize(rows_);
    const int64_t grain = std::max<int64_t>(1, kChannelGrain / shape_.channels());
    pool.parallel_for(rows, grain, [this](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) mix(row);
    });
    const int64_t heads = shape_.heads;
    pool.parallel_for(std::ssize(parts_) * heads, 1,
                      [this, heads](int64_t begin, int64_t end, int thread) {
                        for (int64_t i = begin; i < end; ++i) {
                          recur(i / heads, i % heads, scratch_ + thread * of_thread());
                        }
                      });
    pool.parallel_for(rows, grain, [this](int64_t begin, int64_t end, int thread) {
      for (int64_t row = begin; row < end; ++row) finish(row, scratch_ + thread * of_thread());
    });
  }

 private:
  /// A row of the batch: a token of a part.
  struct Row {
    const StatePart* part = nullptr;
    int64_t token = 0;
  };

  /// The columns of heads that go in chunks: as many of them as chunks take.
  void find_chunks() {
    if (execution_.batch_invariant() || kernels_.delta_chunks.run == nullptr) return;
    chunks_ = kernels_.delta_chunks;
    chunk_columns_ = shape_.head_size / kAligned * kAligned;
    while (chunk_columns_ > 0 && chunks_.scratch_floats(shape_.state_size, chunk_columns_) == 0) {
      chunk_columns_ -= kAligned;
    }
  }

  /// Floats that a thread works in: those of the recurrence or of chunks, or a gate.
  int64_t of_thread() const {
    int64_t floats = std::max(shape_.state_size * cpu::kDeltaScratchColumns, shape_.width());
    if (chunk_columns_ > 0) {
      floats = std::max(floats, chunks_.scratch_floats(shape_.state_size, chunk_columns_));
    }
    return aligned(floats);
  }

  /// What the convolution reads of a token of a part; a negative one is of earlier steps.
  const float* input(const StatePart& part, int64_t first_row, int64_t token) const {
    if (token >= 0) {
      return projections_ + (first_row + token) * shape_.row_size() + shape_.width();
    }
    if (part.from == nullptr) return zeros_.data();
    return part.from + (token + shape_.taps - 1) * shape_.channels();
  }

  /// The convolution of a row, its decays and its steps. A bias is a tap whose inputs are 1. The
  /// last row of a part keeps what the next step reads.
  void mix(int64_t row) {
    const auto [part, token] = rows_[row];
    const int64_t taps = shape_.taps;
    const float* inputs[kMaxMambaTaps + 1];
    const float* filters[kMaxMambaTaps + 1];
    for (int64_t tap = 0; tap < taps; ++tap) {
      inputs[tap] = input(*part, row - token, token - (taps - 1) + tap);
      filters[tap] = numbers_.filters.data() + tap * shape_.channels();
    }
    inputs[taps] = ones_.data();
    filters[taps] = numbers_.bias.data();
    kernels_.convolve_silu(mixed_ + row * shape_.channels(), inputs, filters,
                           taps + (ones_.empty() ? 0 : 1), shape_.channels());
    for (int64_t tap = 1; token == part->tokens - 1 && tap < taps; ++tap) {
      std::copy_n(inputs[tap], shape_.channels(), part->to + (tap - 1) * shape_.channels());
    }
    const float* const of_heads = projections_ + (row + 1) * shape_.row_size() - shape_.heads;
    for (int64_t h = 0; h < shape_.heads; ++h) {
      const float step = std::clamp(softplus(of_heads[h] + numbers_.dt_bias[h]), shape_.least_step,
                                    shape_.largest_step);
      steps_[row * shape_.heads + h] = step;
      decay_[row * shape_.heads + h] = std::exp(numbers_.rates[h] * step);
    }
  }

  /// All tokens of a part for one head.
  void recur(int64_t part_idx, int64_t head, float* scratch) {
    const StatePart& part = parts_[part_idx];
    const int64_t first_row = first_rows_[part_idx];
    const int64_t numbers = shape_.state_size * shape_.head_size;
    const int64_t at = (shape_.taps - 1) * shape_.channels() + head * numbers;
    if (part.from == nullptr) {
      std::fill_n(part.to + at, numbers, 0.0f);
    } else {
      std::copy_n(part.from + at, numbers, part.to + at);
    }
    const float* const mixed = mixed_ + first_row * shape_.channels();
    const float* const b =
        mixed + shape_.width() + head / shape_.heads_per_group() * shape_.state_size;
    cpu::DeltaRule rule;
    rule.corrects = false;
    rule.state = part.to + at;
    rule.state_stride = shape_.head_size;
    rule.keys = shape_.state_size;
    rule.columns = shape_.head_size;
    rule.tokens = part.tokens;
    rule.k = b;
    rule.q = b + shape_.groups * shape_.state_size;
    rule.v = mixed + head * shape_.head_size;
    rule.key_stride = rule.v_stride = shape_.channels();
    rule.y = y_ + first_row * shape_.width() + head * shape_.head_size;
    rule.y_stride = shape_.width();
    rule.decay = decay_ + first_row * shape_.heads + head;
    rule.beta = steps_ + first_row * shape_.heads + head;
    rule.gate_stride = shape_.heads;
    rule.scratch = scratch;
    const bool in_chunks = chunk_columns_ > 0 && part.tokens >= chunks_.min_tokens;
    run_columns(rule, in_chunks);
    for (int64_t t = 0; t < part.tokens; ++t) {
      const float* const x = rule.v + t * rule.v_stride;
      float* const y = rule.y + t * rule.y_stride;
      for (int64_t i = 0; i < shape_.head_size; ++i) y[i] += numbers_.d[head] * x[i];
    }
  }

  void run_columns(cpu::DeltaRule rule, bool in_chunks) const {
    if (!in_chunks) return kernels_.delta_rule(rule);
    rule.columns = chunk_columns_;
    chunks_.run(rule);
    rule.columns = shape_.head_size - chunk_columns_;
    rule.state += chunk_columns_;
    rule.v += chunk_columns_;
    rule.y += chunk_columns_;
    if (rule.columns > 0) kernels_.delta_rule(rule);
  }

  /// Norms and gates of a row.
  void finish(int64_t row, float* gate) {
    const bool has_norm = !numbers_.norm.empty();
    const int64_t groups = has_norm ? shape_.norm_groups : 1;
    const int64_t size = shape_.width() / groups;
    const auto norm = [&](float* to, const float* from, int64_t first) {
      kernels_.rms_norm(to, from, numbers_.norm.data() + first, size, shape_.eps);
    };
    for (int64_t first = 0; first < shape_.width(); first += size) {
      float* const y = y_ + row * shape_.width() + first;
      if (has_norm && shape_.norm_before_gate) norm(y, y, first);
      std::copy_n(projections_ + row * shape_.row_size() + first, size, gate);
      kernels_.silu_gate(gate, y, size);
      if (has_norm && !shape_.norm_before_gate) {
        norm(y, gate, first);
      } else {
        std::copy_n(gate, size, y);
      }
    }
  }

  Execution& execution_;
  const cpu::VectorKernels& kernels_;
  float* y_;
  const float* projections_;
  std::span<const StatePart> parts_;
  const MambaShape& shape_;
  const MambaNumbers& numbers_;
  cpu::DeltaChunks chunks_;
  int64_t chunk_columns_ = 0;  // 0: the recurrence for all
  std::vector<Row> rows_;
  std::vector<int64_t> first_rows_;  // of each part
  std::vector<float> zeros_, ones_;
  float* mixed_ = nullptr;    // [rows][channels]: x, B and C as the rule has them
  float* decay_ = nullptr;    // [rows][heads]
  float* steps_ = nullptr;    // the same
  float* scratch_ = nullptr;  // [threads][of_thread()]
};

}  // namespace

Status StepRunner::run(const MambaOp& op) {
  const MambaOp::Weights& weights = op.weights;
  const MambaNumbers opened = {open(weights.filters), open(weights.bias), open(weights.rates),
                               open(weights.dt_bias), open(weights.d),    open(weights.norm)};
  const std::vector<StatePart> parts = states(op.cache);
  Mamba(execution_, numbers(op.y), numbers(op.scratch), numbers(op.projections), parts, op.shape,
        opened)
      .run();
  return {};
}

}  // namespace subbyte
