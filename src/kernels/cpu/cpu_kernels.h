#pragma once
// The CPU kernels of one instruction set, as a table of functions. Which one runs is decided once
// (select_kernels); what is in it is the same everywhere.
//
// Activations are float32. Before a product they are packed into the order in which a vector of
// codes comes apart: a block is 8 * lanes inputs, and
//
//   kOctets   vector j of the block holds x[8*i + j] in lane i. Lane i of the code registers holds
//             the eight consecutive codes 8*i .. 8*i+7 of the canonical stream, so that shifting by
//             j codes meets vector j. The block ends with one more vector: lane i holds the sum of
//             its eight inputs, for zero points.
//   kNatural  vector j holds x[lanes*j + i]: for dense weights. No sums.
//
// The last block is filled up with zeros.

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "kernels/cpu/vector_kernels.h"
#include "layouts/matrix.h"

namespace subbyte::cpu {

enum class ActivationOrder : uint8_t { kOctets, kNatural };

/// Packed activations: m rows, each `stride` floats, 64-byte aligned.
struct Activations {
  const float* data = nullptr;
  int64_t rows = 0;    // M
  int64_t stride = 0;  // floats from one row to the next
};

/// A MatrixView as the kernels see it: plain data, because files compiled for one instruction set
/// must not instantiate inline functions that others share.
struct Weights {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* zeros = nullptr;
  int64_t cols = 0;
  int64_t row_bytes = 0;   // of codes
  int64_t groups = 0;      // 0: dense
  int64_t group_size = 0;  // the number of columns when the group is the whole row
};

/// The caller has checked the sizes (ops: check_linear).
Weights weights_of(const MatrixView& matrix);

/// Computes y[m][n] = sum_k x[m][k] w[n][k] + bias[n] for n in [row_begin, row_end) and all m.
/// The order of the additions depends on the shape alone, so results do not depend on how rows
/// are divided among threads.
struct MatmulTask {
  Weights weights;
  Activations x;
  float* y = nullptr;
  int64_t y_stride = 0;         // floats from one m to the next
  const float* bias = nullptr;  // [rows] or nullptr
  int64_t row_begin = 0;
  int64_t row_end = 0;
  float* scratch = nullptr;  // scratch_floats(weights.cols), one for each thread
};

struct MatmulKernel {
  Format element;
  Format scale;  // kNone: dense
  Zero zero;
  ActivationOrder order;
  void (*gemv)(const MatmulTask& task);  // M from 1 to kMaxGemvRows
  void (*gemm)(const MatmulTask& task);  // any M: decodes a strip of rows, then multiplies
};

inline constexpr int64_t kMaxGemvRows = 4;

struct Kernels {
  std::string_view name;       // "scalar", "avx2", "avx512"
  uint32_t required_features;  // bits of CpuFeature
  int lanes;                   // floats in a vector
  std::span<const MatmulKernel> matmuls;

  /// Floats that one packed row of k inputs takes.
  int64_t (*packed_floats)(int64_t k, ActivationOrder order);
  /// Floats of MatmulTask::scratch for weights with k inputs.
  int64_t (*scratch_floats)(int64_t k);
  /// Packs one row. `gather` (act-order) may be nullptr; else input i is x[gather[i]].
  void (*pack)(float* packed, const float* x, const uint32_t* gather, int64_t k,
               ActivationOrder order);

  float (*dot)(const float* a, const float* b, int64_t n);
  void (*axpy)(float* y, float a, const float* x, int64_t n);  // y += a x

  const VectorKernels* vectors;  // attention, norms, rotary embedding, gates
};

/// nullptr when no kernel of this table multiplies that format. Any group size that is a multiple
/// of 8 works, and so does the whole row; any rows >= 1; cols any multiple of 8.
const MatmulKernel* find_matmul(const Kernels& kernels, const WeightFormat& format);

/// All that are compiled in, best first.
std::span<const Kernels* const> all_kernels();

/// The best that this machine runs, or the one that `forced` names (the commands pass the
/// environment variable SUBBYTE_ISA). Codes: isa.unknown, isa.unsupported.
Result<const Kernels*> select_kernels(std::string_view forced = {});

}  // namespace subbyte::cpu
