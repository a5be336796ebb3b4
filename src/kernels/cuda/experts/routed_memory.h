#pragma once
// Memory of one call of a mixture of experts: the routes, and the rows of both products.

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/experts/route.h"

namespace subbyte::cuda {

/// Bytes from the begin of the memory, each place at a multiple of 256.
struct RoutedMemory {
  int64_t bytes = 0;  // of all
  int64_t expert_of, weights, order, token_of, tiles;
  int64_t activated;  // 16 bits [routes][inner]
  int64_t outputs;    // 16 bits [routes][hidden]; before them there, rows of x by expert
  int64_t codes;      // 8 bits [routes][the longer of both], of rows that are rounded, or nothing
  int64_t scales;     // float [routes] of these
  int64_t of_inputs;  // float [routes]
  int64_t gate_up;    // 16 bits [routes][2 inner], where gate and up are two products

  RoutedMemory(int64_t routes, int64_t num_tiles, int64_t inner, int64_t hidden,
               bool rounds_rows = false, bool has_two_products = false)
      : expert_of(take(routes * int64_t{sizeof(int32_t)})),
        weights(take(routes * int64_t{sizeof(float)})),
        order(take(routes * int64_t{sizeof(int32_t)})),
        token_of(take(routes * int64_t{sizeof(int32_t)})),
        tiles(take(num_tiles * int64_t{sizeof(ExpertTile)})),
        activated(take(routes * inner * 2)),
        outputs(take(routes * hidden * 2)),
        codes(take(rounds_rows ? routes * std::max(inner, hidden) : 0)),
        scales(take(rounds_rows ? routes * int64_t{sizeof(float)} : 0)),
        of_inputs(take(routes * int64_t{sizeof(float)})),
        gate_up(take(has_two_products ? routes * inner * 4 : 0)) {}

  /// Points the results of a call into that memory.
  void place(RouteCall& call, std::byte* memory) const {
    call.expert_of = reinterpret_cast<int32_t*>(memory + expert_of);
    call.weights = reinterpret_cast<float*>(memory + weights);
    call.order = reinterpret_cast<int32_t*>(memory + order);
    call.token_of = reinterpret_cast<int32_t*>(memory + token_of);
    call.tiles = reinterpret_cast<ExpertTile*>(memory + tiles);
  }

 private:
  int64_t take(int64_t size) {
    constexpr int64_t kAligned = 256;
    const int64_t begin = bytes;
    bytes += (size + kAligned - 1) / kAligned * kAligned;
    return begin;
  }
};

}  // namespace subbyte::cuda
