#pragma once
// Gated delta nets of prompts in chunks of 64 tokens on tensor cores: of a chunk everything is a
// product of matrices but one triangular inverse, and only the state goes from chunk to chunk.
//
// With G[t] the sum of the logarithms of decays of a chunk up to token t, S the state before it,
// and u[t] = beta[t] (v[t] - decay[t] S[t - 1]^T k[t]) what a token adds along its key:
//
//   A[t][s] = beta[t] e^(G[t] - G[s]) k[t] k[s], s < t     T = (1 + A)^-1
//   P[t][s] = e^(G[t] - G[s]) q[t] k[s], s <= t
//   W = T diag(beta e^G) K     U = T diag(beta) V - W S
//   y = diag(e^G) Q S + P U    S' = e^G[63] S + (diag(e^(G[63] - G)) K)^T U

#include "kernels/cuda/delta_net/delta_net.h"

namespace subbyte::cuda {

/// Says whether a step is worth chunks, and its sizes have them.
bool has_chunks(const DeltaNetSizes& sizes, int64_t num_rows, int64_t num_parts);

/// Bytes of DeltaNetCall::scratch.
int64_t delta_net_chunk_scratch(const DeltaNetSizes& sizes, int64_t num_rows, int64_t num_parts);

/// Operands of products are numbers of the activations' type, sums and states float32. Errors are
/// left to cudaGetLastError().
void run_delta_net_chunks(const DeltaNetCall& call, Stream stream);

}  // namespace subbyte::cuda
