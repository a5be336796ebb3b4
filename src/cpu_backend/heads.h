#pragma once
// Between the projections of an attention block and attention itself: norms of the heads, rotary
// embedding, and the way of keys and values into the cache.

#include <span>
#include <vector>

#include "cpu_backend/kv_memory.h"
#include "kernels/cpu/execution.h"
#include "ops/step_plan.h"

namespace subbyte {

/// A row of the batch: its position, and the page of its sequence that holds it.
struct RowPlace {
  int64_t position = 0;
  int32_t page = 0;
};

/// Operands of RotateOp beside qkv.
struct HeadOperands {
  std::span<const float> q_norm, k_norm;  // [head_dim] or empty
  std::span<const float> cos, sin;        // [rows][half]
  int64_t half = 0;                       // pairs that turn
};

/// RotateOp with qkv [rows][qkv_size()] of the shape; keys and values are stored in the cache of
/// the operation's layer. Keeps a reference to all that it is given.
class RotatedRows {
 public:
  RotatedRows(const cpu::VectorKernels& kernels, const RotateOp& op, std::span<float> qkv,
              const HeadOperands& operands, std::span<const RowPlace> places,
              const CpuKvMemory& cache, Element element);

  RotatedRows(const RotatedRows&) = delete;
  RotatedRows& operator=(const RotatedRows&) = delete;

  /// All heads of all rows, in place.
  void run_all(Execution& execution) const;
  /// Copies of one row, as PrepareHead has them: the queries of a KV head, and its key and value.
  void prepare(int64_t row, int64_t kv_head, bool stores, float* room) const;

 private:
  /// In place: number `head` of heads_of_token() of a row.
  void run(int64_t row, int64_t head) const;
  void run(float* x, int64_t row, int64_t head) const;
  /// Normalises and turns a head of a row, and scales it where it is one of queries.
  void turn(float* x, int64_t row, int64_t position, bool is_query) const;
  void normalise(float* x, const float* norm) const;

  const cpu::VectorKernels& kernels_;
  const RotateOp& op_;
  std::span<float> qkv_;
  HeadOperands operands_;
  std::span<const RowPlace> places_;
  const CpuKvMemory& cache_;
  Element element_;
  std::vector<float> ones_;
  const float* q_norm_ = nullptr;
  const float* k_norm_ = nullptr;
};

}  // namespace subbyte
