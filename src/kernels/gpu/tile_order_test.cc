#include "kernels/gpu/tile_order.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace subbyte::gpu {
namespace {

constexpr int kAllBits[] = {2, 3, 4, 5, 8, 16};
constexpr CodeOrder kOrders[] = {CodeOrder::kHalves, CodeOrder::kPairs};

/// The picture of the tensor core's registers: row and column of a lane's weight in a step.
TEST(TileOrder, is_that_of_the_tensor_core) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4;
    const int t = lane % 4;
    const int rows[] = {g, g + 8, g, g + 8};
    const int cols[] = {2 * t, 2 * t, 2 * t + 8, 2 * t + 8};
    for (int step = 0; step < kSteps; ++step) {
      for (int reg = 0; reg < 4; ++reg) {
        for (int half = 0; half < 2; ++half) {
          const Slot slot = {lane, step, reg, half};
          EXPECT_EQ(row_of(slot), rows[reg]);
          EXPECT_EQ(col_of(slot), 16 * step + cols[reg] + half);
        }
      }
    }
  }
}

TEST(TileOrder, a_slot_and_its_place_are_each_others_inverse) {
  for (int row = 0; row < kStripRows; ++row) {
    for (int col = 0; col < kTileCols; ++col) {
      const Slot slot = slot_of(row, col);
      EXPECT_EQ(row_of(slot), row);
      EXPECT_EQ(col_of(slot), col);
      EXPECT_TRUE(slot.lane >= 0 && slot.lane < kLanes && slot.step >= 0 && slot.step < kSteps);
      EXPECT_TRUE(slot.reg >= 0 && slot.reg < 4 && slot.high >= 0 && slot.high < 2);
    }
  }
}

TEST(TileOrder, of_fours_gives_a_lane_four_neighbours_of_each_row) {
  for (int row = 0; row < kStripRows; ++row) {
    for (int col = 0; col < kTileCols; ++col) {
      const Slot slot = slot_of(row, col, CodeOrder::kFours);
      EXPECT_EQ(row_of(slot), row);
      EXPECT_EQ(col_of(slot, CodeOrder::kFours), col);
      EXPECT_EQ(slot.lane, row % 8 * 4 + col % 16 / 4);
      const BitPlace first = bit_place(slot, 0, 2, CodeOrder::kFours);
      EXPECT_EQ(first.bit % 8, col % 4 * 2);
    }
  }
}

TEST(TileOrder, every_bit_of_a_tile_belongs_to_one_bit_of_one_code) {
  for (const CodeOrder order : kOrders) {
    for (const int bits : kAllBits) {
      std::set<int> taken;
      for (int row = 0; row < kStripRows; ++row) {
        for (int col = 0; col < kTileCols; ++col) {
          const Slot slot = slot_of(row, col);
          for (int bit = 0; bit < bits; ++bit) {
            const BitPlace place = bit_place(slot, bit, bits, order);
            ASSERT_TRUE(place.word >= 0 && place.word < bits) << bits << " bits";
            ASSERT_TRUE(place.bit >= 0 && place.bit < 32) << bits << " bits";
            taken.insert(word_in_tile(slot.lane, place.word, bits) * 32 + place.bit);
          }
        }
      }
      // As many different bits as there are, the first and the last among them.
      EXPECT_EQ(static_cast<int>(taken.size()), 8 * tile_bytes(bits)) << bits << " bits";
      EXPECT_EQ(*taken.begin(), 0);
      EXPECT_EQ(*taken.rbegin(), 8 * tile_bytes(bits) - 1);
    }
  }
}

/// A load of 16, 8 or 4 bytes of all lanes is one run of memory.
TEST(TileOrder, a_piece_is_one_load_of_the_warp) {
  const std::pair<int, int> pieces[] = {{2, 0}, {2, 1}, {4, 0}, {4, 1}, {4, 4}, {4, 4}};
  for (std::size_t i = 0; i < std::size(kAllBits); ++i) {
    const int bits = kAllBits[i];
    const auto [first, second] = pieces[i];
    EXPECT_EQ(first_piece(bits), first);
    EXPECT_EQ(second_piece(bits), second);
    EXPECT_EQ(first + pieces_after_first(bits) * second, bits);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int word = 0; word < bits; ++word) {
        EXPECT_EQ(word_in_tile(lane, word, bits), bits == 16 ? word / 4 * 128 + lane * 4 + word % 4
                                                  : word < first
                                                      ? lane * first + word
                                                      : 32 * first + lane * second + word - first);
      }
    }
  }
}

/// Lines of the picture in tile_order.h, read by a person.
TEST(TileOrder, holds_the_codes_where_the_picture_has_them) {
  const auto at = [](Slot slot, int bit, int bits, CodeOrder order) {
    const BitPlace place = bit_place(slot, bit, bits, order);
    return std::pair(place.word, place.bit);
  };
  const Slot slot = {.lane = 7, .step = 3, .reg = 2, .high = 1};
  EXPECT_EQ(at(slot, 0, 4, CodeOrder::kHalves), std::pair(3, 24));
  EXPECT_EQ(at(slot, 3, 4, CodeOrder::kPairs), std::pair(3, 23));
  EXPECT_EQ(at(slot, 1, 2, CodeOrder::kHalves), std::pair(1, 16 + 8 + 4 + 1));
  EXPECT_EQ(at(slot, 1, 2, CodeOrder::kPairs), std::pair(1, 16 + 8 + 2 + 1));
  EXPECT_EQ(at(slot, 5, 8, CodeOrder::kHalves), std::pair(7, 8 + 5));
  EXPECT_EQ(at(slot, 1, 3, CodeOrder::kHalves), std::pair(1, 16 + 8 + 4 + 1));
  EXPECT_EQ(at(slot, 2, 3, CodeOrder::kHalves), std::pair(2, 16 + 12 + 2));
  EXPECT_EQ(at(slot, 2, 3, CodeOrder::kPairs), std::pair(2, 6 * 4 + 3 + 2));
  EXPECT_EQ(at(slot, 0, 5, CodeOrder::kPairs), std::pair(4, 10 * 2 + 5));
  const Slot last = {.lane = 7, .step = 3, .reg = 3, .high = 1};
  EXPECT_EQ(at(last, 1, 3, CodeOrder::kPairs), std::pair(2, 30));
  EXPECT_EQ(at(last, 4, 5, CodeOrder::kPairs), std::pair(4, 31));
  EXPECT_EQ(at(slot, 1, 2, CodeOrder::kFours), std::pair(1, 16 + 4 + 2 + 1));
  EXPECT_EQ(at(slot, 3, 5, CodeOrder::kHalves), std::pair(3, 24 + 3));
  EXPECT_EQ(at(slot, 4, 5, CodeOrder::kHalves), std::pair(4, 16 + 12 + 2));
  EXPECT_EQ(at(slot, 9, 16, CodeOrder::kHalves), std::pair(14, 16 + 9));
}

}  // namespace
}  // namespace subbyte::gpu
