#pragma once
// Dense products of several tokens whose weights and inputs have 16 bits each, by mma.

#include "kernels/cuda/dense/dense.h"

namespace subbyte::cuda {

/// Rows of weights and inputs begin at multiples of 16 bytes and are a multiple of 8 elements.
bool serves_16bit_dense(const DenseCall& call);

/// For any number of tokens. In batch-invariant mode the order of additions for an output is the
/// same for all of them.
void run_dense_16bit(const DenseCall& call, Stream stream);

/// Products of heads: the weights of each follow those of the one before, and its inputs and
/// outputs lie so many numbers after those of the one before.
struct DenseHeads {
  int32_t count = 1;
  int64_t x_step = 0;
  int64_t y_step = 0;
};
void run_dense_16bit_of_heads(const DenseCall& call, const DenseHeads& heads, Stream stream);

}  // namespace subbyte::cuda
