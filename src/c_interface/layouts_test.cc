// Layouts there and back, and aten's operands against the functions that pack them.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "checkpoints/exporter.h"
#include "foreign_layouts/int4pack.h"
#include "foreign_layouts/marlin.h"
#include "support/c_handles.h"
#include "support/random_matrix.h"

namespace subbyte::testing {
namespace {

using CTensors =
    std::unique_ptr<subbyte_tensors, CDeleter<subbyte_tensors, subbyte_tensors_destroy>>;

subbyte_layout c_layout(const char* name, const char* tile = nullptr) {
  auto layout = c_struct<subbyte_layout>();
  layout.name = name;
  layout.tile = tile;
  return layout;
}

std::vector<subbyte_tensor> list(const CTensors& tensors) {
  int64_t count = 0;
  EXPECT_EQ(subbyte_tensors_count(tensors.get(), &count), SUBBYTE_OK);
  std::vector<subbyte_tensor> all(count, c_struct<subbyte_tensor>());
  for (int64_t i = 0; i < count; ++i) {
    EXPECT_EQ(subbyte_tensors_get(tensors.get(), i, &all[i]), SUBBYTE_OK);
  }
  return all;
}

CTensors export_to(const CMatrix& matrix, const subbyte_layout& layout) {
  subbyte_tensors* made = nullptr;
  EXPECT_EQ(subbyte_matrix_export(matrix.get(), &layout, &made), SUBBYTE_OK)
      << layout.name << ": " << subbyte_last_error();
  return CTensors(made);
}

CMatrix import_from(const CContext& context, const subbyte_layout& layout,
                    const std::vector<subbyte_tensor>& tensors) {
  subbyte_matrix* made = nullptr;
  EXPECT_EQ(subbyte_matrix_import(context.get(), &layout, tensors.data(), std::ssize(tensors),
                                  nullptr, &made),
            SUBBYTE_OK)
      << layout.name << ": " << subbyte_last_error();
  return CMatrix(made);
}

std::vector<float> weights_of(const CMatrix& matrix) {
  auto w = c_struct<subbyte_weights>();
  EXPECT_EQ(subbyte_matrix_describe(matrix.get(), &w), SUBBYTE_OK);
  std::vector<float> out(w.rows * w.cols);
  EXPECT_EQ(subbyte_matrix_dequantize(matrix.get(), SUBBYTE_F32, out.data(), nullptr), SUBBYTE_OK);
  return out;
}

/// A matrix whose zero points a file can hold.
CMatrix random_int4(const CContext& context, Format scale, int64_t group) {
  const RandomMatrix random =
      random_matrix({Format::kU4, scale, Zero::kU8, group}, 64, 256, Contents::kReal, 7);
  for (std::byte& zero : random.zeros->span()) zero = zero & std::byte{7};
  for (std::byte& zero : random.zeros->span()) zero |= std::byte{1};
  return c_matrix(context, c_weights(random.view));
}

TEST(CLayouts, of_checkpoints_go_there_and_back) {
  const CContext context = c_context();
  const std::pair<const char*, WeightFormat> cases[] = {
      {"awq", {Format::kU4, Format::kF16, Zero::kU8, 128}},
      {"gptq", {Format::kU4, Format::kF16, Zero::kU8, 32}},
      {"gptq-v2", {Format::kU3, Format::kF16, Zero::kU8, 32}},
      {"pack_quantized", {Format::kI4, Format::kBF16, Zero::kNone, 32}},
      {"mxfp4_pack_quantized", {Format::kE2M1, Format::kE8M0, Zero::kNone, 32}},
      {"nvfp4_pack_quantized", {Format::kE2M1, Format::kE4M3, Zero::kNone, 16}},
      {"kbit", {Format::kNFL3, Format::kE4M4, Zero::kNone, 32}}};
  for (const auto& [name, format] : cases) {
    SCOPED_TRACE(name);
    RandomMatrix random = random_matrix(format, 64, 256, Contents::kReal, 7);
    if (format.zero == Zero::kU8) {
      for (std::byte& zero : random.zeros->span()) zero = (zero & std::byte{3}) | std::byte{1};
    }
    if (format.scale == Format::kE4M3) {
      for (std::byte& scale : random.scales->span()) scale &= std::byte{0x7F};
    }
    const CMatrix matrix = c_matrix(context, c_weights(random.view));
    const CTensors tensors = export_to(matrix, c_layout(name));
    ASSERT_NE(tensors, nullptr);
    char* text = nullptr;
    ASSERT_EQ(subbyte_tensors_config(tensors.get(), &text), SUBBYTE_OK);
    const CText config(text);
    subbyte_layout layout = c_layout(name);
    layout.config = text;
    const CMatrix back = import_from(context, layout, list(tensors));
    ASSERT_NE(back, nullptr);
    EXPECT_EQ(weights_of(back), weights_of(matrix));
  }
}

/// A matrix that Marlin and FlashInfer hold.
RandomMatrix packable(const WeightFormat& format, int64_t rows = 128, int64_t cols = 256) {
  RandomMatrix random = random_matrix(format, rows, cols, Contents::kReal, 7);
  if (format.zero == Zero::kU8) {
    for (std::byte& zero : random.zeros->span()) zero &= std::byte{15};
  }
  if (format.scale == Format::kE4M3) {  // from 1 to 1.875 and their doubles
    for (std::byte& scale : random.scales->span()) {
      scale = (scale & std::byte{15}) | std::byte{0x30};
    }
    random.view.tensor_scale = 0.375;
  }
  return random;
}

TEST(CLayouts, of_marlin_and_flashinfer_go_there_and_back) {
  const CContext context = c_context();
  const std::pair<const char*, WeightFormat> cases[] = {
      {"marlin", {Format::kU4, Format::kF16, Zero::kU8, 64}},
      {"marlin", {Format::kI4, Format::kBF16, Zero::kNone, 0}},
      {"marlin", {Format::kI8, Format::kF16, Zero::kNone, 128}},
      {"marlin-fp4", {Format::kE2M1, Format::kE8M0, Zero::kNone, 32}},
      {"marlin-fp4", {Format::kE2M1, Format::kE4M3, Zero::kNone, 16}},
      {"flashinfer-mxfp4", {Format::kE2M1, Format::kE8M0, Zero::kNone, 32}}};
  for (const auto& [name, format] : cases) {
    for (const int32_t number : {SUBBYTE_F16, SUBBYTE_BF16}) {
      const bool has_f16 = format.scale == Format::kE4M3 || std::string(name) != "marlin-fp4";
      if (number == SUBBYTE_F16 && !has_f16) continue;  // vLLM's kernel for MXFP4 has bf16 alone
      SCOPED_TRACE(std::string(name) + " " + to_string(format));
      const RandomMatrix random = packable(format);
      const CMatrix matrix = c_matrix(context, c_weights(random.view));
      subbyte_layout layout = c_layout(name);
      layout.number = number;
      const CTensors tensors = export_to(matrix, layout);
      ASSERT_NE(tensors, nullptr);
      EXPECT_EQ(weights_of(import_from(context, layout, list(tensors))), weights_of(matrix));
    }
  }
}

TEST(CLayouts, of_marlin_are_what_its_functions_pack) {
  const CContext context = c_context();
  RandomMatrix random = packable({Format::kU4, Format::kF16, Zero::kU8, 64});
  std::vector<uint32_t> order(256);
  for (uint32_t k = 0; k < 256; ++k) order[k] = k ^ 3;
  random.view.input_order = order;
  const CMatrix matrix = c_matrix(context, c_weights(random.view));
  const CTensors tensors = export_to(matrix, c_layout("marlin"));
  const auto found = list(tensors);
  std::vector<std::string> names;
  for (const subbyte_tensor& tensor : found) names.emplace_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"words", "scales", "zeros", "perm", "g_idx"}));
  std::vector<std::byte> words(128 * 256 / 2);
  pack_marlin(words.data(), random.view.codes.data(), 128, 256);
  EXPECT_EQ(std::memcmp(found[0].data, words.data(), words.size()), 0);
  EXPECT_EQ(std::memcmp(found[3].data, order.data(), 256 * 4), 0);
  const CMatrix back = import_from(context, c_layout("marlin"), found);
  EXPECT_EQ(weights_of(back), weights_of(matrix));
}

TEST(CLayouts, a_padded_matrix_of_flashinfer_has_its_own_sizes) {
  const CContext context = c_context();
  const RandomMatrix random = packable({Format::kE2M1, Format::kE8M0, Zero::kNone, 32}, 100, 160);
  const CMatrix matrix = c_matrix(context, c_weights(random.view));
  subbyte_layout layout = c_layout("flashinfer-mxfp4", "8x4");
  const CTensors tensors = export_to(matrix, layout);
  const auto found = list(tensors);
  EXPECT_EQ(found[0].shape[0], 104);
  EXPECT_EQ(found[0].shape[1], 128);
  layout.rows = 100;
  layout.cols = 160;
  EXPECT_EQ(weights_of(import_from(context, layout, found)), weights_of(matrix));
  subbyte_matrix* made = nullptr;
  layout.cols = 128;  // then inputs 128 to 159 are padding, and not 0
  EXPECT_EQ(code_of(subbyte_matrix_import(context.get(), &layout, found.data(), std::ssize(found),
                                          nullptr, &made)),
            "c.tensor");
}

TEST(CLayouts, one_expert_of_a_stack_is_read) {
  const CContext context = c_context();
  const WeightFormat format = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  const RandomMatrix first = random_matrix(format, 64, 128, Contents::kReal, 1);
  const RandomMatrix second = random_matrix(format, 64, 128, Contents::kReal, 2);
  const CMatrix matrices[] = {c_matrix(context, c_weights(first.view)),
                              c_matrix(context, c_weights(second.view))};
  const CTensors parts[] = {export_to(matrices[0], c_layout("marlin-fp4")),
                            export_to(matrices[1], c_layout("marlin-fp4"))};
  std::vector<subbyte_tensor> stack = list(parts[0]);
  std::vector<std::vector<std::byte>> bytes;
  for (std::size_t i = 0; i < stack.size(); ++i) {
    subbyte_tensor& tensor = stack[i];
    const std::size_t width = std::string(tensor.dtype) == "I32" ? 4 : 1;
    const std::size_t size = static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]) * width;
    bytes.emplace_back(2 * size);
    for (std::size_t e = 0; e < 2; ++e) {
      std::memcpy(&bytes.back()[e * size], list(parts[e])[i].data, size);
    }
    tensor.data = bytes.back().data();
    tensor.shape[2] = tensor.shape[1];
    tensor.shape[1] = tensor.shape[0];
    tensor.shape[0] = 2;
    tensor.rank = 3;
  }
  subbyte_layout layout = c_layout("marlin-fp4");
  for (layout.expert = 0; layout.expert < 2; ++layout.expert) {
    EXPECT_EQ(weights_of(import_from(context, layout, stack)), weights_of(matrices[layout.expert]));
  }
  subbyte_matrix* made = nullptr;
  EXPECT_EQ(code_of(subbyte_matrix_import(context.get(), &layout, stack.data(), std::ssize(stack),
                                          nullptr, &made)),
            "c.argument");
}

TEST(CLayouts, what_marlin_does_not_hold_is_refused) {
  const CContext context = c_context();
  const RandomMatrix odd = packable({Format::kU4, Format::kF16, Zero::kU8, 64}, 72, 256);
  const CMatrix matrix = c_matrix(context, c_weights(odd.view));
  const subbyte_layout layout = c_layout("marlin");
  subbyte_tensors* made = nullptr;
  EXPECT_EQ(code_of(subbyte_matrix_export(matrix.get(), &layout, &made)), "layout.shape");
  const subbyte_layout fp4 = c_layout("marlin-fp4");
  EXPECT_EQ(code_of(subbyte_matrix_export(matrix.get(), &fp4, &made)), "pack.format");
  const subbyte_layout tile = c_layout("marlin", "8x8");
  EXPECT_EQ(code_of(subbyte_matrix_export(matrix.get(), &tile, &made)), "c.argument");
}

TEST(CLayouts, of_aten_are_those_of_the_packing_functions) {
  const CContext context = c_context();
  for (const Format scale : {Format::kF16, Format::kBF16}) {
    const CMatrix matrix = random_int4(context, scale, 32);
    auto w = c_struct<subbyte_weights>();
    ASSERT_EQ(subbyte_matrix_describe(matrix.get(), &w), SUBBYTE_OK);
    MatrixView view;
    view.format = {Format::kU4, scale, Zero::kU8, 32};
    view.rows = 64;
    view.cols = 256;
    view.codes = {static_cast<const std::byte*>(w.codes), 64 * 128};
    view.scales = {static_cast<const std::byte*>(w.scales), 64 * 8 * 2};
    view.zeros = {static_cast<const std::byte*>(w.zeros), 64 * 8};
    std::vector<std::byte> weight(view.codes.size());
    pack_int4_cpu(weight.data(), view.codes.data(), 64, 256, CpuTile::kHalves32);
    const auto numbers = pack_scales_and_zeros(view);
    ASSERT_TRUE(numbers.ok());
    const auto cpu = list(export_to(matrix, c_layout("int4pack-cpu", "32")));
    ASSERT_EQ(cpu.size(), 2u);
    const CTensors kept = export_to(matrix, c_layout("int4pack-cpu", "32"));
    const auto tensors = list(kept);
    EXPECT_EQ(std::memcmp(tensors[0].data, weight.data(), weight.size()), 0);
    EXPECT_EQ(std::memcmp(tensors[1].data, numbers->data(), numbers->size()), 0);
    EXPECT_STREQ(tensors[1].dtype, scale == Format::kF16 ? "F16" : "BF16");
  }
}

TEST(CLayouts, of_aten_come_back_and_multiply) {
  const CContext context = c_context();
  const std::pair<const char*, const char*> layouts[] = {
      {"int4pack-cpu", "64"},       {"int4pack-cpu", "32"}, {"int4pack-cpu", "pairs-32"},
      {"int4pack-cpu", "pairs-16"}, {"int4pack-cuda", "2"}, {"int4pack-cuda", "8"},
      {"int4pack-xpu", nullptr}};
  for (const int64_t group : {32, 128}) {
    const CMatrix matrix = random_int4(context, Format::kBF16, group);
    for (const auto& [name, tile] : layouts) {
      SCOPED_TRACE(std::string(name) + " " + (tile == nullptr ? "" : tile));
      const CTensors tensors = export_to(matrix, c_layout(name, tile));
      const CMatrix back = import_from(context, c_layout(name, tile), list(tensors));
      ASSERT_NE(back, nullptr);
      EXPECT_EQ(weights_of(back), weights_of(matrix));
      const std::vector<float> x = random_inputs(3, 256, Contents::kReal, 3);
      std::vector<float> y(3 * 64), expected(3 * 64);
      auto product = c_struct<subbyte_product>();
      product.x = x.data();
      product.y = y.data();
      product.m = 3;
      product.number = SUBBYTE_F32;
      ASSERT_EQ(subbyte_multiply(back.get(), &product), SUBBYTE_OK) << subbyte_last_error();
      product.y = expected.data();
      ASSERT_EQ(subbyte_multiply(matrix.get(), &product), SUBBYTE_OK);
      EXPECT_EQ(y, expected);
    }
  }
}

TEST(CLayouts, keep_zeros_of_aten_that_were_fitted_freely) {
  const CContext context = c_context();
  for (const Format type : {Format::kF16, Format::kBF16, Format::kF32}) {
    const CMatrix matrix = random_int4(context, type, 32);
    const CTensors tensors = export_to(matrix, c_layout("int4pack-cpu", "64"));
    std::vector<subbyte_tensor> all = list(tensors);
    const FormatInfo& number = info(type);
    const std::size_t width = number.bits / 8;
    std::vector<std::byte> numbers(8 * 64 * 2 * width);
    std::memcpy(numbers.data(), all[1].data, numbers.size());
    const uint32_t offset = number.encode(0.3, Rounding::kNearestEven);
    std::memcpy(numbers.data() + width, &offset, width);  // z of output 0
    all[1].data = numbers.data();
    const CMatrix back = import_from(context, c_layout("int4pack-cpu", "64"), all);
    auto w = c_struct<subbyte_weights>();
    ASSERT_EQ(subbyte_matrix_describe(back.get(), &w), SUBBYTE_OK);
    EXPECT_EQ(w.element, SUBBYTE_I4);
    EXPECT_EQ(w.zero, static_cast<int32_t>(type));
    const int code = static_cast<const uint8_t*>(w.codes)[0] & 15;
    uint32_t scale = 0;
    std::memcpy(&scale, numbers.data(), width);
    const double exact = (code - 8) * number.decode(scale) + number.decode(offset);
    EXPECT_EQ(weights_of(back)[0], static_cast<float>(exact));
    const CTensors again = export_to(back, c_layout("int4pack-cpu", "64"));
    EXPECT_EQ(std::memcmp(list(again)[1].data, numbers.data(), numbers.size()), 0);
  }
}

TEST(CLayouts, of_aten_have_no_place_for_an_order_of_inputs) {
  const CContext context = c_context();
  RandomMatrix random =
      random_matrix({Format::kU4, Format::kBF16, Zero::kU8, 32}, 64, 256, Contents::kReal, 7);
  std::vector<uint32_t> order(256);
  for (uint32_t k = 0; k < 256; ++k) order[k] = 255 - k;
  random.view.input_order = order;
  const CMatrix matrix = c_matrix(context, c_weights(random.view));
  for (const auto& [name, tile] : {std::pair("int4pack-cpu", "64"), std::pair("int4pack-cuda", "8"),
                                   std::pair<const char*, const char*>("int4pack-xpu", nullptr)}) {
    const subbyte_layout layout = c_layout(name, tile);
    subbyte_tensors* made = nullptr;
    EXPECT_EQ(code_of(subbyte_matrix_export(matrix.get(), &layout, &made)), "layout.input_order")
        << name;
  }
}

TEST(CLayouts, of_ggml_are_blocks_of_rows) {
  const CContext context = c_context();
  // Q8_0, two rows of a block each: a scale of 2, then 32 bytes from -16 on.
  std::vector<uint8_t> blocks;
  for (int row = 0; row < 2; ++row) {
    blocks.insert(blocks.end(), {0x00, 0x40});
    for (int i = -16; i < 16; ++i) blocks.push_back(static_cast<uint8_t>(i + row));
  }
  const float factor = 0.25F;
  auto all = std::vector(2, c_struct<subbyte_tensor>());
  all[0].name = "blocks";
  all[0].dtype = "U8";
  all[0].rank = 2;
  all[0].shape[0] = 2;
  all[0].shape[1] = 34;
  all[0].data = blocks.data();
  all[1].name = "scale";
  all[1].dtype = "F32";
  all[1].rank = 1;
  all[1].shape[0] = 1;
  all[1].data = &factor;
  const CMatrix matrix = import_from(context, c_layout("ggml-Q8_0"), all);
  const std::vector<float> weights = weights_of(matrix);
  ASSERT_EQ(weights.size(), 64u);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(weights[static_cast<std::size_t>(i)],
              0.5F * static_cast<float>(i % 32 - 16 + i / 32));
  }
  const auto refused = [&](const char* name) {
    const subbyte_layout layout = c_layout(name);
    subbyte_matrix* made = nullptr;
    return code_of(subbyte_matrix_import(context.get(), &layout, all.data(), 2, nullptr, &made));
  };
  EXPECT_EQ(refused("ggml-Q8"), "c.argument");
  EXPECT_EQ(refused("ggml-I8"), "layout.format");
  EXPECT_EQ(refused("ggml-Q4_0"), "c.tensor");
  const float infinity = INFINITY;
  all[1].data = &infinity;
  EXPECT_EQ(refused("ggml-Q8_0"), "c.tensor");
  blocks[1] = 0x7C;  // an infinite scale
  all[1].data = &factor;
  EXPECT_EQ(refused("ggml-Q8_0"), "layout.scale");
  const subbyte_layout layout = c_layout("ggml-Q8_0");
  subbyte_tensors* tensors = nullptr;
  EXPECT_EQ(code_of(subbyte_matrix_export(matrix.get(), &layout, &tensors)), "c.argument");
}

TEST(CLayouts, refuse_by_name) {
  const CContext context = c_context();
  const CMatrix matrix = random_int4(context, Format::kBF16, 32);
  const CTensors tensors = export_to(matrix, c_layout("int4pack-cpu", "64"));
  const std::vector<subbyte_tensor> all = list(tensors);
  subbyte_matrix* made = nullptr;
  const auto code = [&](const subbyte_layout& layout, auto change) {
    std::vector<subbyte_tensor> changed = all;
    change(changed);
    return code_of(subbyte_matrix_import(context.get(), &layout, changed.data(),
                                         std::ssize(changed), nullptr, &made));
  };
  const subbyte_layout layout = c_layout("int4pack-cpu", "64");
  EXPECT_EQ(code(c_layout("int5pack"), [](auto&) {}), "c.argument");
  EXPECT_EQ(code(c_layout("int4pack-cpu"), [](auto&) {}), "c.argument") << "a tile";
  EXPECT_EQ(code(layout, [](auto& t) { t.pop_back(); }), "c.tensor");
  EXPECT_EQ(code(layout, [](auto& t) { t[0].dtype = "BOOL"; }), "c.tensor");
  EXPECT_EQ(code(layout, [](auto& t) { t[0].dtype = "four"; }), "c.argument");
  EXPECT_EQ(code(layout, [](auto& t) { t[0].rank = 5; }), "c.argument");
  EXPECT_EQ(code(layout, [](auto& t) { t[0].rank = 1; }), "c.tensor");
  EXPECT_EQ(code(layout, [](auto& t) { t[0].shape[1] = -1; }), "c.argument");
  EXPECT_EQ(code(layout, [](auto& t) { t[0].shape[1] = int64_t{1} << 62; }), "c.argument");
  EXPECT_EQ(code(layout, [](auto& t) { t[1].shape[1] = 32; }), "c.tensor");
  EXPECT_EQ(code(layout, [](auto& t) { t[0].data = nullptr; }), "c.null");
  EXPECT_EQ(code(layout, [](auto& t) { t[0].name = nullptr; }), "c.null");
  EXPECT_EQ(code(layout, [](auto& t) { t[1].name = "weight"; }), "c.argument");
  EXPECT_EQ(code(c_layout("awq"), [](auto&) {}), "dense.dtype") << "a weight that is no float";
  subbyte_tensors* out = nullptr;
  const subbyte_layout kbit = c_layout("kbit");
  EXPECT_NE(subbyte_matrix_export(matrix.get(), &kbit, &out), SUBBYTE_OK);
}

TEST(CLayouts, refuse_null_for_every_address) {
  const CContext context = c_context();
  const CMatrix matrix = random_int4(context, Format::kBF16, 32);
  const subbyte_layout layout = c_layout("int4pack-cpu", "64");
  const CTensors tensors = export_to(matrix, layout);
  const std::vector<subbyte_tensor> all = list(tensors);
  subbyte_matrix* made = nullptr;
  subbyte_tensors* out = nullptr;
  int64_t count = 0;
  char* json = nullptr;
  auto tensor = c_struct<subbyte_tensor>();
  expect_nulls_refused("import", &subbyte_matrix_import, {4},
                       {context.get(), &layout, all.data(), 2, nullptr, &made});
  expect_nulls_refused("export", &subbyte_matrix_export, {}, {matrix.get(), &layout, &out});
  expect_nulls_refused("count", &subbyte_tensors_count, {}, {tensors.get(), &count});
  expect_nulls_refused("get", &subbyte_tensors_get, {}, {tensors.get(), 0, &tensor});
  expect_nulls_refused("config", &subbyte_tensors_config, {}, {tensors.get(), &json});
  EXPECT_EQ(code_of(subbyte_tensors_get(tensors.get(), 2, &tensor)), "c.argument");
}

}  // namespace
}  // namespace subbyte::testing
