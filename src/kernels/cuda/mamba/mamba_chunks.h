#pragma once
// Prompts of Mamba 2 in chunks of 64 tokens, which are products of matrices of 16 bits. With c_t =
// the sum of the logarithms of the decays of a chunk up to token t, and P_tj = exp(c_t - c_j) dt_j
// (C_t B_j) for j <= t:
//
//   y_t = exp(c_t) S^T C_t + sum over j <= t of P_tj x_j
//   S   = exp(c_end) S + sum over j of B_j (exp(c_end - c_j) dt_j x_j)^T

#include "kernels/cuda/mamba/mamba.h"

namespace subbyte::cuda {

/// Says whether there are chunks for a call, which is not recurrent.
bool has_mamba_chunks(const MambaCall& call);

/// Leaves S^T C in y, and x, B and C as the convolution has them in 16 bits at the begin of the
/// scratch, [rows][channels].
void run_mamba_chunks(const MambaCall& call, Stream stream);

}  // namespace subbyte::cuda
