#pragma once
// Mixtures of experts in programs of the kernel of a step: which ones have a form there.

#include <optional>

#include "cuda_backend/lowering.h"

namespace subbyte {

/// A router, and the experts that it chooses, the operation after it.
struct ProgramMixture {
  const CudaMatrix* router = nullptr;
  ProgramExperts gate_up, down;
  ProgramSharedExpert shared;
  ValueId y = kNoValue;  // the sum
  cuda::Activation activation = cuda::Activation::kNone;
  SwiGLU swiglu;
};

/// The mixture whose router operation `op` is, if it has a form in programs on GPUs with so many
/// multiprocessors: a dense router that reads what the experts read, experts of one packed format a
/// matrix and no codebook, without biases, whose rows are whole units of the kernel, of which every
/// multiprocessor has a part, beside them at most one that every token goes to, which joins them
/// (lowering.h), and whose sum, or its sum over ranks, goes to a norm alone.
std::optional<ProgramMixture> program_mixture(const Lowering& lowering, int64_t op,
                                              int multiprocessors);

}  // namespace subbyte
