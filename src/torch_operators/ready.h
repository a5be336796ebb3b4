#pragma once
// Weights as products read them.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "torch_operators/kept.h"
#include "torch_operators/machine.h"

namespace subbyte::torch_operators {

/// y = main x + offsets (sums of the inputs of each group). Floats that are added to each weight of
/// a group are no zero points for kernels: they are a dense matrix of their own, [N][groups].
struct ReadyWeights {
  MatrixView main;
  MatrixView offsets;  // of no rows where there are none
  /// The order of inputs in which groups of offsets follow each other, also where `main` is a copy
  /// in the order of x; empty: that of x.
  std::span<const uint32_t> order;
  /// The same numbers as f32 [groups][N], for few rows of activations.
  std::span<const float> offsets_by_group;
  int64_t group_size = 0;
  double factor = 1;  // of the offsets
  std::vector<std::shared_ptr<const void>> owners;

  bool has_offsets() const { return offsets.rows > 0; }
};

/// Sets the offsets to those of `matrix`, numbers of f32, f16 or bf16 that are made of `sources` by
/// `of`.
Status set_offsets(ReadyWeights& ready, const MatrixView& matrix, int64_t group_size,
                   std::span<const Tensor* const> sources, const Recipe& of);

/// Makes `view` ready: integers get the zero points that kernels want. What no kernel reads (5 to 7
/// bits, other scales, inputs or groups that are not in 8s) is copied once to bytes or to f32 and
/// kept. `of` is how the bytes and the format of the view are made of `sources`: nothing where they
/// are theirs. Its tensor_scale may be another one in each call.
Result<ReadyWeights> make_ready(Machine& machine, const MatrixView& view,
                                std::span<const Tensor* const> sources, const Recipe& of = {});

/// Keeps weights and what `make` makes of them for products in one place, so that a call looks it
/// up once: `matrix` with its `offsets`, if any, which belong to groups of `group_size`.
struct WithOffsets {
  Matrix matrix;
  Matrix offsets;
  int64_t group_size = 0;
};
Result<std::shared_ptr<const ReadyWeights>> keep_ready(Machine& machine, const Recipe& recipe,
                                                       std::span<const Tensor* const> sources,
                                                       FunctionRef<Result<WithOffsets>()> make);

}  // namespace subbyte::torch_operators
