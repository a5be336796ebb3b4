// Random blocks of each type, and the floats that gguf-py makes of them: tests/data/ggml, which
// tools/interop/ggml_blocks.py writes.

#include "foreign_layouts/ggml_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/float16.h"
#include "support/paths.h"

namespace subbyte {
namespace {

constexpr int64_t kRows = 2;
constexpr int64_t kCols = 512;

using Bytes = std::vector<std::byte>;

struct Golden {
  Bytes blocks;
  std::vector<float> weights;  // [kRows][kCols]
};

Golden golden_of(const GgmlType& type) {
  const std::string path = std::string(kTestData) + "/ggml/" + std::string(type.name) + ".bin";
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  const std::vector<char> all((std::istreambuf_iterator<char>(file)), {});
  Golden golden;
  const std::size_t size = kRows * kCols / type.block * type.bytes;
  golden.weights.resize(kRows * kCols);
  EXPECT_EQ(all.size(), size + golden.weights.size() * sizeof(float)) << path;
  const auto* bytes = reinterpret_cast<const std::byte*>(all.data());
  golden.blocks.assign(bytes, bytes + size);
  std::memcpy(golden.weights.data(), bytes + size, golden.weights.size() * sizeof(float));
  return golden;
}

bool is_quantized(const GgmlType& type) {
  return type.format && !is_dense(*type.format);
}

Result<Matrix> read(const GgmlType& type, const Bytes& blocks, int64_t rows = kRows,
                    int64_t cols = kCols) {
  return ggml_matrix(type, rows, cols, blocks, *make_threads(2));
}

TEST(GgmlBlocks, have_the_floats_of_gguf_py_to_the_bit) {
  int types = 0;
  for (const GgmlType& type : ggml_types()) {
    if (!is_quantized(type)) continue;
    ++types;
    const Golden golden = golden_of(type);
    const auto matrix = read(type, golden.blocks);
    ASSERT_TRUE(matrix.ok()) << type.name << matrix.error().message;
    ASSERT_TRUE(Matrix::of(matrix->view).ok()) << type.name;
    std::vector<float> weights(golden.weights.size());
    ASSERT_TRUE(matrix->dequantize(0, weights).ok());
    std::vector<double> exact(weights.size());
    ASSERT_TRUE(matrix->dequantize(0, exact).ok());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (type.format->element == Format::kE2M1) weights[i] += 0.0F;  // no -0
      ASSERT_EQ(std::bit_cast<uint32_t>(weights[i]), std::bit_cast<uint32_t>(golden.weights[i]))
          << type.name << " " << i << ": " << weights[i] << " and " << golden.weights[i];
      ASSERT_EQ(static_cast<float>(exact[i]), golden.weights[i]) << type.name << " " << i;
    }
  }
  EXPECT_EQ(types, 25);
}

TEST(GgmlBlocks, take_what_their_format_says) {
  const std::pair<const char*, double> bits[] = {{"Q4_K", 4.625},    {"Q5_K", 5.625},
                                                 {"Q6_K", 6.5625},   {"Q3_K", 3.5625},
                                                 {"IQ4_XS", 4.3125}, {"Q8_0", 8.5}};
  for (const auto& [name, expected] : bits) {
    const GgmlType& type = *find_ggml_type(name);
    const auto matrix = read(type, golden_of(type).blocks);
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    EXPECT_EQ(8.0 * static_cast<double>(matrix->view.bytes()) / (kRows * kCols), expected) << name;
    EXPECT_EQ(bits_per_weight(matrix->view.format, kCols), expected) << name;
  }
}

TEST(GgmlBlocks, of_one_level_come_back) {
  int types = 0;
  for (const GgmlType& type : ggml_types()) {
    if (!is_quantized(type) || ggml_type_of(*type.format) != &type) continue;
    ++types;
    const Golden golden = golden_of(type);
    const auto matrix = read(type, golden.blocks);
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    Bytes blocks(golden.blocks.size(), std::byte{0xEE});
    const std::size_t row_bytes = blocks.size() / kRows;
    pack_ggml_rows(type, matrix->view, 1, 2, blocks.data() + row_bytes);
    pack_ggml_rows(type, matrix->view, 0, 1, blocks.data());
    EXPECT_EQ(blocks, golden.blocks) << type.name;
  }
  EXPECT_EQ(types, 8);
  EXPECT_EQ(ggml_type_of({.element = Format::kBF16})->name, "BF16");
  EXPECT_EQ(ggml_type_of(*find_ggml_type("Q4_K")->format), nullptr);
  EXPECT_EQ(ggml_type_of(*find_ggml_type("Q2_0")->format), nullptr);
  EXPECT_EQ(ggml_type_of({Format::kI4, Format::kBF16, Zero::kNone, 32}), nullptr);
}

TEST(GgmlBlocks, of_floats_stay_where_they_are) {
  const Bytes numbers(3 * 5 * 2, std::byte{0x3C});
  const auto owner = std::make_shared<int>(1);
  {
    const auto matrix =
        ggml_matrix(*find_ggml_type("BF16"), 3, 5, numbers, *make_threads(1), owner);
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    EXPECT_EQ(matrix->view.codes.data(), numbers.data());
    EXPECT_EQ(matrix->view.format, WeightFormat{.element = Format::kBF16});
    EXPECT_EQ(owner.use_count(), 2);
  }
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(GgmlBlocks, refuse_other_shapes) {
  const GgmlType& type = *find_ggml_type("Q4_K");
  const Bytes blocks = golden_of(type).blocks;
  const auto refused = [&](int64_t rows, int64_t cols) {
    const auto matrix = read(type, blocks, rows, cols);
    EXPECT_FALSE(matrix.ok());
    EXPECT_EQ(matrix.error().code, "layout.shape");
    return matrix.error().message;
  };
  EXPECT_EQ(refused(1, 512), "Q4_K of 1 x 512: expected 288 bytes, found 576");
  EXPECT_EQ(refused(4, 128), "Q4_K of 4 x 128: expected columns in blocks of 256");
  EXPECT_EQ(refused(2, 0), "Q4_K of 2 x 0: expected up to 2^24 rows and columns, and a column");
  EXPECT_EQ(refused(int64_t{1} << 40, 256),
            "Q4_K of 1099511627776 x 256: expected up to 2^24 rows and columns, and a column");
  const auto integers = read(*find_ggml_type("I32"), blocks);
  EXPECT_EQ(integers.error().code, "layout.format");
}

TEST(GgmlBlocks, refuse_scales_that_are_not_finite) {
  // Where a scale or an offset lies in the block of a type, and what is none.
  struct Bad {
    const char* type;
    std::size_t at;
    uint32_t value;
    std::size_t bytes;
  };
  for (const Bad& bad :
       {Bad{"Q4_K", 0, 0x7C00, 2}, Bad{"Q4_K", 2, 0xFE01, 2}, Bad{"Q6_K", 208, 0xFC00, 2},
        Bad{"Q2_K", 82, 0x7C00, 2}, Bad{"Q4_1", 2, 0x7C00, 2}, Bad{"Q8_0", 0, 0x7E00, 2},
        Bad{"IQ3_S", 0, 0x7C00, 2}, Bad{"MXFP4", 0, 255, 1}, Bad{"NVFP4", 3, 127, 1},
        Bad{"NVFP4", 0, 0x80, 1}}) {
    const GgmlType& type = *find_ggml_type(bad.type);
    Golden golden = golden_of(type);
    EXPECT_EQ(bad_ggml_block(type, golden.blocks), -1);
    const int64_t blocks = kCols / type.block;
    const int64_t block = blocks + 1;  // of the second output
    std::memcpy(golden.blocks.data() + block * type.bytes + bad.at, &bad.value, bad.bytes);
    EXPECT_EQ(bad_ggml_block(type, golden.blocks), block) << bad.type;
    const auto matrix = read(type, golden.blocks);
    ASSERT_FALSE(matrix.ok()) << bad.type;
    EXPECT_EQ(matrix.error().code, "layout.scale");
    EXPECT_EQ(matrix.error().message,
              std::string(bad.type) +
                  ": block 1 of output 1: expected scales and offsets that are finite (of NVFP4 "
                  "without a sign), found one that is not");
  }
}

TEST(GgmlTypes, are_in_the_table_of_the_docs) {
  std::ifstream file(std::string(kTestData) + "/../../docs/foreign_layouts.md");
  std::stringstream text;
  text << file.rdbuf();
  std::string table;
  for (const GgmlType& type : ggml_types()) {
    if (!is_quantized(type)) continue;
    char bits[64];
    std::snprintf(bits, sizeof bits, "|%.4g|%.4g|\n", 8.0 * type.bytes / type.block,
                  bits_per_weight(*type.format, 4096));
    table += "|" + std::string(type.name) + "|" + std::to_string(type.block) + "|`" +
             to_string(*type.format) + "`" + bits;
  }
  EXPECT_NE(text.str().find("\n" + table), std::string::npos) << table;
}

TEST(GgmlTypes, are_found_by_number_and_name) {
  uint32_t last = 0;
  for (const GgmlType& type : ggml_types()) {
    EXPECT_EQ(find_ggml_type(type.number), &type);
    EXPECT_EQ(find_ggml_type(type.name), &type);
    EXPECT_FALSE(is_removed_ggml_type(type.number));
    EXPECT_TRUE(type.number == 0 || type.number > last);
    last = type.number;
  }
  EXPECT_EQ(find_ggml_type(12)->name, "Q4_K");
  EXPECT_EQ(find_ggml_type(43), nullptr);
  EXPECT_EQ(find_ggml_type("Q4_k"), nullptr);
  EXPECT_TRUE(is_removed_ggml_type(31));
}

}  // namespace
}  // namespace subbyte
