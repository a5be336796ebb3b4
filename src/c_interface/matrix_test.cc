// Matrices against the definition of a weight (matrix/matrix.h).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "support/c_handles.h"
#include "support/random_matrix.h"

namespace subbyte::testing {
namespace {

const WeightFormat kInt4 = {Format::kU4, Format::kF16, Zero::kU8, 32};

/// Weight (n, input) by the definition, `order` being what the columns are.
double weight_of_input(const MatrixView& view, int64_t n, int64_t input) {
  for (int64_t k = 0; k < view.cols; ++k) {
    if (view.input_order.empty() ? k == input : view.input_order[k] == input) {
      return weight_at(view, n, k);
    }
  }
  return NAN;
}

void expect_weights(const subbyte_matrix* matrix, const MatrixView& view) {
  for (const int32_t number : {SUBBYTE_F32, SUBBYTE_F16, SUBBYTE_BF16}) {
    const FormatInfo& format = info(static_cast<Format>(number));
    std::vector<uint8_t> out(view.rows * view.cols * format.bits / 8);
    ASSERT_EQ(subbyte_matrix_dequantize(matrix, number, out.data(), nullptr), SUBBYTE_OK)
        << subbyte_last_error();
    for (int64_t i = 0; i < view.rows * view.cols; ++i) {
      uint32_t code = 0;
      std::memcpy(&code, &out[i * format.bits / 8], format.bits / 8);
      ASSERT_EQ(code, format.encode(weight_of_input(view, i / view.cols, i % view.cols),
                                    Rounding::kNearestEven))
          << to_string(view.format) << ' ' << format.name << ' ' << i;
    }
  }
}

TEST(CMatrix, gives_the_weights_of_the_oracle_in_every_format) {
  const CContext context = c_context();
  std::vector<WeightFormat> formats = {{Format::kF32}, {Format::kF16}, {Format::kBF16}};
  for (const FormatInfo* element : all_formats()) {
    if (element->bits > 8) continue;
    const bool is_integer = element->id >= Format::kU2 && element->id <= Format::kI8;
    const Format scale = element->id == Format::kE2M1 ? Format::kE8M0 : Format::kF32;
    formats.push_back({element->id, scale, Zero::kNone, 32});
    if (is_integer) formats.push_back({element->id, Format::kBF16, Zero::kBF16, 0});
    if (is_integer) formats.push_back({element->id, Format::kF32, Zero::kF32, 32});
    if (element->id == Format::kU4) formats.push_back({element->id, Format::kF16, Zero::kU8, 24});
  }
  for (const WeightFormat& format : formats) {
    RandomMatrix random = random_matrix(format, 3, 96, Contents::kExact, 7);
    random.view.tensor_scale = 0.25;
    if (format.element == Format::kE8M0 || format.element == Format::kE5M2) continue;  // NaN codes
    const subbyte_weights given = c_weights(random.view);
    const CMatrix matrix = c_matrix(context, given);
    ASSERT_NE(matrix, nullptr);
    expect_weights(matrix.get(), random.view);
    auto found = c_struct<subbyte_weights>();
    ASSERT_EQ(subbyte_matrix_describe(matrix.get(), &found), SUBBYTE_OK);
    EXPECT_EQ(found.element, given.element);
    EXPECT_EQ(found.rows, 3);
    EXPECT_EQ(found.device, -1);
    EXPECT_NE(found.codes, random.view.codes.data()) << "it was copied";
    EXPECT_EQ(std::memcmp(found.codes, random.view.codes.data(), random.view.codes.size()), 0);
  }
}

TEST(CMatrix, takes_strides_and_borrows) {
  const CContext context = c_context();
  const RandomMatrix random = random_matrix(kInt4, 5, 96, Contents::kExact, 9);
  std::vector<std::byte> spread(5 * 64), scales(5 * 16);
  for (int64_t n = 0; n < 5; ++n) {
    std::memcpy(&spread[n * 64], random.view.codes.data() + n * 48, 48);
    std::memcpy(&scales[n * 16], random.view.scales.data() + n * 6, 6);
  }
  subbyte_weights w = c_weights(random.view);
  w.codes = spread.data();
  w.scales = scales.data();
  w.codes_stride = 64;
  w.scales_stride = 16;
  w.codes_bytes = 4 * 64 + 48;
  w.borrow = 1;
  const CMatrix matrix = c_matrix(context, w);
  expect_weights(matrix.get(), random.view);
  auto found = c_struct<subbyte_weights>();
  ASSERT_EQ(subbyte_matrix_describe(matrix.get(), &found), SUBBYTE_OK);
  EXPECT_EQ(found.zeros, random.view.zeros.data()) << "borrowed, as its rows follow each other";
  int64_t bytes = 0;
  ASSERT_EQ(subbyte_matrix_bytes(matrix.get(), &bytes), SUBBYTE_OK);
  EXPECT_EQ(bytes, random.view.bytes());
  w.codes_bytes -= 1;
  subbyte_matrix* made = nullptr;
  EXPECT_EQ(subbyte_matrix_create(context.get(), &w, nullptr, &made), SUBBYTE_ARGUMENT);
  EXPECT_STREQ(subbyte_last_error(),
               "weights.codes_bytes: expected 0 or at least 304 for this shape, found 303");
  w.codes_bytes = 0;
  w.codes_stride = 47;
  EXPECT_EQ(subbyte_matrix_create(context.get(), &w, nullptr, &made), SUBBYTE_ARGUMENT);
}

TEST(CMatrix, sorts_the_inputs_of_group_indices) {
  const CContext context = c_context();
  // Codes in the order of the inputs, each with the group that g_idx says.
  const RandomMatrix random = random_matrix(kInt4, 4, 96, Contents::kExact, 11);
  std::vector<int32_t> groups(96);
  for (int k = 0; k < 96; ++k) groups[k] = (k * 7 + 2) % 3;
  subbyte_weights w = c_weights(random.view);
  w.group_indices = groups.data();
  const CMatrix matrix = c_matrix(context, w);
  ASSERT_NE(matrix, nullptr);
  std::vector<float> out(4 * 96);
  ASSERT_EQ(subbyte_matrix_dequantize(matrix.get(), SUBBYTE_F32, out.data(), nullptr), SUBBYTE_OK);
  for (int64_t n = 0; n < 4; ++n) {
    for (int64_t k = 0; k < 96; ++k) {
      uint16_t scale = 0;
      std::memcpy(&scale, random.view.scales.data() + (n * 3 + groups[k]) * 2, 2);
      const double zero = std::to_integer<int>(random.view.zeros[n * 3 + groups[k]]);
      const double expected =
          (code_at(random.view, n, k) - zero) * info(Format::kF16).decode(scale);
      ASSERT_EQ(out[n * 96 + k], expected) << n << ' ' << k;
    }
  }
  groups[0] = 1;
  subbyte_matrix* made = nullptr;
  EXPECT_EQ(subbyte_matrix_create(context.get(), &w, nullptr, &made), SUBBYTE_ARGUMENT);
  groups[0] = 3;
  EXPECT_EQ(subbyte_matrix_create(context.get(), &w, nullptr, &made), SUBBYTE_ARGUMENT);
  EXPECT_STREQ(subbyte_last_error(), "weights.group_indices: expected groups from 0 to 2, found 3");
}

TEST(CMatrix, keeps_codebook_order_and_factor) {
  const CContext context = c_context();
  RandomMatrix random =
      random_matrix({Format::kNFL3, Format::kF16, Zero::kNone, 32}, 3, 64, Contents::kExact, 5);
  std::vector<float> codebook = {-4, -3, -1, 0, 0.5f, 1, 2, 3};
  std::vector<uint32_t> order(64);
  std::iota(order.rbegin(), order.rend(), 0u);
  random.view.codebook = codebook;
  random.view.input_order = order;
  random.view.tensor_scale = 0.25;
  const CMatrix matrix = c_matrix(context, c_weights(random.view));
  codebook[0] = -100;  // it was copied
  std::vector<uint32_t> kept = order;
  order[0] = 0;
  random.view.input_order = kept;
  codebook[0] = -4;
  expect_weights(matrix.get(), random.view);
  subbyte_weights w = c_weights(random.view);
  codebook[1] = -4;
  subbyte_matrix* made = nullptr;
  EXPECT_EQ(subbyte_matrix_create(context.get(), &w, nullptr, &made), SUBBYTE_ARGUMENT);
  codebook[1] = -3;
  kept[1] = kept[2];
  EXPECT_EQ(subbyte_matrix_create(context.get(), &w, nullptr, &made), SUBBYTE_ARGUMENT);
}

TEST(CMatrix, refuses_descriptions_that_say_nothing) {
  const CContext context = c_context();
  const RandomMatrix random = random_matrix(kInt4, 4, 64, Contents::kExact, 3);
  const auto code = [&](auto change) {
    subbyte_weights w = c_weights(random.view);
    change(w);
    subbyte_matrix* made = nullptr;
    const std::string found = code_of(subbyte_matrix_create(context.get(), &w, nullptr, &made));
    EXPECT_TRUE(found == "ok" || made == nullptr);
    subbyte_matrix_destroy(made);
    return found;
  };
  EXPECT_EQ(code([](auto&) {}), "ok");
  EXPECT_EQ(code([](auto& w) { w.element = 0; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.element = 99; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.element = SUBBYTE_F16; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.scale = SUBBYTE_E2M1; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.scale = SUBBYTE_NONE; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.zero = SUBBYTE_I4; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.group_size = -1; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.group_size = INT64_MAX; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.group_size = INT64_MIN; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.tensor_scale = INFINITY; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.rows = -1; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.rows = int64_t{1} << 40; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.cols = 0; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.row_order = 3; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.codes = nullptr; }), "c.null");
  EXPECT_EQ(code([](auto& w) { w.scales = nullptr; }), "c.null");
  EXPECT_EQ(code([](auto& w) { w.zeros = nullptr; }), "c.null");
  EXPECT_EQ(code([](auto& w) { w.codes_stride = -1; }), "c.argument");
  EXPECT_EQ(code([](auto& w) { w.struct_size = 3; }), "c.struct_size");
  const float codebook[16] = {};
  EXPECT_EQ(code([&](auto& w) { w.codebook = codebook; }), "c.argument");
}

TEST(CMatrix, quantizes_to_every_format) {
  const CContext context = c_context();
  std::vector<float> numbers(4 * 128);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = std::sin(0.7f * static_cast<float>(i));
  // Largest error relative to 1 that each must keep: half a step of its codes and of its scales.
  const std::pair<const char*, double> formats[] = {
      {"awq", 0.08}, {"gptq", 0.08}, {"mxfp4", 0.26}, {"nvfp4", 0.26},
      {"nf4", 0.16}, {"fp8", 0.04},  {"kbit", 0.16}};
  for (const auto& [format, bound] : formats) {
    auto quantizer = c_struct<subbyte_quantizer>();
    quantizer.format = format;
    subbyte_matrix* made = nullptr;
    ASSERT_EQ(subbyte_matrix_quantize(context.get(), &quantizer, numbers.data(), SUBBYTE_F32, 4,
                                      128, &made),
              SUBBYTE_OK)
        << format << ": " << subbyte_last_error();
    const CMatrix matrix(made);
    std::vector<float> back(numbers.size());
    ASSERT_EQ(subbyte_matrix_dequantize(made, SUBBYTE_F32, back.data(), nullptr), SUBBYTE_OK);
    double worst = 0;
    for (std::size_t i = 0; i < back.size(); ++i) {
      worst = std::max<double>(worst, std::fabs(back[i] - numbers[i]));
    }
    EXPECT_LE(worst, bound) << format;
    EXPECT_GT(worst, 0) << format;
  }
  auto quantizer = c_struct<subbyte_quantizer>();
  subbyte_matrix* made = nullptr;
  const auto quantize = [&] {
    return code_of(subbyte_matrix_quantize(context.get(), &quantizer, numbers.data(), SUBBYTE_F32,
                                           4, 128, &made));
  };
  EXPECT_EQ(quantize(), "c.null");
  quantizer.format = "best";
  EXPECT_EQ(quantize(), "c.argument");
  quantizer.format = "awq";
  quantizer.bits = 5;
  EXPECT_EQ(quantize(), "c.argument");
  quantizer.bits = 4;
  quantizer.group_size = 100;
  EXPECT_NE(quantize(), "ok");
  quantizer.group_size = INT64_MAX;
  EXPECT_NE(quantize(), "ok");
  numbers[5] = NAN;
  quantizer.group_size = 0;
  EXPECT_EQ(quantize(), "quantize.not_finite");
}

TEST(CMatrix, quantizes_by_every_name_and_halves_the_usual_group) {
  const CContext context = c_context();
  const std::vector<float> numbers(4 * 96, 0.5f);
  auto quantizer = c_struct<subbyte_quantizer>();
  subbyte_matrix* made = nullptr;
  for (const char* const name : {"u4", "w4a16", "i4 g32 scale f16"}) {
    quantizer.format = name;
    ASSERT_EQ(subbyte_matrix_quantize(context.get(), &quantizer, numbers.data(), SUBBYTE_F32, 4, 96,
                                      &made),
              SUBBYTE_OK)
        << name << ": " << subbyte_last_error();
    const CMatrix matrix(made);
    auto described = c_struct<subbyte_weights>();
    ASSERT_EQ(subbyte_matrix_describe(made, &described), SUBBYTE_OK);
    EXPECT_EQ(described.element, *name == 'u' ? SUBBYTE_U4 : SUBBYTE_I4) << name;
    EXPECT_EQ(described.group_size, 32) << name;
  }
}

TEST(CMatrix, says_what_is_lost_in_rounding) {
  const CContext context = c_context();
  for (const float size : {1e-30f, 1.0f, 1e30f}) {
    const std::vector<float> numbers(4 * 128, size);
    for (const char* format : {"awq", "gptq", "nvfp4", "nf4", "kbit"}) {
      auto quantizer = c_struct<subbyte_quantizer>();
      quantizer.format = format;
      subbyte_matrix* made = nullptr;
      const std::string code = code_of(subbyte_matrix_quantize(
          context.get(), &quantizer, numbers.data(), SUBBYTE_F32, 4, 128, &made));
      const CMatrix matrix(made);
      // AWQ and GPTQ have scales in f16, the others a factor or scales in f32.
      const bool is_f16 = *format == 'a' || *format == 'g';
      if (is_f16 && size != 1) {
        EXPECT_EQ(code, size < 1 ? "quantize.loss" : "quantize.scale_overflow") << format;
        continue;
      }
      ASSERT_EQ(code, "ok") << format << ' ' << size << ": " << subbyte_last_error();
      float first[4 * 128];
      ASSERT_EQ(subbyte_matrix_dequantize(made, SUBBYTE_F32, first, nullptr), SUBBYTE_OK);
      EXPECT_NEAR(first[0] / size, 1, 0.2) << format << ' ' << size;
    }
  }
}

TEST(CMatrix, describes_without_a_handle_what_it_dequantizes) {
  const CContext context = c_context();
  const RandomMatrix random = random_matrix(kInt4, 3, 64, Contents::kReal, 21);
  const subbyte_weights w = c_weights(random.view);
  std::vector<float> out(3 * 64), expected(3 * 64);
  ASSERT_EQ(subbyte_dequantize(context.get(), &w, SUBBYTE_F32, out.data(), nullptr), SUBBYTE_OK);
  const CMatrix matrix = c_matrix(context, w);
  ASSERT_EQ(subbyte_matrix_dequantize(matrix.get(), SUBBYTE_F32, expected.data(), nullptr),
            SUBBYTE_OK);
  EXPECT_EQ(out, expected);
  EXPECT_EQ(code_of(subbyte_dequantize(context.get(), &w, SUBBYTE_U4, out.data(), nullptr)),
            "c.argument");
}

TEST(CMatrix, takes_scales_of_two_levels) {
  const CContext context = c_context();
  const WeightFormat format = {Format::kU4, Format::kU6, Zero::kOffsetU6, 32};
  const RandomMatrix random = random_matrix(format, 3, 320, Contents::kReal, 8);
  auto w = c_weights(random.view);
  const CMatrix matrix = c_matrix(context, w);
  std::vector<float> weights(3 * 320);
  ASSERT_EQ(subbyte_matrix_dequantize(matrix.get(), SUBBYTE_F32, weights.data(), nullptr),
            SUBBYTE_OK);
  for (int64_t i = 0; i < 3 * 320; ++i) {
    EXPECT_EQ(weights[static_cast<std::size_t>(i)],
              static_cast<float>(weight_at(random.view, i / 320, i % 320)));
  }
  subbyte_matrix* made = nullptr;
  w.group_size = 24;
  EXPECT_EQ(code_of(subbyte_matrix_create(context.get(), &w, nullptr, &made)), "c.argument");
}

TEST(CMatrix, refuses_null_for_every_address) {
  const CContext context = c_context();
  const RandomMatrix random = random_matrix(kInt4, 2, 64, Contents::kExact, 3);
  const subbyte_weights w = c_weights(random.view);
  const CMatrix matrix = c_matrix(context, w);
  subbyte_matrix* made = nullptr;
  auto described = c_struct<subbyte_weights>();
  auto quantizer = c_struct<subbyte_quantizer>();
  quantizer.format = "awq";
  std::vector<float> numbers(128);
  int64_t bytes = 0;
  expect_nulls_refused("create", &subbyte_matrix_create, {2}, {context.get(), &w, nullptr, &made});
  expect_nulls_refused("to_gpu", &subbyte_matrix_to_gpu, {3}, {matrix.get(), 0, 0, nullptr, &made});
  expect_nulls_refused("describe", &subbyte_matrix_describe, {}, {matrix.get(), &described});
  expect_nulls_refused("bytes", &subbyte_matrix_bytes, {}, {matrix.get(), &bytes});
  expect_nulls_refused("quantize", &subbyte_matrix_quantize, {},
                       {context.get(), &quantizer, numbers.data(), SUBBYTE_F32, 2, 64, &made});
  expect_nulls_refused("matrix_dequantize", &subbyte_matrix_dequantize, {3},
                       {matrix.get(), SUBBYTE_F32, numbers.data(), nullptr});
  expect_nulls_refused("dequantize", &subbyte_dequantize, {4},
                       {context.get(), &w, SUBBYTE_F32, numbers.data(), nullptr});
}

TEST(CMatrix, outlives_its_context) {
  const RandomMatrix random = random_matrix(kInt4, 2, 64, Contents::kExact, 3);
  CContext context = c_context();
  const CMatrix matrix = c_matrix(context, c_weights(random.view));
  context.reset();
  expect_weights(matrix.get(), random.view);
}

}  // namespace
}  // namespace subbyte::testing
