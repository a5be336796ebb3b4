#pragma once
// FP8: E4M3 codes, and factors that several outputs and inputs share.
//
//   X.weight            F8_E4M3 [N, K]
//   X.weight_scale_inv  the factors of transformers, Qwen and DeepSeek, which multiply, whatever
//                       their name says; X.weight_scale those of vLLM, compressed-tensors and
//                       ModelOpt. F32, BF16 or F16, or powers of two as F8_E8M0 or its bytes as U8
//   P.experts.gate_up_proj_scale_inv, P.experts.down_proj_scale_inv
//                       [E, .., ..], the factors of modules P.experts.E.gate_proj, up_proj and
//                       down_proj, where transformers 5 has saved what it quantized
//   X.input_scale       of activations, which stay floats here: left aside
//
//   factors of            shape
//   blocks of bn x bk     [ceil(N / bn), ceil(K / bk)]    the last ones may be short; ModelOpt has
//                                                         [.., 1, .., 1]
//   rows                  [N, 1] or [N]
//   groups of bk inputs   [N, K / bk]
//   the tensor            [], [1] or [1, 1]
//
//   w(n, k) = e4m3(code) * factor(n / bn, k / bk)
//
// Codes are canonical already and used where they lie. The canonical matrix has a scale for each
// row and group of inputs, so factors of blocks and of the tensor are repeated: 1.6 % (BF16) to
// 3 % (F32) more memory than 8 bits a weight.

#include <string_view>
#include <vector>

#include "checkpoints/importer.h"

namespace subbyte::fp8 {

/// Outputs and inputs that share a factor. `rows` -1: all; `cols` 0: the whole row.
struct Block {
  int64_t rows = 1;
  int64_t cols = 0;

  bool operator==(const Block&) const = default;
};

/// Is said by the state of a config that may have modules in FP8.
class SaysBlocks {
 public:
  /// Lists what factors of `module`, which has tensors of FP8, may be of. Code import.config where
  /// none are said to be.
  virtual Result<std::vector<Block>> blocks(const ImportContext& context,
                                            std::string_view module) const = 0;

 protected:
  ~SaysBlocks() = default;
};

inline constexpr Block kTensor = {-1, 0};
inline constexpr Block kRows = {1, 0};

/// Outputs of a block, of a matrix with so many.
inline int64_t rows_of(const Block& block, int64_t rows) {
  return block.rows < 0 ? rows : block.rows;
}

}  // namespace subbyte::fp8
