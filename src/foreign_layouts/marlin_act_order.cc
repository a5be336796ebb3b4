#include "foreign_layouts/marlin_act_order.h"

#include <string>

namespace subbyte {
namespace {

Error refuse(const std::string& problem) {
  return {"layout.input_order", "Marlin's act-order: " + problem};
}

}  // namespace

MarlinActOrder marlin_act_order(const MatrixView& matrix) {
  MarlinActOrder order;
  order.perm.assign(matrix.input_order.begin(), matrix.input_order.end());
  for (std::size_t k = 0; k < order.perm.size(); ++k) {
    order.g_idx.push_back(static_cast<int32_t>(static_cast<int64_t>(k) / matrix.group_size()));
  }
  return order;
}

Result<std::vector<uint32_t>> input_order_of(const MarlinActOrder& order, int64_t group_size) {
  const std::size_t cols = order.perm.size();
  if (order.g_idx.size() != cols || group_size < 1) {
    return refuse("expected groups of at least 1 for " + std::to_string(cols) +
                  " inputs, found groups of " + std::to_string(group_size) + " for " +
                  std::to_string(order.g_idx.size()));
  }
  std::vector<uint32_t> inputs;
  std::vector<bool> seen(cols);
  for (std::size_t k = 0; k < cols; ++k) {
    const int32_t input = order.perm[k];
    if (input < 0 || static_cast<std::size_t>(input) >= cols || seen[input]) {
      return refuse("expected every input once, found " + std::to_string(input) + " at index " +
                    std::to_string(k));
    }
    seen[input] = true;
    const int64_t group = static_cast<int64_t>(k) / group_size;
    if (order.g_idx[k] != group) {
      return refuse("expected group " + std::to_string(group) + " at index " + std::to_string(k) +
                    ", found " + std::to_string(order.g_idx[k]));
    }
    inputs.push_back(static_cast<uint32_t>(input));
  }
  return inputs;
}

}  // namespace subbyte
