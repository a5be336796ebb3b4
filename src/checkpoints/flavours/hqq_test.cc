// Random words; shifts and masks are those of hqq's own unpack functions, written out. The golden
// hqq-mixed is of the real package.

#include <gtest/gtest.h>

#include "support/import_fixture.h"

namespace subbyte {
namespace {

struct Kind {
  std::string packing;
  int64_t bits;
  DType word;
  uint32_t mask;
  std::vector<int> shifts;  // of the strips
};

const Kind kKinds[] = {{"8bit_u8", 8, DType::kU8, 0xFF, {0}},
                       {"4bit_u8", 4, DType::kU8, 0xF, {4, 0}},
                       {"3bit_32", 3, DType::kI32, 7, {27, 24, 21, 18, 15, 12, 9, 6, 3, 0}},
                       {"2bit_u8", 2, DType::kU8, 3, {6, 4, 2, 0}},
                       {"1bit_u8", 1, DType::kU8, 1, {7, 6, 5, 4, 3, 2, 1, 0}}};

TestTensor text(std::string name, const std::string& text) {
  return {std::move(name), DType::kU8, {text.size()}, text};
}

TestTensor number(std::string name, int32_t value) {
  return filled<int32_t>(std::move(name), DType::kI32, {}, value);
}

struct Layer {
  const Kind* kind;
  int64_t rows, cols, group;
  std::vector<TestTensor> tensors;  // W_q, scale and zero first

  double offset(int64_t group_index) const {
    const double exact = -float_at(tensors[2], group_index) * float_at(tensors[1], group_index);
    const auto stored = static_cast<float>(exact);
    // What the head of the file promises: exact, but for floats of 32 bits.
    EXPECT_TRUE(stored == exact || tensors[1].dtype == DType::kF32);
    return stored;
  }
  double weight_at(int64_t n, int64_t k) const {
    const int64_t at = n * cols + k;
    const int64_t in_group = at / group;
    const auto places = std::ssize(kind->shifts);
    const int64_t strip = (rows * cols / group + places - 1) / places;
    const int64_t word_at = in_group % strip * group + at % group;
    const uint32_t word = kind->word == DType::kU8 ? tensors[0].at<uint8_t>(word_at)
                                                   : tensors[0].at<uint32_t>(word_at);
    const double code = word >> kind->shifts[in_group / strip] & kind->mask;
    return code * float_at(tensors[1], in_group) + offset(in_group);
  }
};

Layer layer_of(const Kind& kind, int64_t rows, int64_t cols, int64_t group,
               DType number_type = DType::kF16) {
  Random random(rows * 1000 + cols + group);
  const auto groups = static_cast<uint64_t>(rows * cols / group);
  const uint64_t places = kind.shifts.size();
  const Shape words = {(groups + places - 1) / places, static_cast<uint64_t>(group)};
  TestTensor shape = filled<int64_t>("m.shape", DType::kI64, {2}, rows);
  shape.set(1, cols);
  return {&kind,
          rows,
          cols,
          group,
          {random_bits("m.W_q", kind.word, words, random),
           random_floats("m.scale", number_type, {groups, 1}, random),
           random_floats("m.zero", number_type, {groups, 1}, random), shape,
           number("m.nbits", static_cast<int32_t>(kind.bits)),
           number("m.group_size", static_cast<int32_t>(group)), number("m.axis", 1),
           text("m.packing", kind.packing), filled<uint8_t>("m.quant_scale", DType::kU8, {}, 0),
           filled<uint8_t>("m.quant_zero", DType::kU8, {}, 0),
           text("m.compute_dtype", "torch.float16")}};
}

json::Value entry_of(int64_t bits, int64_t group) {
  return {{"weight_quant_params",
           {{"nbits", bits},
            {"channel_wise", true},
            {"group_size", group},
            {"optimize", true},
            {"round_zero", false},
            {"axis", 1},
            {"view_as_float", false}}},
          {"scale_quant_params", nullptr},
          {"zero_quant_params", nullptr},
          {"offload_meta", false}};
}

class Hqq : public ImportFixture {
 protected:
  void say_all(const json::Value& quant_config) {
    say({{"quant_method", "hqq"}, {"quant_config", quant_config}, {"skip_modules", {"lm_head"}}});
  }
  void say_of(const Layer& layer) { say_all(entry_of(layer.kind->bits, layer.group)); }

  void expect_layer(const Layer& layer) {
    say_of(layer);
    open(layer.tensors);
    expect_weights(layer.rows, layer.cols,
                   [&](int64_t n, int64_t k) { return layer.weight_at(n, k); });
  }
  /// The code with another tensor in the place of one of a sound layer.
  std::string code_with(const TestTensor& other) {
    Layer layer = layer_of(kKinds[1], 8, 64, 64);
    say_of(layer);
    for (TestTensor& tensor : layer.tensors) {
      if (tensor.name == other.name) tensor = other;
    }
    return code_of(layer.tensors);
  }
  /// The code of a section of config.json.
  static std::string config_code(const std::string& section) {
    const auto value = json::parse(section, "config.json");
    const auto object = json::Object::of(*value, "config.json");
    const auto config = read_quantization_config(*object, {});
    return config.ok() ? "" : std::string(config.error().code);
  }
};

TEST_F(Hqq, means_what_the_definition_says) {
  for (const Kind& kind : kKinds) {
    for (const auto& [rows, cols, group] : {std::tuple(8, 64, 64),
                                            {16, 128, 64},
                                            {24, 96, 32},
                                            {16, 24, 8},
                                            {16, 40, 40},
                                            {16, 192, 128},    // groups that cross rows
                                            {32, 32, 128}}) {  // several rows in a group
      for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
        SCOPED_TRACE(kind.packing + " " + std::to_string(cols) + " " + std::to_string(group));
        expect_layer(layer_of(kind, rows, cols, group, type));
      }
    }
  }
}

TEST_F(Hqq, codes_lie_in_strips_and_the_first_strip_is_on_top) {
  Layer layer = layer_of(kKinds[1], 4, 8, 8);
  layer.tensors[0].bytes = std::string("\x01\x02\x03\x04\x05\x06\x07\x08", 8) +  // rows 0 and 2
                           std::string("\x90\xA0\xB0\xC0\xD0\xE0\xF0\x10", 8);   // rows 1 and 3
  say_of(layer);
  open(layer.tensors);
  const auto matrix = import_matrix(context(), "m");
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  const auto row = [&](int64_t n) {
    std::vector<uint32_t> codes;
    for (int64_t k = 0; k < 8; ++k) codes.push_back(code_at(matrix->view, n, k));
    return codes;
  };
  EXPECT_EQ(row(0), std::vector<uint32_t>(8, 0));
  EXPECT_EQ(row(1), (std::vector<uint32_t>{9, 10, 11, 12, 13, 14, 15, 1}));
  EXPECT_EQ(row(2), (std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(row(3), std::vector<uint32_t>(8, 0));
}

TEST_F(Hqq, formats_say_what_groups_are) {
  const auto format_of = [&](const Layer& layer) {
    say_of(layer);
    open(layer.tensors);
    const auto info = describe_module(context(), "m");
    return info.ok() ? to_string(info->format) : info.error().message;
  };
  EXPECT_EQ(format_of(layer_of(kKinds[1], 8, 128, 64)), "u4 g64 scale f16 offset f32");
  EXPECT_EQ(format_of(layer_of(kKinds[2], 8, 64, 64)), "u3 per row scale f16 offset f32");
  EXPECT_EQ(format_of(layer_of(kKinds[4], 16, 192, 128)), "u2 g64 scale f16 offset f32");
}

TEST_F(Hqq, words_may_be_labelled_as_floats) {
  for (const Kind& kind : kKinds) {
    Layer layer = layer_of(kind, 16, 64, 32);
    const Layer plain = layer;
    TestTensor& words = layer.tensors[0];
    const bool is_u8 = words.dtype == DType::kU8;
    words.dtype = DType::kF16;
    words.shape[1] = is_u8 ? words.shape[1] / 2 : words.shape[1] * 2;
    say_of(layer);
    open(layer.tensors);
    expect_weights(16, 64, [&](int64_t n, int64_t k) { return plain.weight_at(n, k); });
  }
}

TEST_F(Hqq, an_entry_is_for_the_modules_of_its_name) {
  Layer layer = layer_of(kKinds[1], 8, 64, 32);
  for (TestTensor& tensor : layer.tensors) {
    tensor.name.replace(0, 1, "model.layers.3.self_attn.q_proj");
  }
  const auto code_in = [&](const json::Value& quant_config) {
    say_all(quant_config);
    return code("model.layers.3.self_attn.q_proj");
  };
  open(layer.tensors);
  EXPECT_EQ(code_in({{"self_attn.q_proj", entry_of(4, 32)}, {"mlp.up_proj", entry_of(2, 16)}}), "");
  EXPECT_EQ(code_in({{"self_attn.q_proj", entry_of(2, 32)}}), "import.config");
  EXPECT_EQ(code_in({{"self_attn.q_proj", entry_of(4, 64)}}), "import.config");
  EXPECT_EQ(code_in({{"mlp.up_proj", entry_of(4, 32)}}), "import.config");
  EXPECT_EQ(code_in(entry_of(4, 32)), "");
  say({{"quant_method", "hqq"},
       {"quant_config", entry_of(4, 32)},
       {"skip_modules", {"self_attn.q_proj"}}});
  EXPECT_EQ(describe_module(context(), "model.layers.3.self_attn.q_proj").error().code,
            "import.config");
}

TEST_F(Hqq, refuses_by_name_what_it_does_not_read) {
  EXPECT_EQ(code_with(number("m.axis", 0)), "hqq.axis");
  EXPECT_NE(message().find("axis 0"), std::string::npos) << message();
  EXPECT_EQ(code_with(filled<uint8_t>("m.quant_zero", DType::kU8, {}, 1)), "hqq.nested");
  EXPECT_EQ(code_with(filled<uint8_t>("m.quant_scale", DType::kU8, {}, 1)), "hqq.nested");
  EXPECT_EQ(code_with(text("m.packing", "4bit_i32")), "hqq.packing");
  EXPECT_EQ(config_code(R"({"quantization_config": {"quant_method": "hqq", "quant_config":
                {"weight_quant_params": {"nbits": 4, "group_size": 64, "axis": 0}}}})"),
            "quantization.axis");
  EXPECT_EQ(config_code(R"({"quantization_config": {"quant_method": "hqq", "quant_config":
                {"weight_quant_params": {"nbits": 5, "group_size": 64, "axis": 1}}}})"),
            "quantization.bits");
  EXPECT_EQ(config_code(R"({"quantization_config": {"quant_method": "hqq"}})"), "json.missing");
}

TEST_F(Hqq, refuses_tensors_that_contradict_themselves) {
  Random random(1);
  EXPECT_EQ(code_with(random_bits("m.W_q", DType::kU8, {3, 64}, random)), "import.shape");
  EXPECT_EQ(code_with(random_bits("m.W_q", DType::kI32, {4, 64}, random)), "import.dtype");
  EXPECT_EQ(code_with(random_bits("m.W_q", DType::kF16, {4, 64}, random)), "import.shape");
  EXPECT_EQ(code_with(random_floats("m.scale", DType::kF16, {7, 1}, random)), "import.shape");
  EXPECT_EQ(code_with(random_floats("m.zero", DType::kBF16, {8, 1}, random)), "import.dtype");
  EXPECT_EQ(code_with(filled<uint16_t>("m.zero", DType::kF16, {8, 1}, 0x7E00)),
            "import.scale_not_finite");
  EXPECT_EQ(code_with(filled<uint16_t>("m.scale", DType::kF16, {8, 1}, 0x7C00)),
            "import.scale_not_finite");
  EXPECT_EQ(code_with(number("m.group_size", 0)), "import.shape");
  EXPECT_EQ(code_with(number("m.group_size", 100)), "import.shape");
  EXPECT_EQ(code_with(number("m.group_size", -64)), "import.shape");
  EXPECT_EQ(code_with(filled<int64_t>("m.shape", DType::kI64, {2}, -1)), "import.shape");
  EXPECT_EQ(code_with(filled<int64_t>("m.shape", DType::kI64, {3}, 8)), "import.shape");
  EXPECT_EQ(code_with(text("m.axis", "one")), "import.dtype");
  Layer odd = layer_of(kKinds[1], 8, 64, 64);
  odd.tensors[3].set<int64_t>(0, 7);
  say_of(odd);
  EXPECT_EQ(code_of(odd.tensors), "import.shape");  // 7 groups in words of two
  Layer large = layer_of(kKinds[0], 8, 64, 64, DType::kF32);
  for (int i = 1; i <= 2; ++i) large.tensors[i].set<uint32_t>(5, 0x7F000000);
  say_of(large);
  EXPECT_EQ(code_of(large.tensors), "import.scale_not_finite");
  EXPECT_EQ(code("absent"), "import.missing");
}

}  // namespace
}  // namespace subbyte
