#pragma once
// Orders of inputs, as callers and files bring them.

#include <cstdint>
#include <span>
#include <string>

namespace subbyte {

/// Says what was expected and found of an order that has not every input once, as words that follow
/// "expected": "every input once, found 7 at column 3". Empty for a permutation. Where it is none,
/// there are inputs whose weights nothing says.
std::string input_order_fault(std::span<const uint32_t> order);

}  // namespace subbyte
