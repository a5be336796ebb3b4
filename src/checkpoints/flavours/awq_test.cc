// Random words, and w = (q - z) * s read from them by the order of nibbles that the reference
// writes down: nibble i (from the low end) of a word holds output 8c + {0,2,4,6,1,3,5,7}[i].

#include <gtest/gtest.h>

#include "checkpoints/flavours/integer_config.h"
#include "support/import_fixture.h"

#include "base/thread_pool.h"

namespace subbyte {
namespace {

constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

uint32_t nibble_of_output(uint32_t word, int64_t output) {
  for (int i = 0; i < 8; ++i) {
    if (kOrder[i] == output % 8) return (word >> (4 * i)) & 0xFu;
  }
  return ~0u;
}

struct Layer {
  TestTensor qweight, qzeros, scales;
  int64_t rows, cols, group_size;  // group_size -1: the whole row

  std::vector<TestTensor> tensors() const { return {qweight, qzeros, scales}; }

  double weight(int64_t n, int64_t k) const {
    const int64_t group = group_size == -1 ? 0 : k / group_size;
    const int64_t words = rows / 8;
    const double q = nibble_of_output(qweight.at<uint32_t>(k * words + n / 8), n);
    const double z = nibble_of_output(qzeros.at<uint32_t>(group * words + n / 8), n);
    return (q - z) * float_at(scales, group * rows + n);
  }
};

Layer random_layer(int64_t rows, int64_t cols, int64_t group_size, DType scale = DType::kF16) {
  Random random(rows * 1000 + cols + group_size);
  const auto groups = static_cast<uint64_t>(group_size == -1 ? 1 : cols / group_size);
  const auto n = static_cast<uint64_t>(rows);
  const auto k = static_cast<uint64_t>(cols);
  return {random_bits("m.qweight", DType::kI32, {k, n / 8}, random),
          random_bits("m.qzeros", DType::kI32, {groups, n / 8}, random),
          random_floats("m.scales", scale, {groups, n}, random),
          rows,
          cols,
          group_size};
}

class Awq : public ImportFixture {
 protected:
  AwqState& awq() { return said_by<AwqState>(awq_flavour); }

  Awq() {
    awq().sizes.bits = {4};
    awq().sizes.group_sizes = {128};
  }

  void expect_layer(const Layer& layer) {
    awq().sizes.group_sizes = {layer.group_size};
    open(layer.tensors());
    ASSERT_TRUE(source_);
    expect_weights(layer.rows, layer.cols,
                   [&](int64_t n, int64_t k) { return layer.weight(n, k); });
  }
};

TEST_F(Awq, decodes_every_group_size_and_width) {
  for (const int64_t group_size : {8, 32, 64, 128, -1}) {
    // 8, 24 and 136 outputs: numbers of words that no vector or cache line divides.
    for (const int64_t rows : {8, 24, 128, 136}) {
      SCOPED_TRACE(testing::Message() << rows << " outputs, group " << group_size);
      expect_layer(random_layer(rows, 256, group_size));
      EXPECT_EQ(matrix_.view.format.group_size, group_size == -1 ? 0 : group_size);
      EXPECT_EQ(matrix_.view.format.element, Format::kU4);
      EXPECT_EQ(matrix_.view.format.zero, Zero::kU8);
      EXPECT_TRUE(matrix_.view.input_order.empty());
    }
  }
}

TEST_F(Awq, decodes_odd_numbers_of_inputs) {
  for (const int64_t cols : {8, 24, 40, 1000}) expect_layer(random_layer(40, cols, -1));
  expect_layer(random_layer(16, 96, 32));
}

TEST_F(Awq, keeps_the_type_of_the_scales) {
  for (const auto& [dtype, format] : {std::pair(DType::kF16, Format::kF16),
                                      {DType::kBF16, Format::kBF16},
                                      {DType::kF32, Format::kF32}}) {
    expect_layer(random_layer(32, 128, 32, dtype));
    EXPECT_EQ(matrix_.view.format.scale, format);
  }
}

TEST_F(Awq, one_nibble_lands_on_one_weight) {
  // Output 3 of input 5 is nibble 5 (bits 20 to 23) of its word.
  Layer layer = random_layer(8, 8, -1);
  layer.qweight = filled<uint32_t>("m.qweight", DType::kI32, {8, 1}, 0);
  layer.qzeros = filled<uint32_t>("m.qzeros", DType::kI32, {1, 1}, 0);
  layer.scales = filled<uint16_t>("m.scales", DType::kF16, {1, 8}, 0x3C00);
  layer.qweight.set(5, uint32_t{0xB} << 20);
  awq().sizes.group_sizes = {-1};
  open(layer.tensors());
  expect_weights(8, 8, [](int64_t n, int64_t k) { return n == 3 && k == 5 ? 11.0 : 0.0; });
}

TEST_F(Awq, does_not_depend_on_the_alignment_of_the_file) {
  const Layer layer = random_layer(24, 64, 32);
  awq().sizes.group_sizes = {32};
  for (const std::size_t remainder : {1, 2, 3, 5}) {
    open_misaligned(layer.tensors(), remainder);
    expect_weights(24, 64, [&](int64_t n, int64_t k) { return layer.weight(n, k); });
  }
}

TEST_F(Awq, does_not_depend_on_the_number_of_threads) {
  const Layer layer = random_layer(1032, 64, 32);
  awq().sizes.group_sizes = {32};
  open(layer.tensors());
  const auto two = import_matrix(context(), "m");
  ThreadPool one(1);
  const auto alone = import_matrix({*source_, config_, one}, "m");
  ASSERT_TRUE(two.ok() && alone.ok());
  EXPECT_TRUE(std::ranges::equal(two->view.codes, alone->view.codes));
}

TEST_F(Awq, describes_without_reading_weights) {
  awq().sizes.group_sizes = {32};
  open(random_layer(24, 64, 32).tensors());
  const auto info = describe_module(context(), "m");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->importer, "awq");
  EXPECT_EQ(info->rows, 24);
  EXPECT_EQ(info->cols, 64);
  EXPECT_EQ(info->experts, 1);
  EXPECT_FALSE(info->act_order);
  EXPECT_EQ(to_string(info->format), "u4 g32 scale f16 zero u8");
  EXPECT_EQ(info->bytes(), 64u * 3 * 4 + 2 * 3 * 4 + 2 * 24 * 2);
}

TEST_F(Awq, refuses_wrong_shapes_and_types) {
  const Layer good = random_layer(32, 128, 32);
  awq().sizes.group_sizes = {32};
  ASSERT_EQ(code_of(good.tensors()), "");
  Random random(1);
  const auto with = [&](const TestTensor& tensor) { return code_of(good.tensors(), tensor); };
  const auto ints = [&](std::string name, DType dtype, Shape shape) {
    return random_bits(std::move(name), dtype, std::move(shape), random);
  };
  EXPECT_EQ(with(ints("m.qweight", DType::kI64, {128, 4})), "import.dtype");
  EXPECT_EQ(with(ints("m.qweight", DType::kU8, {128, 4})), "import.dtype");
  EXPECT_EQ(with(ints("m.qweight", DType::kI32, {128, 4, 1})), "import.shape");
  EXPECT_EQ(with(ints("m.qweight", DType::kI32, {512})), "import.shape");
  EXPECT_EQ(with(ints("m.qweight", DType::kI32, {128, 0})), "import.shape");
  EXPECT_EQ(with(ints("m.qweight", DType::kI32, {128, 5})), "import.shape");
  EXPECT_EQ(with(ints("m.qzeros", DType::kI32, {4, 5})), "import.shape");
  EXPECT_EQ(with(ints("m.qzeros", DType::kI32, {3, 4})), "import.shape");
  EXPECT_EQ(with(ints("m.qzeros", DType::kI32, {16})), "import.shape");
  EXPECT_EQ(with(ints("m.qzeros", DType::kF32, {4, 4})), "import.dtype");
  EXPECT_EQ(with(random_floats("m.scales", DType::kF16, {3, 32}, random)), "import.config");
  EXPECT_EQ(with(random_floats("m.scales", DType::kF16, {4, 31}, random)), "import.shape");
  EXPECT_EQ(with(random_floats("m.scales", DType::kF16, {4, 0}, random)), "import.shape");
  EXPECT_EQ(with(random_floats("m.scales", DType::kF16, {128}, random)), "import.shape");
  EXPECT_EQ(with(ints("m.scales", DType::kI16, {4, 32})), "import.dtype");
  EXPECT_EQ(code_of({good.qweight, good.scales}), "import.missing");
  EXPECT_EQ(code_of({good.qweight, good.qzeros}), "import.missing");
}

TEST_F(Awq, refuses_inputs_that_are_no_multiple_of_8) {
  Random random(2);
  awq().sizes.group_sizes = {-1};
  EXPECT_EQ(code_of({random_bits("m.qweight", DType::kI32, {12, 1}, random),
                     random_bits("m.qzeros", DType::kI32, {1, 1}, random),
                     random_floats("m.scales", DType::kF16, {1, 8}, random)}),
            "import.shape");
}

TEST_F(Awq, a_wrong_type_of_scales_is_refused_by_describe_too) {
  Layer layer = random_layer(32, 128, 32);
  awq().sizes.group_sizes = {32};
  Random random(3);
  layer.scales = random_bits("m.scales", DType::kI16, {4, 32}, random);
  open(layer.tensors());
  const auto info = describe_module(context(), "m");
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.error().code, "import.dtype");
}

TEST_F(Awq, counts_scales_that_are_not_finite) {
  Layer layer = random_layer(32, 128, 32);
  awq().sizes.group_sizes = {32};
  layer.scales.set<uint16_t>(2 * 32 + 7, 0x7E00);  // NaN
  layer.scales.set<uint16_t>(3 * 32 + 1, 0xFC00);  // -infinity
  EXPECT_EQ(code_of(layer.tensors()), "import.scale_not_finite");
  EXPECT_NE(message().find("2 of 128 scales are NaN or infinite, the first at [2, 7]"),
            std::string::npos)
      << message();
}

TEST_F(Awq, zero_points_of_8_are_none) {
  Layer layer = random_layer(32, 128, 32);
  layer.qzeros = filled<uint32_t>("m.qzeros", DType::kI32, layer.qzeros.shape, 0x88888888u);
  awq().zero_point = false;
  expect_layer(layer);
  layer.qzeros.set<uint32_t>(5, 0x88878888u);
  EXPECT_EQ(code_of(layer.tensors()), "import.config");
  EXPECT_NE(message().find("byte 22 holds 0x87"), std::string::npos) << message();
}

TEST_F(Awq, refuses_qzeros_beside_zero_point_false) {
  awq().zero_point = false;
  awq().sizes.group_sizes = {32};
  EXPECT_EQ(code_of(random_layer(32, 128, 32).tensors()), "import.config");
}

}  // namespace
}  // namespace subbyte
