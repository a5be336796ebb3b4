// Codes are laid into words by the definition of the two packings, one bit at a time, and
// w = (q - z) * s is computed from them with signed q and z, as compressed-tensors has it.

#include <gtest/gtest.h>

#include "checkpoints/flavours/ct_config.h"
#include "checkpoints/flavours/integer_config.h"
#include "support/round_trip.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

struct Case {
  int bits;
  int64_t rows, cols, group_size;  // group_size -1: the whole row
  bool symmetric = true;
  bool act_order = false;
  bool lanes = false;
  DType scale = DType::kBF16;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.bits << " bits [" << c.rows << "][" << c.cols << "] group " << c.group_size
             << (c.symmetric ? "" : " asymmetric") << (c.act_order ? " act-order" : "")
             << (c.lanes ? " lanes " : " ") << name(c.scale);
}

struct Layer {
  Case c;
  std::vector<uint32_t> q;  // [rows][cols], stored: q + 2^(b-1)
  std::vector<uint32_t> z;  // [rows][groups], stored
  TestTensor scale;
  std::vector<int32_t> g_idx;

  int64_t groups() const {
    return c.group_size == -1 ? 1 : (c.cols + c.group_size - 1) / c.group_size;
  }
  int64_t words(int64_t count) const {
    const int64_t lanes = 32 / c.bits;
    return c.lanes ? (count + lanes - 1) / lanes : (count * c.bits + 31) / 32;
  }

  /// Sets the bits of code `index` in a sequence of words, of which word i is words[i * stride].
  void lay(TestTensor& words, int64_t first, int64_t stride, int64_t index, uint32_t code) const {
    const int64_t lanes = 32 / c.bits;
    for (int b = 0; b < c.bits; ++b) {
      const int64_t bit =
          c.lanes ? index / lanes * 32 + index % lanes * c.bits + b : index * c.bits + b;
      const auto word = static_cast<std::size_t>(first + bit / 32 * stride);
      words.set(word, words.at<uint32_t>(word) | ((code >> b & 1u) << bit % 32));
    }
  }

  std::vector<TestTensor> tensors() const {
    const auto n = static_cast<uint64_t>(c.rows);
    const auto g = static_cast<uint64_t>(groups());
    TestTensor packed = filled<uint32_t>("m.weight_packed", DType::kI32,
                                         {n, static_cast<uint64_t>(words(c.cols))}, 0);
    for (int64_t i = 0; i < c.rows * c.cols; ++i) {
      lay(packed, i / c.cols * words(c.cols), 1, i % c.cols, q[i]);
    }
    TestTensor shape = filled<int64_t>("m.weight_shape", DType::kI64, {2}, c.rows);
    shape.set<int64_t>(1, c.cols);
    std::vector<TestTensor> all = {packed, scale, shape};
    if (!c.symmetric) {
      TestTensor zeros = filled<uint32_t>("m.weight_zero_point", DType::kI32,
                                          {static_cast<uint64_t>(words(c.rows)), g}, 0);
      for (int64_t i = 0; i < c.rows * groups(); ++i) {
        lay(zeros, i % groups(), groups(), i / groups(), z[i]);
      }
      all.push_back(zeros);
    }
    if (c.act_order) all.push_back(int32_tensor("m.weight_g_idx", {g_idx.size()}, g_idx));
    return all;
  }

  double weight(int64_t n, int64_t k) const {
    const int offset = 1 << (c.bits - 1);
    const int64_t group = c.act_order ? g_idx[k] : c.group_size == -1 ? 0 : k / c.group_size;
    const int64_t i = n * groups() + group;
    const int zero = c.symmetric ? 0 : static_cast<int>(z[i]) - offset;
    return (static_cast<int>(q[n * c.cols + k]) - offset - zero) * float_at(scale, i);
  }
};

Layer random_layer(const Case& c) {
  Random random(c.bits * 1000 + c.rows * 10 + c.cols + (c.symmetric ? 0 : 5));
  Layer layer = {c, {}, {}, {}, {}};
  const auto groups = static_cast<uint64_t>(layer.groups());
  for (int64_t i = 0; i < c.rows * c.cols; ++i) {
    layer.q.push_back(static_cast<uint32_t>(random.below(1u << c.bits)));
  }
  for (int64_t i = 0; i < c.rows * layer.groups(); ++i) {
    layer.z.push_back(static_cast<uint32_t>(random.below(1u << c.bits)));
  }
  layer.scale =
      random_floats("m.weight_scale", c.scale, {static_cast<uint64_t>(c.rows), groups}, random);
  for (int64_t k = 0; c.act_order && k < c.cols; ++k) {
    layer.g_idx.push_back(static_cast<int32_t>(k / c.group_size));
  }
  for (std::size_t k = layer.g_idx.size(); k > 1; --k) {
    std::swap(layer.g_idx[k - 1], layer.g_idx[random.below(k)]);
  }
  return layer;
}

class PackQuantized : public RoundTripFixture {
 protected:
  CompressedState& ct() { return said_by<CompressedState>(compressed_tensors_flavour); }
  GptqState& gptq() { return said_by<GptqState>(gptq_flavour); }

  void use(const Case& c) {
    config_ = {};
    ct().schemes = {
        {CompressedScheme::Format::kPackQuantized, c.bits, c.symmetric, c.group_size, c.act_order}};
  }
  std::string code_with(const Layer& layer) {
    use(layer.c);
    return code_of(layer.tensors());
  }
};

/// strategy "tensor": one scale, and one signed zero point that is not packed.
TEST_F(PackQuantized, one_scale_may_serve_the_tensor) {
  for (const bool symmetric : {true, false}) {
    const Case c = {.bits = 4, .rows = 6, .cols = 64, .group_size = -1};
    Layer layer = random_layer(c);
    layer.scale = filled<float>("m.weight_scale", DType::kF32, {1}, 0.0123F);
    std::vector<TestTensor> tensors = layer.tensors();
    if (!symmetric) tensors.push_back(filled<int8_t>("m.weight_zero_point", DType::kI8, {1}, -3));
    use(c);
    ct().schemes.front().symmetric = symmetric;
    ct().schemes.front().block_rows = -1;
    open(tensors);
    expect_weights(6, 64, [&](int64_t n, int64_t k) {
      const int code = static_cast<int>(layer.q[n * 64 + k]) - 8;
      return (code + (symmetric ? 0 : 3)) * double{0.0123F};
    });
    ct().schemes.front().block_rows = 1;  // "channel"
    EXPECT_EQ(code(), "import.config");
    EXPECT_NE(message().find("one scale for 64 inputs"), std::string::npos) << message();
    if (symmetric) continue;
    ct().schemes.front().block_rows = -1;
    tensors.back() = filled<int8_t>("m.weight_zero_point", DType::kI8, {1}, -9);
    open(tensors);
    EXPECT_EQ(code(), "pack_quantized.range");
  }
}

class PackQuantizedCases : public PackQuantized, public testing::WithParamInterface<Case> {};

TEST_P(PackQuantizedCases, means_what_the_definition_says_and_comes_back) {
  const Layer layer = random_layer(GetParam());
  use(layer.c);
  const auto expect = [&] {
    expect_weights(layer.c.rows, layer.c.cols,
                   [&](int64_t n, int64_t k) { return layer.weight(n, k); });
  };
  open(layer.tensors());
  expect();
  for (const std::size_t remainder : {1, 2, 3}) {
    open_misaligned(layer.tensors(), remainder);
    expect();
  }
  const bool same_words = 32 % layer.c.bits == 0;
  if (layer.c.act_order && !layer.c.lanes && !same_words) {
    // Only 0.18 had both: read, and not written.
    const auto refused = find_exporter("pack_quantized")->write(matrix_.view, "m", pool_);
    EXPECT_EQ(refused.error().code, "export.act_order");
    return;
  }
  const bool lanes = layer.c.lanes || layer.c.act_order;
  expect_round_trip(lanes ? "pack_quantized_lanes" : "pack_quantized", layer.tensors());
}

INSTANTIATE_TEST_SUITE_P(
    all, PackQuantizedCases,
    testing::Values(Case{4, 8, 128, 128}, Case{4, 8, 64, 32}, Case{4, 24, 256, 32, false},
                    Case{4, 8, 64, -1}, Case{4, 40, 96, -1, false},
                    Case{4, 16, 128, 32, true, true}, Case{4, 16, 128, 32, false, true},
                    Case{4, 3, 24, 8}, Case{4, 13, 20, -1, false}, Case{8, 8, 64, 32},
                    Case{8, 8, 64, -1}, Case{8, 9, 64, 32, false}, Case{8, 4, 96, 32, true, true},
                    Case{8, 7, 33, -1, false}, Case{2, 8, 64, 32}, Case{2, 17, 96, 32, false},
                    Case{2, 8, 64, 16, true, true}, Case{4, 8, 80, 32}, Case{4, 8, 80, 32, false},
                    Case{4, 16, 80, 32, true, true},
                    Case{4, 8, 64, 32, true, false, false, DType::kF16},
                    Case{4, 8, 64, 32, false, false, false, DType::kF32}),
    NamedByValue());

INSTANTIATE_TEST_SUITE_P(dense, PackQuantizedCases,
                         testing::Values(Case{3, 8, 64, 32}, Case{3, 43, 96, 32, false},
                                         Case{3, 8, 7, -1}, Case{3, 8, 64, 32, true, true},
                                         Case{3, 12, 95, -1, false}, Case{5, 8, 64, 32},
                                         Case{5, 9, 96, 32, false}, Case{6, 8, 64, 32},
                                         Case{6, 21, 64, 32, false}, Case{7, 8, 64, 32},
                                         Case{7, 10, 64, 32, false, true}),
                         NamedByValue());

INSTANTIATE_TEST_SUITE_P(
    lanes, PackQuantizedCases,
    testing::Values(Case{3, 8, 64, 32, true, false, true}, Case{3, 43, 96, 32, false, false, true},
                    Case{3, 8, 64, 32, true, true, true}, Case{5, 8, 64, 32, true, false, true},
                    Case{5, 9, 96, 32, false, false, true}, Case{6, 8, 64, 32, true, false, true},
                    Case{6, 21, 64, 32, false, false, true}, Case{7, 8, 64, 32, true, false, true},
                    Case{7, 10, 64, 32, false, true, true}),
    NamedByValue());

TEST_F(PackQuantized, three_bit_codes_lie_where_each_packing_says) {
  // Inputs 0 and 10 of 32 have codes 5 and 6, which mean 1 and 2; all others code 4, which is 0.
  // Dense: code 10 has its bits 0 and 1 in bits 30 and 31 of word 0, bit 2 in bit 0 of word 1.
  use({3, 1, 32, -1});
  const TestTensor scale = filled<uint16_t>("m.weight_scale", DType::kF16, {1, 1}, 0x3C00);
  TestTensor shape = filled<int64_t>("m.weight_shape", DType::kI64, {2}, 1);
  shape.set<int64_t>(1, 32);
  const auto value = [](int64_t, int64_t k) { return k == 0 ? 1.0 : k == 10 ? 2.0 : 0.0; };
  const std::vector<int32_t> dense = {int32_t(0xA4924925u), 0x49249249, int32_t(0x92492492u)};
  open({int32_tensor("m.weight_packed", {1, 3}, dense), scale, shape});
  expect_weights(1, 32, value);
  const std::vector<int32_t> lanes = {0x24924925, 0x24924926, 0x24924924, 0x24};
  open({int32_tensor("m.weight_packed", {1, 4}, lanes), scale, shape});
  expect_weights(1, 32, value);
}

TEST_F(PackQuantized, symmetric_rows_are_used_where_they_lie) {
  const Layer layer = random_layer({4, 8, 64, 32});
  use(layer.c);
  open(layer.tensors());
  const auto matrix = import_matrix(context(), "m");
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(matrix->view.codes.data(), source_->find("m.weight_packed")->bytes.data());
  EXPECT_EQ(matrix->view.scales.data(), source_->find("m.weight_scale")->bytes.data());
  EXPECT_EQ(to_string(matrix->view.format), "i4 g32 scale bf16");
}

TEST_F(PackQuantized, describes_what_it_found) {
  const Layer layer = random_layer({8, 8, 64, 32, false, true});
  use(layer.c);
  open(layer.tensors());
  const auto info = describe_module(context(), "m");
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->importer, "pack_quantized");
  EXPECT_EQ(to_string(info->format), "u8 g32 scale bf16 zero u16");
  EXPECT_TRUE(info->act_order);
  EXPECT_EQ(info->bytes(), 8u * 64 + 8 * 2 * 2 + 16 + 8 * 2 + 64 * 4);
}

TEST_F(PackQuantized, meets_gptq_in_the_matrix) {
  // Asymmetric weights can be written as GPTQ version 2 and back.
  for (const int bits : {2, 4, 8}) {
    const Layer layer = random_layer({bits, 32, 64, 32, false, bits == 4});
    use(layer.c);
    open(layer.tensors());
    const std::vector<TestTensor> written = exported("gptq_v2");
    config_ = {};
    gptq().sizes = {{bits}, {32}};
    gptq().stores_zero_minus_one = false;
    open(written);
    expect_weights(32, 64, [&](int64_t n, int64_t k) { return layer.weight(n, k); });
    // Of 2, 4 and 8 bits both packings are the same; only the older releases have an order.
    const char* exporter = layer.c.act_order ? "pack_quantized_lanes" : "pack_quantized";
    expect_same_tensors(exported(exporter), layer.tensors());
  }
}

TEST_F(PackQuantized, a_config_that_contradicts_the_tensors_is_refused_with_both) {
  const Layer layer = random_layer({4, 8, 64, 32});
  const auto refused = [&](const Case& said, std::string_view in_message) {
    use(said);
    EXPECT_EQ(code_of(layer.tensors()), "import.config");
    EXPECT_NE(message().find(in_message), std::string::npos) << message();
    EXPECT_NE(message().find("8 words and 2 groups for 64 inputs, no zero points and no g_idx"),
              std::string::npos)
        << message();
  };
  refused({8, 8, 64, 32}, "8 bits symmetric group 32");
  refused({4, 8, 64, 16}, "group 16");
  refused({4, 8, 64, -1}, "channel");
  refused({4, 8, 64, 32, false}, "asymmetric");
  refused({4, 8, 64, 32, true, true}, "actorder group");
  ct().schemes.push_back({CompressedScheme::Format::kPackQuantized, 4, true, 32, false});
  EXPECT_EQ(code(), "");  // any group may be the one
  ct().schemes = {{CompressedScheme::Format::kNvfp4, 4, true, 16, false}};
  EXPECT_EQ(code(), "import.config");
  config_ = {};
  gptq();
  EXPECT_EQ(code(), "import.config");
  EXPECT_NE(message().find("\"compressed-tensors\""), std::string::npos) << message();
}

TEST_F(PackQuantized, widths_that_fit_two_packings_are_refused) {
  // 20 codes of 3 bits take two words in both packings.
  EXPECT_EQ(code_with(random_layer({3, 8, 20, -1})), "pack_quantized.packing");
  EXPECT_EQ(code_with(random_layer({3, 8, 10, -1})), "");  // one word, and the same in both
  // 7 bits in lanes are as wide as 8 bits.
  const Layer seven = random_layer({7, 8, 64, 32, true, false, true});
  EXPECT_EQ(code_with(seven), "");
  ct().schemes.push_back({CompressedScheme::Format::kPackQuantized, 8, true, 32, false});
  EXPECT_EQ(code(), "pack_quantized.packing");
  ct().name_scheme("other", 1);
  EXPECT_EQ(code(), "pack_quantized.packing");
  // The group that names the module tells, if the tensors agree with it.
  ct().name_scheme("language_model.m", 0);
  open(seven.tensors());
  expect_weights(8, 64, [&](int64_t n, int64_t k) { return seven.weight(n, k); });
  ct().scheme_of_module.clear();
  ct().schemes.push_back({CompressedScheme::Format::kNvfp4, 4, true, 16, false});
  ct().name_scheme("m", 2);
  EXPECT_EQ(code(), "pack_quantized.packing");
}

TEST_F(PackQuantized, refuses_wrong_shapes_types_and_values) {
  const Layer good = random_layer({4, 16, 64, 32, false, true});
  use(good.c);
  Random random(7);
  const auto with = [&](const TestTensor& tensor) { return code_of(good.tensors(), tensor); };
  const auto ints = [&](std::string name, DType dtype, Shape shape) {
    return with(random_bits(std::move(name), dtype, std::move(shape), random));
  };
  const auto sizes = [&](int64_t n, int64_t k) {
    TestTensor shape = filled<int64_t>("m.weight_shape", DType::kI64, {2}, n);
    shape.set<int64_t>(1, k);
    return with(shape);
  };
  EXPECT_EQ(sizes(16, 64), "");
  EXPECT_EQ(sizes(15, 64), "import.shape");
  EXPECT_EQ(sizes(16, 0), "import.shape");
  EXPECT_EQ(sizes(16, -64), "import.shape");
  EXPECT_EQ(sizes(16, INT64_MAX), "import.shape");
  EXPECT_EQ(sizes(16, 72), "import.config");  // another width
  EXPECT_EQ(sizes(16, 60), "import.shape");   // the same width, but g_idx is of 64
  EXPECT_EQ(ints("m.weight_packed", DType::kF32, {16, 8}), "import.dtype");
  EXPECT_EQ(ints("m.weight_packed", DType::kI32, {128}), "import.shape");
  EXPECT_EQ(ints("m.weight_packed", DType::kI32, {16, 0}), "import.shape");
  EXPECT_EQ(ints("m.weight_scale", DType::kI16, {16, 2}), "import.dtype");
  EXPECT_EQ(ints("m.weight_scale", DType::kF8E4M3, {16, 2}), "import.dtype");
  EXPECT_EQ(with(random_floats("m.weight_scale", DType::kF16, {15, 2}, random)), "import.shape");
  EXPECT_EQ(with(random_floats("m.weight_scale", DType::kF16, {32}, random)), "import.shape");
  EXPECT_EQ(with(random_floats("m.weight_scale", DType::kF16, {16, 3}, random)), "import.config");
  EXPECT_EQ(ints("m.weight_shape", DType::kI32, {2}), "import.dtype");
  EXPECT_EQ(ints("m.weight_shape", DType::kI64, {3}), "import.shape");
  EXPECT_EQ(ints("m.weight_zero_point", DType::kI8, {16, 2}), "import.dtype");
  EXPECT_EQ(ints("m.weight_zero_point", DType::kI32, {16, 2}), "import.shape");
  EXPECT_EQ(ints("m.weight_zero_point", DType::kI32, {2, 1}), "import.shape");
  EXPECT_EQ(with(filled<int32_t>("m.weight_g_idx", DType::kI32, {64}, -1)),
            "pack_quantized.g_idx_range");
  EXPECT_EQ(with(filled<int32_t>("m.weight_g_idx", DType::kI32, {64}, 0)),
            "pack_quantized.g_idx_counts");
  EXPECT_EQ(with(filled<int64_t>("m.weight_g_idx", DType::kI64, {64}, 0)), "import.dtype");
  EXPECT_EQ(with(filled<int32_t>("m.weight_g_idx", DType::kI32, {63}, 0)), "import.shape");
  TestTensor nan = good.scale;
  nan.set<uint16_t>(3, 0x7FC0);
  EXPECT_EQ(with(nan), "import.scale_not_finite");
  EXPECT_NE(message().find("1 of 32 scales"), std::string::npos) << message();
  EXPECT_NE(message().find("[1, 1]"), std::string::npos) << message();
}

TEST_F(PackQuantized, refuses_missing_tensors) {
  const Layer layer = random_layer({4, 16, 64, 32, false, true});
  use(layer.c);
  const std::vector<TestTensor> all = layer.tensors();
  for (std::size_t missing = 1; missing < all.size(); ++missing) {
    std::vector<TestTensor> tensors = all;
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(missing));
    // Zero points and g_idx are optional; without them the config is contradicted.
    EXPECT_EQ(code_of(tensors), missing < 3 ? "import.missing" : "import.config");
  }
}

TEST_F(PackQuantized, writers_refuse_what_the_format_cannot_say) {
  const auto code_of_shape = [](const ExportShape& shape, const char* exporter = "pack_quantized") {
    const auto described = find_exporter(exporter)->describe(shape, "m");
    return described.ok() ? std::string_view() : described.error().code;
  };
  const WeightFormat i4 = {Format::kI4, Format::kF16, Zero::kNone, 32};
  EXPECT_EQ(code_of_shape({i4, 8, 64}), "");
  // Since 0.19 compressed-tensors has no order of inputs.
  EXPECT_EQ(code_of_shape({i4, 8, 64, true}), "export.act_order");
  EXPECT_EQ(code_of_shape({i4, 8, 64, true}, "pack_quantized_lanes"), "");
  EXPECT_EQ(code_of_shape({i4, 8, 48}), "");  // the last group is short
  EXPECT_EQ(code_of_shape({i4, 8, 64, false, 2}), "export.experts");
  EXPECT_EQ(code_of_shape({{Format::kI3, Format::kF16, Zero::kNone, 0}, 8, 20}), "export.shape");
  EXPECT_EQ(code_of_shape({{Format::kU4, Format::kF16, Zero::kNone, 32}, 8, 64}), "export.format");
  EXPECT_EQ(code_of_shape({{Format::kI4, Format::kF16, Zero::kU8, 32}, 8, 64}), "export.format");
  EXPECT_EQ(code_of_shape({{Format::kU8, Format::kF16, Zero::kU8, 32}, 8, 64}), "export.format");
  EXPECT_EQ(code_of_shape({{Format::kE2M1, Format::kE8M0, Zero::kNone, 32}, 8, 64}),
            "export.format");
  EXPECT_EQ(code_of_shape({{Format::kI4, Format::kE4M3, Zero::kNone, 32}, 8, 64}), "export.format");
  // GPTQ version 1 can mean a zero point of 16.
  const std::vector<std::byte> codes(8 * 16), scales(8 * 2), zeros(8, std::byte{16});
  MatrixView view;
  view.format = {Format::kU4, Format::kF16, Zero::kU8, 32};
  view.rows = 8;
  view.cols = 32;
  view.codes = codes;
  view.scales = scales;
  view.zeros = zeros;
  EXPECT_EQ(find_exporter("pack_quantized")->write(view, "m", pool_).error().code,
            "export.zero_range");
  view.tensor_scale = 0.5;
  EXPECT_EQ(find_exporter("pack_quantized")->write(view, "m", pool_).error().code,
            "export.tensor_scale");
}

}  // namespace
}  // namespace subbyte
