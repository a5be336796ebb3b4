#pragma once
// The CPU kernels of one instruction set, as a table of functions. Which one runs is decided once
// (select_kernels); what is in it is the same everywhere.
//
// Activations are float32. Before a product they are packed in the way in which its loop reads
// them: a PackedLayout, which is declared beside that loop.

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "kernels/cpu/vector_kernels.h"
#include "matrix/matrix.h"

namespace subbyte::cpu {

/// How the activations of one product are packed. One pack holds `rows_per_pack` rows; those that
/// are not there are zeros, and so is what fills up its last block of inputs.
struct PackedLayout {
  const char* name = "";
  int64_t rows_per_pack = 1;
  /// Bytes to leave between packs, so that their length is no power of two and packs that a loop
  /// reads together do not meet in one set of a cache.
  int64_t padding = 64;
  /// Rows of weights that a thread takes at a time: a multiple of 8, and few, so that threads have
  /// equal shares of small matrices.
  int64_t row_grain = 8;
  /// Numbers that bf16 holds, subnormal ones left aside, are packed as they are.
  bool keeps_bf16 = false;
  /// Bytes of a pack of k inputs, a multiple of 64.
  int64_t (*bytes)(int64_t k) = nullptr;
  /// Packs `rows` <= rows_per_pack rows of k floats. `gather` (act-order) may be nullptr; else
  /// input i is x[gather[i]].
  void (*pack)(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather,
               int64_t k) = nullptr;
};

/// Packed activations, 64-byte aligned.
struct Activations {
  const uint8_t* data = nullptr;
  int64_t rows = 0;    // M
  int64_t stride = 0;  // bytes from one pack to the next
};

/// A MatrixView as the kernels see it: plain data, because files compiled for one instruction set
/// must not instantiate inline functions that others share.
struct Weights {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* zeros = nullptr;
  Format scale = Format::kNone;  // kNone: dense
  Zero zero = Zero::kNone;
  Format offset = Format::kNone;  // of zeros that are offsets
  int64_t cols = 0;
  int64_t row_bytes = 0;  // of codes
  int64_t scale_row_bytes = 0;
  int64_t zero_row_bytes = 0;
  int64_t groups = 0;      // 0: dense
  int64_t group_size = 0;  // the number of columns when the group is the whole row
  float tensor_scale = 1;
  /// The matrix's own: 2^bits values, or vectors, [256][4] or [256][2]. nullptr: the format's.
  const float* codebook = nullptr;
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
  uint8_t* scratch = nullptr;  // scratch_bytes(weights.cols), 64-byte aligned, one for each thread
};

/// Precision to which a product rounds its activations.
enum class Precision : uint8_t {
  kF32,   // float32, or what differs from it by 2^-16 of each activation, 2^-22.9 of the largest
          // of each 8 or 2^-22 of the largest of each 128; and by 2^-17 of each weight, where it
          // takes two bf16
  kBF16,  // prompts (more rows than a few): bfloat16, as the models' own software has them, where
          // the machine multiplies it fast, or, for some tokens and where only dot products of
          // bytes are fast, what differs by 2^-14 of the largest of each 128; else as kF32
  kInt8,  // integer and E2M1 weights on avx512vnni, avx512bf16 and, of a few rows, amx, and on avx2
          // codes of 4, 5, 6 or 8: 8 bits with a scale for each 32 inputs; all else as kBF16
};
inline constexpr int kPrecisions = 3;

/// How the groups of a row of weights lie in its blocks.
enum class GroupKind : uint8_t {
  kWhole,       // each covers whole blocks, or is the row; and dense weights
  kThirtyTwos,  // multiples of 32 inputs that cut blocks
  kOther,       // any other multiple of 8
};
inline constexpr int kGroupKinds = 3;

/// One way to multiply by weights of one format, for any M.
struct KernelVariant {
  const PackedLayout* layout = nullptr;
  void (*multiply)(const MatmulTask& task) = nullptr;
  const char* name = "";  // what tests call it; variants of one format have different ones
  int weight_splits = 1;  // bf16 that stand for each weight; 2: hi + lo
  /// The variant for matrices with a codebook of their own, where this one has the format's as
  /// constants that its arithmetic is made for.
  const KernelVariant* own_codebook = nullptr;

  const KernelVariant& of(const Weights& weights) const {
    return own_codebook != nullptr && weights.codebook != nullptr ? *own_codebook : *this;
  }
};

/// Variants for growing M: the first whose max_m is not below M serves.
struct VariantList {
  struct Entry {
    KernelVariant variant;
    int64_t max_m = INT64_MAX;  // the last one that is used has this
  };
  Entry entries[5];
  KernelVariant invariant;  // batch-invariant mode: for every M
};

struct MatmulKernel {
  Format element = Format::kNone;
  Format scale = Format::kNone;                 // kNone: dense; kI8: any of two levels
  Zero zero = Zero::kNone;                      // kF32: offsets of any type
  VariantList lists[kGroupKinds][kPrecisions];  // filled by dispatch.inl.h of each folder

  constexpr const VariantList& list(GroupKind groups, Precision precision) const {
    return lists[static_cast<int>(groups)][static_cast<int>(precision)];
  }
};

struct Kernels {
  std::string_view name;       // of the folder
  uint32_t required_features;  // bits of CpuFeature
  uint32_t wanted_features;    // without which others are faster
  int lanes;                   // floats in a vector
  std::span<const MatmulKernel> matmuls;

  /// Bytes of MatmulTask::scratch for weights with k inputs.
  int64_t (*scratch_bytes)(int64_t k);
  void (*axpy)(float* y, float a, const float* x, int64_t n);  // y += a x

  const VectorKernels* vectors;  // attention, norms, rotary embedding, gates
};

/// nullptr when no kernel of this table multiplies that format. Any group size that is a multiple
/// of 8 works, of 32 where codes are indices of vectors, and so does the whole row; parts of 256
/// where scales have two levels; any rows >= 1; cols any multiple of 8.
const MatmulKernel* find_matmul(const Kernels& kernels, const WeightFormat& format);

GroupKind group_kind(const Kernels& kernels, const Weights& weights);

/// How to multiply m rows of activations by `weights`. With `batch_invariant`, a row's result is
/// the same bits whatever m is, as one variant serves every m.
const KernelVariant& choose_variant(const Kernels& kernels, const MatmulKernel& kernel,
                                    const Weights& weights, int64_t m, Precision precision,
                                    bool batch_invariant);

/// All that are compiled in, best first.
std::span<const Kernels* const> all_kernels();

/// The best for this machine, or the one that `forced` names (the commands pass the
/// environment variable SUBBYTE_ISA). Codes: isa.unknown, isa.unsupported.
Result<const Kernels*> select_kernels(std::string_view forced = {});

}  // namespace subbyte::cpu
