#include "matrix/input_order.h"

#include <vector>

namespace subbyte {

std::string input_order_fault(std::span<const uint32_t> order) {
  std::vector<bool> seen(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (order[k] >= order.size() || seen[order[k]]) {
      return "every input once, found " + std::to_string(static_cast<int32_t>(order[k])) +
             " at column " + std::to_string(k);
    }
    seen[order[k]] = true;
  }
  return "";
}

}  // namespace subbyte
