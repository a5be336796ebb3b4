// Random bytes; the values of NF4 are written out here as bitsandbytes publishes them, and scales
// are computed by its formulas with every intermediate result rounded to float32.

#include <gtest/gtest.h>

#include "support/round_trip.h"

namespace subbyte {
namespace {

constexpr float kNf4[16] = {-1.0F,
                            -0.6961928009986877F,
                            -0.5250730514526367F,
                            -0.39491748809814453F,
                            -0.28444138169288635F,
                            -0.18477343022823334F,
                            -0.09105003625154495F,
                            0.0F,
                            0.07958029955625534F,
                            0.16093020141124725F,
                            0.24611230194568634F,
                            0.33791524171829224F,
                            0.44070982933044434F,
                            0.5626170039176941F,
                            0.7229568362236023F,
                            1.0F};
const std::string kState = "m.weight.quant_state.bitsandbytes__nf4";

TestTensor text_tensor(std::string name, const std::string& text) {
  return {std::move(name), DType::kU8, {text.size()}, text};
}

std::string state_of(int64_t rows, int64_t cols, int64_t block) {
  return R"({"quant_type": "nf4", "blocksize": )" + std::to_string(block) +
         R"(, "dtype": "bfloat16", "shape": [)" + std::to_string(rows) + ", " +
         std::to_string(cols) + "]}";
}

struct Layer {
  int64_t rows, cols, block;
  TestTensor weight, absmax, quant_map, state;
  TestTensor nested_absmax, nested_map;  // double quantization when their shapes are not empty
  float offset = 0;

  bool nested() const { return !nested_absmax.shape.empty(); }

  std::vector<TestTensor> tensors() const {
    std::vector<TestTensor> all = {weight, absmax, quant_map, state};
    if (nested()) {
      all.push_back(nested_absmax);
      all.push_back(nested_map);
    }
    return all;
  }

  float scale(int64_t index) const {
    if (!nested()) return absmax.at<float>(index);
    volatile float product =
        nested_map.at<float>(absmax.at<uint8_t>(index)) * nested_absmax.at<float>(index / 256);
    volatile float sum = product + offset;
    return sum;
  }

  double weight_at(int64_t n, int64_t k) const {
    const int64_t index = n * cols + k;
    const auto byte = weight.at<uint8_t>(index / 2);
    const double value = kNf4[k % 2 == 0 ? byte >> 4 : byte & 0xF];  // high nibble first
    return value * scale(index / block);
  }
};

Layer plain_layer(int64_t rows, int64_t cols, int64_t block) {
  Random random(rows * 1000 + cols + block);
  const auto bytes = static_cast<uint64_t>(rows * cols / 2);
  const auto blocks = static_cast<uint64_t>((rows * cols + block - 1) / block);
  TestTensor map = filled<float>("m.weight.quant_map", DType::kF32, {16}, 0);
  for (std::size_t i = 0; i < 16; ++i) map.set(i, kNf4[i]);
  return {rows,
          cols,
          block,
          random_bits("m.weight", DType::kU8, {bytes, 1}, random),
          random_floats("m.weight.absmax", DType::kF32, {blocks}, random),
          map,
          text_tensor(kState, state_of(rows, cols, block)),
          {},
          {}};
}

Layer nested_layer(int64_t rows, int64_t cols, int64_t block) {
  Layer layer = plain_layer(rows, cols, block);
  Random random(cols);
  const uint64_t blocks = layer.absmax.shape[0];
  layer.absmax = random_bits("m.weight.absmax", DType::kU8, {blocks}, random);
  layer.nested_absmax =
      random_floats("m.weight.nested_absmax", DType::kF32, {(blocks + 255) / 256}, random);
  layer.nested_map = random_floats("m.weight.nested_quant_map", DType::kF32, {256}, random);
  layer.offset = 0.0371F;
  const std::string state = state_of(rows, cols, block);
  layer.state = text_tensor(kState, state.substr(0, state.size() - 1) +
                                        R"(, "nested_blocksize": 256, "nested_dtype": "float32", )"
                                        R"("nested_offset": 0.03709999844431877})");
  return layer;
}

class BnbNf4 : public RoundTripFixture {
 protected:
  BnbNf4() { say_nested(false); }

  void say_nested(bool nested) {
    say({{"quant_method", "bitsandbytes"},
         {"load_in_4bit", true},
         {"bnb_4bit_quant_type", "nf4"},
         {"bnb_4bit_use_double_quant", nested}});
  }

  void expect_layer(const Layer& layer) {
    say_nested(layer.nested());
    expect_weights(layer.rows, layer.cols,
                   [&](int64_t n, int64_t k) { return layer.weight_at(n, k); });
  }
  std::string code_with(const Layer& layer) {
    say_nested(layer.nested());
    return code_of(layer.tensors());
  }
  std::string code_with_state(const std::string& state) {
    Layer layer = plain_layer(8, 128, 64);
    layer.state = text_tensor(kState, state);
    return code_with(layer);
  }
};

TEST_F(BnbNf4, means_what_the_definition_says_and_comes_back) {
  for (const auto& [rows, cols, block] : {std::tuple(1, 64, 64),
                                          {8, 64, 64},
                                          {8, 256, 64},
                                          {7, 192, 64},
                                          {5, 4096, 4096},
                                          {3, 96, 32}}) {
    const Layer layer = plain_layer(rows, cols, block);
    open(layer.tensors());
    expect_layer(layer);
    for (const std::size_t remainder : {1, 2, 3}) {
      open_misaligned(layer.tensors(), remainder);
      expect_layer(layer);
    }
    expect_round_trip("bnb_nf4", layer.tensors());
  }
}

TEST_F(BnbNf4, decodes_the_byte_whose_value_is_known) {
  // 0xF7: the high nibble comes first and means 1, the low one 0.
  Layer layer = plain_layer(1, 64, 64);
  layer.weight = filled<uint8_t>("m.weight", DType::kU8, {32, 1}, 0xF7);
  layer.absmax.set(0, 0.75F);
  open(layer.tensors());
  expect_weights(1, 64, [](int64_t, int64_t k) { return k % 2 == 0 ? 0.75 : 0.0; });
}

TEST_F(BnbNf4, resolves_double_quantization_as_floats_do) {
  for (const auto& [rows, cols] : {std::pair(8, 64), {8, 2048}, {33, 1024}}) {
    const Layer layer = nested_layer(rows, cols, 64);
    open(layer.tensors());
    expect_layer(layer);
    // Written without it; what was written means the same.
    const std::vector<TestTensor> written = exported("bnb_nf4");
    ASSERT_EQ(written.size(), 4u);
    say_nested(false);
    open(written);
    expect_weights(rows, cols, [&](int64_t n, int64_t k) { return layer.weight_at(n, k); });
    expect_round_trip("bnb_nf4", written);
  }
}

TEST_F(BnbNf4, blocks_may_cross_rows) {
  // Groups are what rows and blocks have in common; the last block may be short.
  for (const auto& [rows, cols, block, group] : {std::tuple(6, 96, 64, 32),
                                                 {3, 32, 64, 32},
                                                 {5, 40, 64, 8},
                                                 {7, 1000, 128, 8},
                                                 {2, 2112, 4096, 64}}) {
    for (const Layer& layer : {plain_layer(rows, cols, block), nested_layer(rows, cols, block)}) {
      open(layer.tensors());
      expect_layer(layer);
      EXPECT_EQ(matrix_.view.format.group_size, group);
    }
  }
}

TEST_F(BnbNf4, takes_bytes_that_are_labelled_as_other_types) {
  Layer layer = plain_layer(8, 128, 64);
  for (const auto& [dtype, width] :
       {std::pair(DType::kI8, 1), {DType::kBF16, 2}, {DType::kF16, 2}, {DType::kF32, 4}}) {
    layer.weight.dtype = dtype;
    layer.weight.shape = {static_cast<uint64_t>(8 * 128 / 2 / width), 1};
    open(layer.tensors());
    expect_layer(layer);
  }
}

TEST_F(BnbNf4, describes_what_it_found) {
  const Layer layer = nested_layer(8, 2048, 64);
  say_nested(true);
  open(layer.tensors());
  const auto info = describe_module(context(), "m");
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->importer, "bnb_nf4");
  EXPECT_EQ(to_string(info->format), "nf4 g64 scale f32");
  EXPECT_EQ(info->tensors.size(), 6u);  // all of the module: no other importer sees one
}

TEST_F(BnbNf4, the_config_must_agree) {
  open(nested_layer(8, 128, 64).tensors());
  EXPECT_EQ(code(), "import.config");
  EXPECT_NE(message().find("bnb_4bit_use_double_quant is false, but \"m\" has a nested_absmax"),
            std::string::npos)
      << message();
  open(plain_layer(8, 128, 64).tensors());
  EXPECT_EQ(code(), "");
  say_nested(true);
  EXPECT_EQ(code(), "import.config");
  config_ = {};
  EXPECT_EQ(code(), "import.config");
  EXPECT_NE(message().find("\"bitsandbytes\""), std::string::npos) << message();
}

TEST_F(BnbNf4, refuses_states_that_it_cannot_read) {
  const std::string good = state_of(8, 128, 64);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string state = good;
    return code_with_state(state.replace(state.find(from), from.size(), to));
  };
  EXPECT_EQ(code_with_state(good), "");
  EXPECT_EQ(changed("nf4", "fp4"), "bnb_nf4.quant_type");
  EXPECT_EQ(changed("\"nf4\"", "4"), "json.type");
  for (const char* size : {"0", "48", "16", "8192", "-64"}) {
    EXPECT_EQ(changed("64", size), "bnb_nf4.blocksize");
  }
  EXPECT_EQ(changed("64", "128"), "import.shape");  // twice the scales that there should be
  EXPECT_EQ(changed("[8, 128]", "[16, 128]"), "import.shape");
  EXPECT_EQ(changed("[8, 128]", "[1024]"), "import.shape");
  EXPECT_EQ(changed("[8, 128]", "[2, 4, 128]"), "import.shape");
  EXPECT_EQ(changed("[8, 128]", "[0, 128]"), "import.shape");
  EXPECT_EQ(changed("[8, 128]", "[-8, 128]"), "import.shape");
  EXPECT_EQ(changed("[8, 128]", "[8.0, 128]"), "import.shape");
  EXPECT_EQ(changed("[8, 128]", "[18446744073709551615, 128]"), "import.shape");
  EXPECT_EQ(changed("[8, 128]", "[32, 32]"), "");
  EXPECT_EQ(changed("[8, 128]", "[256, 4]"), "import.shape");
  EXPECT_NE(message().find("rows of 4 inputs are no multiples of 8"), std::string::npos)
      << message();
  EXPECT_EQ(changed("]}", "], \"nested_offset\": 0.5, \"nested_blocksize\": 256}"), "import.shape");
  EXPECT_EQ(changed("]}", "]"), "json.syntax");
  EXPECT_EQ(code_with_state("[]"), "json.type");
  EXPECT_EQ(code_with_state(R"({"quant_type": "nf4"})"), "json.missing");
  EXPECT_EQ(code_with_state(good + std::string(1, '\0')), "json.syntax");
}

TEST_F(BnbNf4, refuses_wrong_shapes_types_and_values) {
  Random random(2);
  const auto with = [&](const Layer& layer, TestTensor tensor) {
    say_nested(layer.nested());
    return code_of(layer.tensors(), tensor);
  };
  const Layer plain = plain_layer(8, 128, 64);
  const auto bits = [&](const TestTensor& like, DType dtype, Shape shape) {
    return with(plain, random_bits(like.name, dtype, std::move(shape), random));
  };
  EXPECT_EQ(bits(plain.weight, DType::kU8, {512, 1}), "");
  EXPECT_EQ(bits(plain.weight, DType::kU8, {511, 1}), "import.shape");
  EXPECT_EQ(bits(plain.weight, DType::kU8, {512}), "import.shape");
  EXPECT_EQ(bits(plain.weight, DType::kI16, {256, 1}), "import.dtype");
  EXPECT_EQ(bits(plain.weight, DType::kF64, {64, 1}), "import.dtype");
  EXPECT_EQ(bits(plain.absmax, DType::kU8, {16}), "import.dtype");
  EXPECT_EQ(bits(plain.absmax, DType::kF32, {15}), "import.shape");
  EXPECT_EQ(bits(plain.absmax, DType::kF32, {8, 2}), "import.shape");
  EXPECT_EQ(bits(plain.quant_map, DType::kF16, {16}), "import.dtype");
  EXPECT_EQ(bits(plain.quant_map, DType::kF32, {8}), "import.shape");
  EXPECT_EQ(bits(plain.state, DType::kI8, {64}), "import.dtype");
  TestTensor other = plain.quant_map;
  other.set(3, std::nextafter(kNf4[3], 0.0F));
  EXPECT_EQ(with(plain, other), "bnb_nf4.quant_map");
  EXPECT_NE(message().find("code 3 means"), std::string::npos) << message();
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    TestTensor absmax = plain.absmax;
    absmax.set(7, bad);
    EXPECT_EQ(with(plain, absmax), "import.scale_not_finite");
    EXPECT_NE(message().find("block 7"), std::string::npos) << message();
  }
  const Layer nested = nested_layer(8, 2048, 64);
  const auto nested_bits = [&](const TestTensor& like, DType dtype, Shape shape) {
    return with(nested, random_bits(like.name, dtype, std::move(shape), random));
  };
  EXPECT_EQ(with(nested, nested.absmax), "");
  EXPECT_EQ(nested_bits(nested.absmax, DType::kF32, {256}), "import.dtype");
  EXPECT_EQ(nested_bits(nested.nested_absmax, DType::kF32, {2}), "import.shape");
  EXPECT_EQ(nested_bits(nested.nested_absmax, DType::kF16, {1}), "import.dtype");
  EXPECT_EQ(nested_bits(nested.nested_map, DType::kF32, {16}), "import.shape");
  EXPECT_EQ(with(nested, filled<float>("m.weight.nested_absmax", DType::kF32, {1}, NAN)),
            "import.scale_not_finite");
  EXPECT_EQ(with(nested, plain_layer(8, 2048, 64).state), "import.shape");  // no nested_offset
}

TEST_F(BnbNf4, refuses_missing_tensors_and_fp4) {
  const auto without = [&](const Layer& layer, std::string_view name) {
    say_nested(layer.nested());
    std::vector<TestTensor> tensors = layer.tensors();
    std::erase_if(tensors, [&](const TestTensor& tensor) { return tensor.name == name; });
    return code_of(tensors);
  };
  const Layer nested = nested_layer(8, 128, 64);
  for (const char* name : {"m.weight", "m.weight.absmax", "m.weight.quant_map", kState.c_str(),
                           "m.weight.nested_quant_map"}) {
    EXPECT_EQ(without(nested, name), "import.missing") << name;
  }
  EXPECT_EQ(without(nested, "m.weight.nested_absmax"), "import.config");
  Layer fp4 = plain_layer(8, 128, 64);
  fp4.state.name = "m.weight.quant_state.bitsandbytes__fp4";
  EXPECT_EQ(code_with(fp4), "bnb_nf4.quant_type");
  EXPECT_NE(message().find("fp4"), std::string::npos) << message();
}

TEST_F(BnbNf4, the_writer_refuses_what_is_not_nf4) {
  const auto code_of_shape = [](const ExportShape& shape) {
    const auto described = find_exporter("bnb_nf4")->describe(shape, "m");
    return described.ok() ? std::string_view() : described.error().code;
  };
  const WeightFormat nf4 = {Format::kNF4, Format::kF32, Zero::kNone, 64};
  EXPECT_EQ(code_of_shape({nf4, 8, 128}), "");
  EXPECT_EQ(code_of_shape({nf4, 8, 96}), "export.shape");
  EXPECT_EQ(code_of_shape({nf4, 8, 128, true}), "export.act_order");
  EXPECT_EQ(code_of_shape({nf4, 8, 128, false, 2}), "export.experts");
  EXPECT_EQ(code_of_shape({{Format::kNF4, Format::kF32, Zero::kNone, 48}, 8, 96}), "export.format");
  EXPECT_EQ(code_of_shape({{Format::kNF4, Format::kF16, Zero::kNone, 64}, 8, 128}),
            "export.format");
  EXPECT_EQ(code_of_shape({{Format::kE2M1, Format::kE8M0, Zero::kNone, 32}, 8, 128}),
            "export.format");
}

}  // namespace
}  // namespace subbyte
