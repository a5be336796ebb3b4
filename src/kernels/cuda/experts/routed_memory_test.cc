#include "kernels/cuda/experts/routed_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace subbyte::cuda {
namespace {

struct Place {
  int64_t begin;
  int64_t bytes;
};

void expect_apart(const std::vector<Place>& places, int64_t bytes) {
  int64_t end = 0;
  for (const Place& place : places) {
    EXPECT_EQ(place.begin % 256, 0);
    EXPECT_GE(place.begin, end);
    end = place.begin + place.bytes;
  }
  EXPECT_LE(end, bytes);
}

TEST(RoutedMemory, places_do_not_overlap_and_hold_what_the_kernels_write) {
  for (const int64_t routes : {1, 7, 64, 1000}) {
    for (const auto& [inner, hidden] : {std::pair<int64_t, int64_t>{8, 24}, {2880, 2048}}) {
      const RoutedMemory m(routes, 5, inner, hidden, true, true);
      const int64_t tile_bytes = 5 * int64_t{sizeof(ExpertTile)};
      expect_apart({{m.expert_of, 4 * routes},
                    {m.weights, 4 * routes},
                    {m.order, 4 * routes},
                    {m.token_of, 4 * routes},
                    {m.tiles, tile_bytes},
                    {m.activated, 2 * routes * inner},
                    {m.outputs, 2 * routes * hidden},
                    {m.codes, routes * std::max(inner, hidden)},
                    {m.scales, 4 * routes},
                    {m.of_inputs, 4 * routes},
                    {m.gate_up, 4 * routes * inner}},
                   m.bytes);
      const RoutedMemory exact(routes, 5, inner, hidden);
      EXPECT_EQ(exact.outputs, m.outputs);
      EXPECT_EQ(exact.of_inputs, m.codes);
      EXPECT_EQ(exact.gate_up, exact.bytes);
    }
  }
}

TEST(RoutedMemory, a_call_finds_its_results_there) {
  const RoutedMemory m(9, 3, 16, 16);
  std::vector<std::byte> bytes(static_cast<std::size_t>(m.bytes));
  RouteCall call;
  m.place(call, bytes.data());
  const auto at = [&](const void* place) {
    return static_cast<const std::byte*>(place) - bytes.data();
  };
  EXPECT_EQ(at(call.expert_of), m.expert_of);
  EXPECT_EQ(at(call.weights), m.weights);
  EXPECT_EQ(at(call.order), m.order);
  EXPECT_EQ(at(call.token_of), m.token_of);
  EXPECT_EQ(at(call.tiles), m.tiles);
}

}  // namespace
}  // namespace subbyte::cuda
