// Random words of Marlin, and w = (q - 8) * s read from them by the table of the layout's picture:
// nibbles of a word from the low one up are (k0, n0), (k0+8, n0), (k0, n0+8), (k0+8, n0+8) and the
// same for k0+1; bytes of 8 bits are k0, k0+8, k0+1, k0+9 of one output.

#include <gtest/gtest.h>

#include "checkpoints/flavours/integer_config.h"
#include "support/import_fixture.h"

namespace subbyte {
namespace {

constexpr int64_t kRows = 128;
constexpr int64_t kCols = 64;
constexpr int kPlaces[8][2] = {{0, 0}, {8, 0}, {0, 8}, {8, 8}, {1, 0}, {9, 0}, {1, 8}, {9, 8}};

/// Codes [kRows][kCols], walking over the words as lanes of a warp do.
std::vector<int> codes_of(const TestTensor& words, int bits) {
  std::vector<int> codes(kRows * kCols, -1);
  const int per_lane = bits;  // words of a lane in a tile: 4 or 8
  for (int64_t i = 0; i < static_cast<int64_t>(words.bytes.size() / 4); ++i) {
    const int64_t lane = i / per_lane % 32;
    const int64_t tile = i / per_lane / 32;
    const int64_t w = i % per_lane;
    const int64_t n0 = tile % (kRows / 64) * 64 + lane / 4 + (bits == 4 ? 16 * w : 8 * w);
    const int64_t k0 = tile / (kRows / 64) * 16 + lane % 4 * 2;
    const auto word = words.at<uint32_t>(i);
    for (int j = 0; j < 32 / bits; ++j) {
      const int64_t k = bits == 4 ? kPlaces[j][0] : j % 2 * 8 + j / 2;
      const int64_t n = bits == 4 ? kPlaces[j][1] : 0;
      codes[(n0 + n) * kCols + k0 + k] = static_cast<int>(word >> (j * bits) & ((1u << bits) - 1));
    }
  }
  return codes;
}

/// The column of a row of scales that has output n: the inverse of what marlin.h says.
int64_t column_of(int64_t n, bool grouped) {
  if (grouped) return n / 64 * 64 + n % 8 * 8 + n % 64 / 8;
  constexpr int kOutputs[8] = {0, 1, 8, 9, 16, 17, 24, 25};
  for (int64_t c = 0; c < 32; ++c) {
    if (c / 8 * 2 + kOutputs[c % 8] == n % 32) return n / 32 * 32 + c;
  }
  return -1;
}

class MarlinCheckpoint : public ImportFixture {
 protected:
  GptqState& gptq() { return said_by<GptqState>(gptq_flavour); }

  void SetUp() override {
    gptq().marlin = true;
    gptq().sizes.bits = {4};
    gptq().sizes.group_sizes = {32};
  }

  std::vector<TestTensor> layer(int bits, uint64_t groups, const std::string& words,
                                const std::string& scales) {
    Random random(bits + groups);
    return {random_bits("m" + words, DType::kI32,
                        {kCols / 16, static_cast<uint64_t>(kRows * bits / 2)}, random),
            random_floats("m" + scales, DType::kF16, {groups, kRows}, random)};
  }

  void expect(const std::vector<TestTensor>& tensors, int bits) {
    open(tensors);
    const std::vector<int> codes = codes_of(tensors[0], bits);
    const auto groups = static_cast<int64_t>(tensors[1].shape[0]);
    expect_weights(kRows, kCols, [&](int64_t n, int64_t k) {
      const int64_t column = column_of(n, groups > 1);
      const double scale = float_at(tensors[1], k / (kCols / groups) * kRows + column);
      return (codes[n * kCols + k] - (1 << (bits - 1))) * scale;
    });
  }
};

TEST_F(MarlinCheckpoint, of_auto_gptq_has_words_and_scales_and_a_workspace) {
  std::vector<TestTensor> tensors = layer(4, 2, ".B", ".s");
  tensors.push_back(filled<int32_t>("m.workspace", DType::kI32, {16}, 0));
  expect(tensors, 4);
  EXPECT_EQ(matrix_.view.format, (WeightFormat{Format::kI4, Format::kF16, Zero::kNone, 32}));
}

TEST_F(MarlinCheckpoint, of_one_group_has_its_own_order_of_scales) {
  gptq().sizes.group_sizes = {-1};
  expect(layer(4, 1, ".B", ".s"), 4);
  EXPECT_EQ(matrix_.view.format.group_size, 0);
}

TEST_F(MarlinCheckpoint, with_the_names_of_gptq_is_known_by_its_shape) {
  expect(layer(4, 2, ".qweight", ".scales"), 4);
}

TEST_F(MarlinCheckpoint, of_8_bits) {
  gptq().sizes.bits = {8};
  expect(layer(8, 2, ".B", ".s"), 8);
  expect(layer(8, 2, ".qweight", ".scales"), 8);
}

TEST_F(MarlinCheckpoint, refuses_what_contradicts_it) {
  std::vector<TestTensor> tensors = layer(4, 2, ".B", ".s");
  EXPECT_EQ(code_of(tensors), "");
  gptq().marlin = false;
  EXPECT_EQ(code_of(tensors), "import.config");
  gptq().marlin = true;
  gptq().sizes.bits = {8};
  EXPECT_EQ(code_of(tensors), "import.config");
  gptq().sizes.bits = {4};
  gptq().sizes.group_sizes = {64};
  EXPECT_EQ(code_of(tensors), "import.config");
  gptq().sizes.group_sizes = {32};
  tensors.push_back(filled<int32_t>("m.g_idx", DType::kI32, {kCols}, 0));
  EXPECT_EQ(code_of(tensors), "import.shape");
  tensors.pop_back();
  tensors[0].dtype = DType::kU32;
  EXPECT_EQ(code_of(tensors), "import.dtype");
  Random random(1);
  // 96 outputs are no whole tiles.
  EXPECT_EQ(code_of({random_bits("m.B", DType::kI32, {4, 192}, random),
                     random_floats("m.s", DType::kF16, {2, 96}, random)}),
            "import.shape");
  tensors = layer(4, 2, ".B", ".s");
  tensors[1].set<uint16_t>(5, 0x7E00);
  EXPECT_EQ(code_of(tensors), "import.scale_not_finite");
}

TEST_F(MarlinCheckpoint, tensors_of_gptq_are_refused_where_the_config_says_marlin) {
  Random random(1);
  EXPECT_EQ(code_of({random_bits("m.qweight", DType::kI32, {8, 64}, random),
                     random_bits("m.qzeros", DType::kI32, {2, 8}, random),
                     random_floats("m.scales", DType::kF16, {2, 64}, random)}),
            "import.config");
}

}  // namespace
}  // namespace subbyte
