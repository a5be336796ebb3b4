#include "parallel/micro_batch.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace subbyte {
namespace {

/// "0:0+3 1:0+1 | 1:1+4", pieces of parts with so many tokens.
std::string pieces_of(const std::vector<std::size_t>& sizes, std::size_t tokens, bool cuts_parts) {
  std::vector<std::vector<int32_t>> texts;
  for (const std::size_t size : sizes) texts.emplace_back(size);
  std::vector<Part> parts;
  for (const auto& text : texts) parts.push_back({.sequence = nullptr, .tokens = text});
  std::string all;
  for (const MicroBatch& piece : micro_batches({parts}, tokens, cuts_parts)) {
    if (!all.empty()) all += "| ";
    for (const PieceOfPart& one : piece) {
      all += std::to_string(one.part) + ":" + std::to_string(one.first) + "+" +
             std::to_string(one.count) + " ";
    }
  }
  return all;
}

TEST(MicroBatches, cut_parts_where_a_piece_is_full) {
  EXPECT_EQ(pieces_of({3, 5}, 4, true), "0:0+3 1:0+1 | 1:1+4 ");
  EXPECT_EQ(pieces_of({9}, 4, true), "0:0+4 | 0:4+4 | 0:8+1 ");
  EXPECT_EQ(pieces_of({2, 2, 1}, 4, true), "0:0+2 1:0+2 | 2:0+1 ");
  EXPECT_EQ(pieces_of({1, 1}, 4, true), "0:0+1 1:0+1 ");
}

TEST(MicroBatches, leave_parts_whole) {
  EXPECT_EQ(pieces_of({3, 5, 1}, 4, false), "0:0+3 | 1:0+5 | 2:0+1 ");
  EXPECT_EQ(pieces_of({9}, 4, false), "0:0+9 ");
}

}  // namespace
}  // namespace subbyte
