#pragma once
// What a GPU does for operators that have kernels there: functions that the library gets from files
// of its own, python/torch/cuda_*.cc, in builds with CUDA.

#include <array>
#include <optional>
#include <string>

#include "base/operands.h"
#include "base/status.h"
#include "flashinfer/group_gemm.h"
#include "foreign_layouts/int4pack.h"
#include "kernels/quantized_blocks.h"
#include "kernels/weight_quantization.h"
#include "subbyte/function_ref.h"
#include "torch_operators/bitsandbytes_tables.h"
#include "torch_operators/epilogue.h"
#include "torch_operators/four_over_six.h"
#include "torch_operators/kept.h"
#include "torch_operators/weights.h"

namespace subbyte::torch_operators {

/// Buffers of bitsandbytes' blocks, of kbit (bitsandbytes/kbit.h) or of vectors (vq.h).
struct BlockTensors {
  const Tensor* packed = nullptr;
  const Tensor* absmax = nullptr;
  const Tensor* codebook = nullptr;  // of 2^bits numbers, or of vectors; not read by repack_blocks
  Format scale = Format::kE4M4;
  int bits = 4;                 // planes of a block, 8 / p of vectors
  int p = 0;                    // numbers of a vector, 0: kbit
  bool nearest_scales = false;  // of quantize_blocks
};

/// Results of a quantizer of weights.
struct QuantizedWeights {
  Tensor codes;
  Tensor scales;
  std::optional<Tensor> zeros;
  std::optional<Tensor> factor;  // f64
};

/// Words of GPTQ or AWQ to those of Marlin.
struct MarlinWords {
  const Tensor* words = nullptr;
  const Tensor* perm = nullptr;  // nullptr: none
  int64_t rows = 0;
  int64_t cols = 0;
  int bits = 4;
  bool is_awq = false;
};

/// Codes of aten's converters, u8 with the even input in the high half or an i32 each, to its words
/// for CUDA with so many inner tiles, or with 0 of these to its bytes for CPUs.
struct Int4Words {
  const Tensor* codes = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int tiles = 0;
  CpuTile cpu_tile = CpuTile::kHalves32;
};

/// A mixture of experts whose arguments have been checked.
struct MixtureTensors {
  const Tensor* x = nullptr;        // [tokens, hidden]
  const Tensor* weights = nullptr;  // the router's logits, or weights of the experts that
  const Tensor* chosen = nullptr;   // are chosen
  int64_t experts = 0;
  int64_t top_k = 0;
  bool of_all = false;
  bool in_turns = false;
  SwiGLU swiglu;
  /// One layer of weights: [experts] matrices.
  struct Stack {
    std::array<const Tensor*, 4> sources = {};  // codes, scales, zero points, factors
    std::string words;                          // their format
    const Tensor* bias = nullptr;
    int64_t rows = 0;  // of an expert
    int64_t cols = 0;
    /// The matrix of an expert in host memory, its factor, and for gate and up that have factors of
    /// their own the one of up.
    FunctionRef<Result<MatrixView>(int64_t expert)> matrix;
    FunctionRef<double(int64_t expert)> factor;
    FunctionRef<std::optional<double>(int64_t expert)> up_factor;
  };
  Stack gate_up;
  Stack down;
};

/// All tensors are on one GPU but for those of WeightTensors that may be on the CPU. Work is
/// launched on torch's current stream of that GPU and not waited for.
struct DeviceFunctions {
  /// Says whether a CUDA graph is captured on torch's current stream of the GPU of a tensor.
  bool (*is_captured)(const Tensor& tensor);
  /// With `global_scale`, one f32 there, blocks.tensor_scale and search->global_scale are not read.
  Status (*quantize)(const BlockQuantization& blocks, const std::optional<FourOverSix>& search,
                     const Tensor* global_scale, const Tensor& x, Tensor& codes, Tensor& scales);
  Status (*dequantize)(const WeightTensors& weights, const MatrixView& view, Tensor& out);
  Status (*linear)(const Tensor& x, const WeightTensors& weights, const MatrixView& view,
                   const Epilogue& epilogue, Tensor& out);
  /// x W^T + bias with a matrix that `make` makes on the host of copies of `sources`, kept as
  /// keep() does. Codes torch.argument for x in f32 and a bias of another type than x.
  Status (*multiply)(const Tensor& x, const Recipe& recipe, std::span<const Tensor* const> sources,
                     FunctionRef<Result<Matrix>()> make, const std::optional<Tensor>& bias,
                     Tensor& out);
  /// The same for rows [first, first + count) of x and of `out`.
  Status (*multiply_rows)(const Tensor& x, int64_t first, int64_t count, const Recipe& recipe,
                          std::span<const Tensor* const> sources,
                          FunctionRef<Result<Matrix>()> make, Tensor& out);
  /// Flat codes of numbers, whose last block is filled up with zeros. A codebook is copied to the
  /// host at the first call with it, here and below. Values that are not finite are not looked for.
  Status (*quantize_blocks)(const Tensor& numbers, const BlockTensors& to);
  /// Blocks of [rows, cols] to the begin of `out`, in its type.
  Status (*dequantize_blocks)(const BlockTensors& from, int64_t rows, int64_t cols, bool is_tiled,
                              Tensor& out);
  /// Flat blocks as tiles.
  Status (*repack_blocks)(const BlockTensors& from, const BlockTensors& to, int64_t rows,
                          int64_t cols);
  /// hadamard_rotate() of bitsandbytes/hadamard.h.
  Status (*rotate)(const Tensor& data, int64_t dim, const std::optional<Tensor>& signs);
  /// FlashInfer's group GEMM; of `gemm` the shape, types and hints are read. The sizes of tensors
  /// have been checked, values of m_indptr are not: wrong ones read and write nothing else.
  Status (*group_gemm)(const flashinfer::GroupGemm& gemm, const Tensor& a, const Tensor& a_scale,
                       const Tensor& b, const Tensor& b_scale, const Tensor& m_indptr, Tensor& out);
  /// Quantizes [rows, cols] to tensors of `to`. False where the host has to say what is wrong: the
  /// stream is waited for, but in a capture, which has nothing refused.
  Result<bool> (*quantize_weights)(const WeightQuantization& how, const Tensor& weights,
                                   const QuantizedWeights& to);
  /// Both likewise.
  Result<bool> (*repack_marlin)(const MarlinWords& from, Tensor& out);
  Result<bool> (*convert_int4)(const Int4Words& from, Tensor& out);
  /// bitsandbytes' blocks of 4 bits, whose last one need not be whole.
  Status (*quantize_nibbles)(const Tensor& numbers, const Rising& rising, int64_t blocksize,
                             Tensor& packed, Tensor& absmax);
  Status (*dequantize_nibbles)(const Tensor& packed, const Tensor& absmax, const Table& table,
                               int64_t blocksize, Tensor& out);
  Status (*dequantize_awq)(const Tensor& words, const Tensor& scales, const Tensor& zeros,
                           Tensor& out);
  /// Codes of e2m1 with scales in the layout of `blocks`, to floats.
  Status (*dequantize_fp4)(const BlockQuantization& blocks, const Tensor& codes,
                           const Tensor& scales, double factor, Tensor& out);
  /// Scales [.., M, C] of `experts` to atoms of 128 x 4.
  Status (*interleave_scales)(const Tensor& in, int64_t experts, Tensor& out);
  /// Rows of tokens that chose an expert which there is not become NaN.
  Status (*experts)(const MixtureTensors& mixture, Tensor& out);
};

/// Tells which functions a GPU has; before register_operators().
void set_cuda_functions(const DeviceFunctions& functions);

/// nullptr where there are none.
const DeviceFunctions* cuda_functions();

}  // namespace subbyte::torch_operators
