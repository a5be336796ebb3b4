#pragma once
// Dense products of many tokens in 16 bits, by wgmma.
//
// A CTA has 128 outputs of 128 or 256 tokens: two warpgroups of 64 outputs multiply, and one thread
// of a third copies by TMA, in boxes of 64 inputs. The order of additions is that of dense_16bit
// where that does not split the inputs.
//
//   stages   weights [128][64], inputs [tokens / 128][128][64]

#include "kernels/cuda/dense/dense.h"

namespace subbyte::cuda {

/// Says whether it is for a call, on a GPU with wgmma: more than 64 tokens, weights and inputs of
/// one type, tiles for a quarter of the multiprocessors, not in batch-invariant mode.
bool serves_dense_hopper(const DenseCall& call, int multiprocessors);

/// Takes rows as serves_16bit_dense() wants them. Errors are left to cudaGetLastError(). False: the
/// driver cannot describe the matrices to TMA, or gives a CTA too little memory, and nothing runs.
bool run_dense_hopper(const DenseCall& call, int multiprocessors, Stream stream);

}  // namespace subbyte::cuda
