#include "checkpoints/named_form.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace subbyte {
namespace {

Result<NamedForm> form_of(std::string_view name, int64_t cols, WeightQuantization asked = {}) {
  asked.format = name;
  return named_form(asked, cols);
}

std::string text_of(std::string_view name, int64_t cols, const WeightQuantization& asked = {}) {
  const auto named = form_of(name, cols, asked);
  return named.ok() ? to_string(named->weights()) : to_string(named.error());
}

TEST(NamedForm, is_that_of_names_elements_and_texts) {
  const std::pair<const char*, const char*> usual[] = {
      {"awq", "u4 g128 scale f16 zero u8"}, {"gptq", "i4 g128 scale f16"},
      {"W4A16", "i4 g128 scale f16"},       {"int8", "i8 per row scale f16"},
      {"mxfp4", "e2m1 g32 scale e8m0"},     {"nvfp4", "e2m1 g16 scale e4m3"},
      {"nf4", "nf4 g64 scale f32"},         {"fp8", "e4m3 g128 scale f32"},
      {"kbit", "nfl4 g32 scale e4m4"},      {"kbit3", "nfl3 g32 scale e4m4"},
      {"u5", "u5 g128 scale f16 zero u8"},  {"u8", "u8 g128 scale f16 zero u16"},
      {"i4", "i4 g128 scale f16"},          {"nfl2", "nfl2 g32 scale e4m4"}};
  for (const auto& [name, text] : usual) {
    EXPECT_EQ(text_of(name, 256), text) << name;
    EXPECT_EQ(text_of(text, 256), text) << name;
  }
}

TEST(NamedForm, halves_a_group_that_nobody_asked_for) {
  EXPECT_EQ(form_of("u4", 96)->form.group_size, 32);
  EXPECT_EQ(form_of("i3", 40)->form.group_size, 8);
  EXPECT_EQ(form_of("awq", 192)->form.group_size, 64);
  EXPECT_EQ(form_of("nf4", 96)->form.group_size, 32);
  // Nothing is halved below what a format has, to what divides nothing, or where it was asked for.
  EXPECT_EQ(form_of("gptq", 40)->form.group_size, 16);
  EXPECT_EQ(form_of("u4", 41)->form.group_size, 8);
  EXPECT_EQ(form_of("u4", 96, {.group_size = 128})->form.group_size, 128);
  EXPECT_EQ(form_of("u4 g128 scale f16 zero u8", 96)->form.group_size, 128);
  EXPECT_EQ(form_of("fp8", 96)->form.group_size, 128);  // whose last group may be short
  EXPECT_EQ(form_of("int8", 41)->form.group_size, 0);
}

TEST(NamedForm, takes_what_is_asked_for_and_refuses_what_a_text_says_otherwise) {
  EXPECT_EQ(text_of("gptq", 256, {.bits = 3, .group_size = 64, .symmetric = false}),
            "u3 g64 scale f16 zero u8");
  EXPECT_EQ(text_of("u4", 256, {.group_size = -1}), "u4 per row scale f16 zero u8");
  EXPECT_EQ(form_of("u4", 256, {.bits = 3}).error().code, "quantize.bits");
  EXPECT_EQ(form_of("u4", 256, {.symmetric = true}).error().code, "quantize.symmetry");
  EXPECT_EQ(form_of("i4 g32 scale f16", 256, {.group_size = 64}).error().code,
            "quantize.group_size");
  EXPECT_EQ(form_of("mxfp4", 256, {.group_size = 64}).error().code, "quantize.group_size");
}

TEST(NamedForm, says_what_is_meant_by_names_of_others) {
  EXPECT_EQ(text_of("int4", 256),
            "no format \"int4\" here: integers of 4 bits are awq, gptq or w4a16 "
            "(compressed-tensors) [quantize.format]");
  for (const char* const name : {"nf5", "e2m1", "bf16 g32 scale f16", "i4 g32 scale f16 offset f16",
                                 "u4 g9 scale f16 zero u8", "vq2 g32 scale e4m4", ""}) {
    EXPECT_EQ(form_of(name, 256).error().code, "quantize.format") << name;
  }
}

TEST(QuantizeWeights, names_what_a_format_lacks) {
  constexpr int64_t kRows = 4;
  constexpr int64_t kCols = 128;
  const std::vector<float> weights(kRows * kCols, 0.5f);
  const auto code_of = [&](const WeightQuantization& how, int64_t cols = 128) {
    const auto made = quantize_weights(weights, kRows, cols, how);
    return made.ok() ? "none" : std::string(made.error().code);
  };
  EXPECT_EQ(code_of({.format = "none"}), "quantize.format");
  EXPECT_EQ(code_of({.format = "awq", .bits = 3}), "quantize.bits");
  EXPECT_EQ(code_of({.format = "gptq", .group_size = 48}), "quantize.group_size");
  EXPECT_EQ(code_of({.format = "gptq", .group_size = 1024}), "quantize.shape");
  EXPECT_EQ(code_of({.format = "mxfp4", .symmetric = false}), "quantize.symmetry");
  EXPECT_EQ(code_of({.format = "awq"}, kCols + 1), "quantize.shape");
  EXPECT_EQ(code_of({.format = "awq"}, -1), "quantize.shape");
}

TEST(QuantizeWeights, takes_every_name_and_halves_the_usual_group) {
  const std::vector<float> weights(4 * 96, 0.5f);
  for (const char* const name : {"u4", "i3", "awq", "w4a16", "nf4", "kbit", "mxfp4"}) {
    const auto named = form_of(name, 96);
    const auto made = quantize_weights(weights, 4, 96, {.format = name});
    ASSERT_TRUE(made.ok()) << name << ": " << to_string(made.error());
    EXPECT_EQ(to_string(made->view.format), to_string(named->weights())) << name;
  }
  EXPECT_EQ(quantize_weights(weights, 4, 96, {.format = "u4"})->view.format.group_size, 32);
}

}  // namespace
}  // namespace subbyte
