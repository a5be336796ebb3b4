// Packed vectors: what each register of each lane decodes to, against the matrix.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/gpu/decoders.h"
#include "kernels/gpu/packed_weights.h"
#include "support/random_matrix.h"

namespace subbyte::gpu {
namespace {

using testing::Contents;
using testing::random_matrix;
using testing::RandomMatrix;

WeightFormat format_of(Format element, int64_t rotation = 0) {
  return {element, Format::kE4M4, Zero::kNone, 32, rotation};
}

/// The 256 entries of a table, a pair or two each.
template <class Number>
std::vector<uint32_t> table_of(const RandomMatrix& matrix) {
  std::vector<uint32_t> pairs;
  for (std::size_t i = 0; i < matrix.codebook.size(); i += 2) {
    pairs.push_back(Number::join(matrix.codebook[i], matrix.codebook[i + 1]));
  }
  return pairs;
}

template <class Number, int kBits>
void expect_matrix(Format element, RowOrder order) {
  const int64_t rows = 44, cols = 160;
  const RandomMatrix matrix = random_matrix(format_of(element), rows, cols, Contents::kReal, 9);
  const PackedFormat format = *packed_format(matrix.view, order);
  std::vector<std::byte> packed(static_cast<std::size_t>(format.bytes));
  pack_on_host(packed.data(), matrix.view, format);
  const std::vector<uint32_t> pairs = table_of<Number>(matrix);
  int64_t compared = 0;
  for (int64_t tile = 0; tile < format.strips * format.tiles; ++tile) {
    for (int lane = 0; lane < kLanes; ++lane) {
      uint32_t words[kBits];
      for (int i = 0; i < kBits; ++i) {
        std::memcpy(&words[i],
                    packed.data() + tile * tile_bytes(kBits) + 4 * word_in_tile(lane, i, kBits), 4);
      }
      for (int step = 0; step < kSteps; ++step) {
        uint32_t registers[4] = {};
        Vectors<Number, kBits>::decode(words, step, {pairs.data(), nullptr}, registers);
        for (int i = 0; i < 8; ++i) {
          const Slot slot = {lane, step, i / 2, i % 2};
          const int64_t row = source_row(order, tile / format.tiles, row_of(slot), format.rows);
          const int64_t col = tile % format.tiles * kTileCols + col_of(slot, code_order(format));
          if (row >= rows || col >= cols) continue;
          const double expected = matrix.codebook[code_at(matrix.view, row, col)];
          const uint32_t found = registers[i / 2] >> 16 * (i % 2) & 0xFFFF;
          ASSERT_EQ(found, Number::join(expected, 0) & 0xFFFF) << row << ' ' << col;
          ++compared;
        }
      }
    }
  }
  EXPECT_EQ(compared, rows * cols);
}

TEST(PackedVectors, decode_to_the_vectors_of_the_matrix) {
  for (const RowOrder order :
       {RowOrder::kNatural, RowOrder::kGateAboveUp, RowOrder::kGateUpPairs}) {
    expect_matrix<F16, 2>(Format::kVQ2, order);
    expect_matrix<F16, 4>(Format::kVQ4, order);
    expect_matrix<BF16, 2>(Format::kVQ2, order);
    expect_matrix<BF16, 4>(Format::kVQ4, order);
  }
}

TEST(PackedVectors, have_every_bit_of_the_canonical_codes_and_the_codebook) {
  for (const Format element : {Format::kVQ2, Format::kVQ4}) {
    const RandomMatrix matrix = random_matrix(format_of(element, 16), 21, 96, Contents::kReal, 2);
    const PackedFormat format = *packed_format(matrix.view);
    std::vector<std::byte> packed(static_cast<std::size_t>(format.bytes));
    pack_on_host(packed.data(), matrix.view, format);
    for (int64_t row = 0; row < 21; ++row) {
      for (int64_t col = 0; col < 96; ++col) {
        const int64_t bit = col * format.bits;
        const auto byte =
            std::to_integer<uint32_t>(matrix.view.codes[row * matrix.view.row_bytes() + bit / 8]);
        ASSERT_EQ(packed_code_at(packed.data(), format, row, col),
                  byte >> bit % 8 & ((1u << format.bits) - 1));
      }
    }
    EXPECT_EQ(std::memcmp(packed.data() + format.vectors_begin, matrix.codebook.data(),
                          matrix.codebook.size() * 4),
              0);
  }
}

TEST(PackedVectors, that_no_kernel_reads_are_refused) {
  const RandomMatrix matrix = random_matrix(format_of(Format::kVQ2), 16, 64, Contents::kReal, 1);
  MatrixView view = matrix.view;
  view.codebook = {};
  EXPECT_EQ(packed_format(view).error().code, "cuda.format");
  view = matrix.view;
  const std::vector<uint32_t> order(64, 0);
  view.input_order = order;
  EXPECT_EQ(packed_format(view).error().code, "cuda.format");
  view = random_matrix({Format::kNFL4, Format::kE4M4, Zero::kNone, 32}, 16, 64, Contents::kReal, 1)
             .view;
  view.format.rotation = 16;
  EXPECT_EQ(packed_format(view).error().code, "cuda.format");
}

TEST(PackedVectors, have_their_inputs_prepared_where_they_are_rotated_or_in_fours) {
  const auto prepares = [](const WeightFormat& format) {
    const RandomMatrix matrix = random_matrix(format, 16, 256, Contents::kReal, 1);
    return prepares_inputs(*packed_format(matrix.view));
  };
  EXPECT_TRUE(prepares(format_of(Format::kVQ2)));
  EXPECT_TRUE(prepares(format_of(Format::kVQ2, 256)));
  EXPECT_TRUE(prepares(format_of(Format::kVQ4, 64)));
  EXPECT_FALSE(prepares(format_of(Format::kVQ4)));
  EXPECT_FALSE(prepares({Format::kNFL2, Format::kE4M4, Zero::kNone, 32}));
}

}  // namespace
}  // namespace subbyte::gpu
