// Random words, and w = (q - z) * s read from them as streams of b-bit codes: bit b*k of column n
// of qweight, bit b*n of row g of qzeros.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "checkpoints/flavours/integer_config.h"
#include "support/import_fixture.h"

namespace subbyte {
namespace {

/// Code `index` of the stream whose word i is words(i), one bit at a time.
template <typename Words>
uint32_t code_of_stream(const Words& words, int64_t index, int bits) {
  uint32_t code = 0;
  for (int i = 0; i < bits; ++i) {
    const int64_t bit = index * bits + i;
    code |= ((words(bit / 32) >> (bit % 32)) & 1u) << i;
  }
  return code;
}

struct Layer {
  int bits;
  int64_t rows, cols, group_size;  // group_size -1: the whole row
  bool v1;
  TestTensor qweight, qzeros, scales;
  std::vector<int32_t> g_idx;  // empty: no tensor of that name

  std::vector<TestTensor> tensors() const {
    std::vector<TestTensor> all = {qweight, qzeros, scales};
    if (!g_idx.empty()) all.push_back(int32_tensor("m.g_idx", {g_idx.size()}, g_idx));
    return all;
  }

  int64_t group_of(int64_t k) const {
    if (!g_idx.empty()) return g_idx[k];
    return group_size == -1 ? 0 : k / group_size;
  }

  double weight(int64_t n, int64_t k) const {
    const int64_t group = group_of(k);
    const double q = code_of_stream(
        [&](int64_t word) { return qweight.at<uint32_t>(word * rows + n); }, k, bits);
    const double stored = code_of_stream(
        [&](int64_t word) { return qzeros.at<uint32_t>(group * ((rows * bits + 31) / 32) + word); },
        n, bits);
    return (q - (v1 ? stored + 1 : stored)) * float_at(scales, group * rows + n);
  }
};

Layer random_layer(int bits, int64_t rows, int64_t cols, int64_t group_size, bool v1) {
  Random random(bits * 10'000 + rows * 100 + cols + group_size + (v1 ? 7 : 0));
  const auto groups =
      static_cast<uint64_t>(group_size == -1 ? 1 : (cols + group_size - 1) / group_size);
  const auto n = static_cast<uint64_t>(rows);
  const auto k = static_cast<uint64_t>(cols);
  const auto b = static_cast<uint64_t>(bits);
  return {bits,
          rows,
          cols,
          group_size,
          v1,
          random_bits("m.qweight", DType::kI32, {k * b / 32, n}, random),
          random_bits("m.qzeros", DType::kI32, {groups, (n * b + 31) / 32}, random),
          random_floats("m.scales", DType::kF16, {groups, n}, random),
          {}};
}

/// Groups in the order of the inputs, or shuffled as act-order leaves them.
std::vector<int32_t> group_index(const Layer& layer, bool shuffled) {
  std::vector<int32_t> index(layer.cols);
  for (int64_t k = 0; k < layer.cols; ++k) index[k] = static_cast<int32_t>(layer.group_of(k));
  Random random(99);
  for (int64_t k = layer.cols - 1; shuffled && k > 0; --k) {
    std::swap(index[k], index[random.below(k + 1)]);
  }
  return index;
}

class Gptq : public ImportFixture {
 protected:
  GptqState& gptq() { return said_by<GptqState>(gptq_flavour); }

  void use(const Layer& layer, bool sym = false) {
    config_ = {};
    gptq().sizes = {{layer.bits}, {layer.group_size}};
    gptq().sym = sym;
    gptq().desc_act = !layer.g_idx.empty() && !std::ranges::is_sorted(layer.g_idx);
    gptq().stores_zero_minus_one = layer.v1;
  }

  std::string code_with(const Layer& layer, bool sym = false) {
    use(layer, sym);
    return code_of(layer.tensors());
  }

  void expect_layer(const Layer& layer, bool sym = false) {
    use(layer, sym);
    open(layer.tensors());
    ASSERT_TRUE(source_);
    expect_weights(layer.rows, layer.cols,
                   [&](int64_t n, int64_t k) { return layer.weight(n, k); });
  }
};

using Case = std::tuple<int, bool, int64_t>;  // bits, version 1, group size

class GptqLayouts : public Gptq, public testing::WithParamInterface<Case> {
 protected:
  Layer layer() const {
    const auto [bits, v1, group_size] = GetParam();
    return random_layer(bits, 64, 256, group_size, v1);
  }
};

TEST_P(GptqLayouts, without_g_idx) {
  expect_layer(layer());
  EXPECT_TRUE(matrix_.view.input_order.empty());
  const auto [bits, v1, group_size] = GetParam();
  EXPECT_EQ(info(matrix_.view.format.element).bits, bits);
  EXPECT_EQ(matrix_.view.format.zero, bits == 8 ? Zero::kU16 : Zero::kU8);
  EXPECT_EQ(matrix_.view.format.group_size, group_size == -1 ? 0 : group_size);
}

TEST_P(GptqLayouts, with_g_idx_in_order) {
  Layer with = layer();
  with.g_idx = group_index(with, false);
  expect_layer(with);
  EXPECT_TRUE(matrix_.view.input_order.empty());
}

TEST_P(GptqLayouts, with_act_order) {
  Layer shuffled = layer();
  shuffled.g_idx = group_index(shuffled, true);
  expect_layer(shuffled);
  if (shuffled.group_size == -1) return;  // one group has no order
  const std::span<const uint32_t> order = matrix_.view.input_order;
  ASSERT_EQ(order.size(), 256u);
  // Sorted by group, and by input inside a group.
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto before = std::pair(shuffled.g_idx[order[i - 1]], order[i - 1]);
    EXPECT_LT(before, std::pair(shuffled.g_idx[order[i]], order[i]));
  }
}

TEST_P(GptqLayouts, symmetric_zero_points) {
  Layer sym = layer();
  const auto middle = uint32_t{1} << (sym.bits - 1);
  const uint32_t stored = sym.v1 ? middle - 1 : middle;
  for (std::size_t word = 0; word < sym.qzeros.bytes.size() / 4; ++word) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; ++i) {
      const int64_t bit = static_cast<int64_t>(word) % (64 * sym.bits / 32) * 32 + i;
      bits |= ((stored >> (bit % sym.bits)) & 1u) << i;
    }
    sym.qzeros.set(word, bits);
  }
  expect_layer(sym, true);
  EXPECT_EQ(weight_at(matrix_.view, 5, 9),
            (code_at(matrix_.view, 5, 9) - double(middle)) * float_at(sym.scales, 5));
  // The same words under the other label are a contradiction, which only "sym" lets one see.
  sym.v1 = !sym.v1;
  EXPECT_EQ(code_with(sym, true), "gptq.version");
  expect_layer(sym, false);
}

std::string name_of(const testing::TestParamInfo<Case>& param) {
  const auto& [bits, v1, group_size] = param.param;
  return std::to_string(bits) + (v1 ? "_bits_v1_" : "_bits_v2_") +
         (group_size == -1 ? "row" : std::to_string(group_size));
}

INSTANTIATE_TEST_SUITE_P(All, GptqLayouts,
                         testing::Combine(testing::Values(2, 3, 4, 8), testing::Bool(),
                                          testing::Values<int64_t>(32, 64, 128, -1)),
                         name_of);

TEST_F(Gptq, the_largest_stored_zero_point_does_not_wrap) {
  for (const int bits : {2, 3, 4, 8}) {
    Layer layer = random_layer(bits, 32, 64, 32, true);
    layer.qzeros = filled<uint32_t>("m.qzeros", DType::kI32, layer.qzeros.shape, 0xFFFFFFFFu);
    layer.qweight = filled<uint32_t>("m.qweight", DType::kI32, layer.qweight.shape, 0);
    use(layer);
    open(layer.tensors());
    // Stored 15 means 16, stored 255 means 256.
    expect_weights(32, 64, [&](int64_t n, int64_t k) {
      return -std::ldexp(1.0, bits) * float_at(layer.scales, k / 32 * 32 + n);
    });
  }
}

/// Zero points stored as GPTQModel stores them in version 1.
TestTensor gptqmodel_zeros(const std::vector<uint32_t>& zeros, int bits, uint64_t groups) {
  std::vector<uint32_t> words(zeros.size() * bits / 32);
  for (std::size_t i = 0; i < zeros.size(); ++i) {
    const uint32_t code = bits == 3 ? (zeros[i] + 7) % 8 : zeros[i];
    for (int b = 0; b < bits; ++b)
      words[(i * bits + b) / 32] |= (code >> b & 1u) << (i * bits + b) % 32;
  }
  const uint32_t ones = bits == 2 ? 0x55555555u : bits == 4 ? 0x11111111u : 0x01010101u;
  TestTensor tensor = filled<uint32_t>("m.qzeros", DType::kI32, {groups, words.size() / groups}, 0);
  for (std::size_t w = 0; w < words.size(); ++w)
    tensor.set(w, bits == 3 ? words[w] : words[w] - ones);
  return tensor;
}

TEST_F(Gptq, borrows_of_gptqmodel_are_given_back) {
  for (const int bits : {2, 3, 4, 8}) {
    Layer layer = random_layer(bits, 64, 64, 32, true);
    Random random(bits);
    std::vector<uint32_t> zeros(2 * 64);
    // Every third is 0, whose borrow reaches the next, and all of the last words are.
    for (std::size_t i = 0; i < zeros.size(); ++i) {
      zeros[i] = i % 3 == 0 || i >= 96 ? 0 : static_cast<uint32_t>(random.below(1u << bits));
    }
    layer.qzeros = gptqmodel_zeros(zeros, bits, 2);
    use(layer);
    gptq().zeros_borrow = true;
    open(layer.tensors());
    expect_weights(64, 64, [&](int64_t n, int64_t k) {
      const double q = code_of_stream(
          [&](int64_t word) { return layer.qweight.at<uint32_t>(word * 64 + n); }, k, bits);
      return (q - zeros[k / 32 * 64 + n]) * float_at(layer.scales, k / 32 * 64 + n);
    });
  }
}

TEST_F(Gptq, three_bit_codes_cross_words_where_the_format_says) {
  // 32 codes in 3 words: code 10 has its low two bits at the top of word 0, code 21 its low bit at
  // the top of word 1.
  Layer layer = random_layer(3, 32, 32, -1, false);
  layer.qweight = filled<uint32_t>("m.qweight", DType::kI32, {3, 32}, 0);
  layer.qzeros = filled<uint32_t>("m.qzeros", DType::kI32, {1, 3}, 0);
  layer.scales = filled<uint16_t>("m.scales", DType::kF16, {1, 32}, 0x3C00);
  layer.qweight.set(0 * 32 + 4, 3u << 30);  // output 4: code 10 = 0b011
  layer.qweight.set(1 * 32 + 6, 1u);        // output 6: code 10 = 0b100
  layer.qweight.set(1 * 32 + 7, 1u << 31);  // output 7: code 21 = 0b001
  layer.qweight.set(2 * 32 + 8, 3u);        // output 8: code 21 = 0b110
  layer.qzeros.set(0, 1u << 31);            // zero point of output 10: 2
  use(layer);
  open(layer.tensors());
  expect_weights(32, 32, [](int64_t n, int64_t k) {
    if (n == 10) return -2.0;
    if (k == 10) return n == 4 ? 3.0 : n == 6 ? 4.0 : 0.0;
    if (k == 21) return n == 7 ? 1.0 : n == 8 ? 6.0 : 0.0;
    return 0.0;
  });
}

TEST_F(Gptq, takes_widths_that_no_vector_divides) {
  for (const auto& [bits, rows] : {std::pair(4, 8), {4, 136}, {2, 48}, {3, 96}, {8, 12}}) {
    SCOPED_TRACE(testing::Message() << bits << " bits, " << rows << " outputs");
    expect_layer(random_layer(bits, rows, 96, 32, true));
  }
  expect_layer(random_layer(4, 8, 8, -1, false));
}

TEST_F(Gptq, does_not_depend_on_the_alignment_of_the_file) {
  Layer layer = random_layer(3, 32, 96, 32, true);
  layer.g_idx = group_index(layer, true);
  use(layer);
  for (const std::size_t remainder : {1, 2, 3}) {
    open_misaligned(layer.tensors(), remainder);
    expect_weights(32, 96, [&](int64_t n, int64_t k) { return layer.weight(n, k); });
  }
}

/// The head of a vocabulary that is no multiple of 32, as GPTQModel writes it.
TEST_F(Gptq, zero_points_may_fill_no_word) {
  for (const int bits : {2, 3, 4, 8}) {
    for (const int64_t rows : {37, 5, 1}) {
      expect_layer(random_layer(bits, rows, 64, 32, bits != 4));
      EXPECT_EQ(info(matrix_.view.format.element).bits, bits) << rows;
    }
  }
  Layer layer = random_layer(4, 37, 64, 32, true);
  layer.qzeros.shape = {2, 4};  // instead of 5
  layer.qzeros.bytes.resize(32);
  EXPECT_EQ(code_with(layer), "import.shape");
}

TEST_F(Gptq, describes_act_order) {
  Layer layer = random_layer(4, 64, 128, 32, true);
  layer.g_idx = group_index(layer, true);
  use(layer);
  open(layer.tensors());
  const auto info = describe_module(context(), "m");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->importer, "gptq");
  EXPECT_TRUE(info->act_order);
  EXPECT_EQ(info->bytes(), 64u * 128 / 2 + 4 * 64 / 2 + 4 * 64 * 2 + 128 * 4);
}

TEST_F(Gptq, refuses_every_bad_g_idx) {
  Layer layer = random_layer(4, 64, 128, 32, true);
  const std::vector<int32_t> good = group_index(layer, true);
  const auto with = [&](std::size_t index, int32_t value) {
    layer.g_idx = good;
    layer.g_idx[index] = value;
    return code_with(layer);
  };
  layer.g_idx = good;
  EXPECT_EQ(code_with(layer), "");
  EXPECT_EQ(with(0, -1), "gptq.g_idx_range");
  EXPECT_EQ(with(127, 4), "gptq.g_idx_range");
  EXPECT_EQ(with(64, INT32_MAX), "gptq.g_idx_range");
  EXPECT_EQ(with(64, INT32_MIN), "gptq.g_idx_range");
  EXPECT_EQ(with(3, (good[3] + 1) % 4), "gptq.g_idx_counts");
  layer.g_idx = std::vector<int32_t>(128, 0);
  EXPECT_EQ(code_with(layer), "gptq.g_idx_counts");
  layer.g_idx = std::vector<int32_t>(127, 0);
  EXPECT_EQ(code_with(layer), "import.shape");
  layer.g_idx = std::vector<int32_t>(129, 0);
  EXPECT_EQ(code_with(layer), "import.shape");
  layer.g_idx.clear();
  std::vector<TestTensor> tensors = layer.tensors();
  tensors.push_back(filled<int64_t>("m.g_idx", DType::kI64, {128}, 0));
  EXPECT_EQ(code_of(tensors), "import.dtype");
}

TEST_F(Gptq, act_order_without_g_idx_is_refused) {
  const Layer layer = random_layer(4, 64, 128, 32, true);
  use(layer);
  gptq().desc_act = true;
  EXPECT_EQ(code_of(layer.tensors()), "import.missing");
  // One group for all inputs has no order to lose.
  const Layer row = random_layer(4, 64, 128, -1, true);
  use(row);
  gptq().desc_act = true;
  EXPECT_EQ(code_of(row.tensors()), "");
}

TEST_F(Gptq, refuses_wrong_shapes_and_types) {
  const Layer good = random_layer(4, 64, 128, 32, true);
  Random random(5);
  const auto with = [&](TestTensor tensor) {
    std::vector<TestTensor> tensors = good.tensors();
    tensors.push_back(int32_tensor("m.g_idx", {128}, group_index(good, false)));
    use(good);
    return code_of(tensors, tensor);
  };
  const auto ints = [&](std::string name, DType dtype, Shape shape) {
    return random_bits(std::move(name), dtype, std::move(shape), random);
  };
  EXPECT_EQ(with(good.qweight), "");
  EXPECT_EQ(with(ints("m.qweight", DType::kI16, {16, 64})), "import.dtype");
  EXPECT_EQ(with(ints("m.qweight", DType::kI32, {16, 63})), "import.shape");
  EXPECT_EQ(with(ints("m.qweight", DType::kI32, {1024})), "import.shape");
  EXPECT_EQ(with(ints("m.qweight", DType::kI32, {0, 64})), "import.shape");
  EXPECT_EQ(with(ints("m.qweight", DType::kI32, {20, 64})), "import.config");
  EXPECT_EQ(with(ints("m.qzeros", DType::kI32, {4, 7})), "import.shape");
  EXPECT_EQ(with(ints("m.qzeros", DType::kI32, {3, 8})), "import.shape");
  EXPECT_EQ(with(ints("m.qzeros", DType::kI32, {32})), "import.shape");
  EXPECT_EQ(with(ints("m.qzeros", DType::kF16, {4, 8})), "import.dtype");
  EXPECT_EQ(with(ints("m.scales", DType::kI16, {4, 64})), "import.dtype");
  EXPECT_EQ(with(random_floats("m.scales", DType::kF16, {4, 0}, random)), "import.shape");
  EXPECT_EQ(with(random_floats("m.scales", DType::kF16, {256}, random)), "import.shape");
}

TEST_F(Gptq, refuses_bits_and_groups_that_contradict_the_config) {
  const Layer layer = random_layer(4, 64, 128, 32, true);
  use(layer);
  gptq().sizes.bits = {8};
  EXPECT_EQ(code_of(layer.tensors()), "import.config");
  EXPECT_NE(message().find("bits is 8"), std::string::npos) << message();
  use(layer);
  gptq().sizes.group_sizes = {128};
  EXPECT_EQ(code(), "import.config");
  use(layer);
  gptq().sizes.group_sizes = {128, 32};  // an override says 32
  EXPECT_EQ(code(), "");
}

TEST_F(Gptq, an_override_that_divides_is_preferred_to_one_that_does_not) {
  // 96 inputs in 2 groups: of 48, as an override says, not of 64 and 32.
  const Layer layer = random_layer(4, 64, 96, 48, true);
  use(layer);
  gptq().sizes.group_sizes = {64, 48};
  open(layer.tensors());
  expect_weights(64, 96, [&](int64_t n, int64_t k) { return layer.weight(n, k); });
}

/// GPTQModel writes what is left of the inputs as a group of their own.
TEST_F(Gptq, the_last_group_may_be_short) {
  for (const bool act_order : {false, true}) {
    Layer layer = random_layer(4, 64, 192, 128, true);
    layer.g_idx = group_index(layer, act_order);
    expect_layer(layer);
    EXPECT_EQ(matrix_.view.groups(), 2);
    EXPECT_EQ(matrix_.view.format.group_size, 128);
    EXPECT_EQ(matrix_.view.input_order.empty(), !act_order);
    gptq().sizes.group_sizes = {96, 128};  // two sizes that give two groups: g_idx says which
    expect_weights(64, 192, [&](int64_t n, int64_t k) { return layer.weight(n, k); });
  }
  Layer layer = random_layer(4, 64, 192, 128, true);
  expect_layer(layer);  // without g_idx
  gptq().sizes.group_sizes = {128, 104};
  EXPECT_EQ(code(), "import.shape");
  EXPECT_NE(message().find("may be groups of 128 or 104"), std::string::npos) << message();
}

TEST_F(Gptq, three_bits_want_inputs_in_multiples_of_32) {
  Layer layer = random_layer(3, 32, 32, -1, true);
  Random random(6);
  layer.qweight = random_bits("m.qweight", DType::kI32, {4, 32}, random);
  EXPECT_EQ(code_with(layer), "import.shape");
}

}  // namespace
}  // namespace subbyte
