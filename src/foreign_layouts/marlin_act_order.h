#pragma once
// Marlin with act-order: the inputs in the order of their groups, as the canonical matrix has them,
// so the words are those of marlin.h and marlin_int8.h. Beside them go two tensors:
//
//   perm   I32 [K]   stored row k of the weights is input perm[k] of the layer; the kernel gathers
//                    the activations by it
//   g_idx  I32 [K]   the group of stored row k: 0 0 ... 0 1 1 ... 1 2 ..., ascending
//
// Scales are ordered as grouped ones.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "matrix/matrix.h"

namespace subbyte {

struct MarlinActOrder {
  std::vector<int32_t> perm;
  std::vector<int32_t> g_idx;
};

/// Makes both tensors of a canonical matrix; without an order of inputs they are empty, as the
/// kernel takes them then.
MarlinActOrder marlin_act_order(const MatrixView& matrix);

/// The input_order of the canonical matrix with groups of that size. Code layout.input_order when
/// perm does not name every input once, or g_idx is not ascending in groups of `group_size`.
Result<std::vector<uint32_t>> input_order_of(const MarlinActOrder& order, int64_t group_size);

}  // namespace subbyte
