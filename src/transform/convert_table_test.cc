// Every format into every other: what is lossless, what comes back to the byte, and what is refused
// with which code. docs/conversions.md has the table that comes out.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include "support/paths.h"
#include "support/quantized_model.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using testing::Contents;
using testing::random_matrix;
using testing::RandomMatrix;

enum class Zeros : uint8_t { kMiddle, kFrom1To15, kFrom0To15 };

struct Row {
  std::string title;
  std::string exporter;
  WeightFormat format;
  Zeros zeros = Zeros::kMiddle;
  double factor = 1;
  bool act_order = false;
  int experts = 1;
  bool wide_scales = false;  // E8M0 of more binades than E4M3 has
};

constexpr WeightFormat kU4 = {Format::kU4, Format::kF16, Zero::kU8, 32};
constexpr WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
constexpr WeightFormat kNvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};

WeightFormat integers(Format element, Format scale, int64_t group_size) {
  return {element, scale, Zero::kNone, group_size};
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"awq", "awq", kU4, Zeros::kFrom1To15},
      {"awq, zero points 0", "awq", kU4, Zeros::kFrom0To15},
      {"awq, symmetric", "awq", kU4},
      {"gptq, symmetric", "gptq", kU4},
      {"gptq, asymmetric", "gptq", kU4, Zeros::kFrom1To15},
      {"gptq, act-order", "gptq", kU4, Zeros::kMiddle, 1, true},
      {"gptq, 3 bits", "gptq", {Format::kU3, Format::kF16, Zero::kU8, 32}},
      {"gptq_v2, 8 bits", "gptq_v2", {Format::kU8, Format::kF16, Zero::kU16, 0}},
      {"pack_quantized, symmetric", "pack_quantized", integers(Format::kI4, Format::kF16, 32)},
      {"pack_quantized, bf16 scales", "pack_quantized", integers(Format::kI4, Format::kBF16, 32)},
      {"pack_quantized, f32 scales", "pack_quantized", integers(Format::kI4, Format::kF32, 32)},
      {"pack_quantized, asymmetric", "pack_quantized", kU4, Zeros::kFrom0To15},
      {"pack_quantized_lanes, act-order", "pack_quantized_lanes", kU4, Zeros::kFrom1To15, 1, true},
      {"pack_quantized, 5 bits", "pack_quantized", integers(Format::kI5, Format::kF16, 32)},
      {"pack_quantized_lanes, 3 bits", "pack_quantized_lanes",
       integers(Format::kI3, Format::kF16, 0)},
      {"nvfp4, divided by 8", "nvfp4_pack_quantized", kNvfp4, Zeros::kMiddle, 0.125},
      {"nvfp4, divided by 3", "nvfp4_pack_quantized", kNvfp4, Zeros::kMiddle, 1 / 3.0},
      {"modelopt, times 1/8", "modelopt_nvfp4", kNvfp4, Zeros::kMiddle, 0.125},
      {"modelopt, times 3", "modelopt_nvfp4", kNvfp4, Zeros::kMiddle, 3},
      {"mxfp4 of compressed-tensors", "mxfp4_pack_quantized", kMxfp4},
      {"mxfp4, experts", "mxfp4", kMxfp4, Zeros::kMiddle, 1, false, 3},
      {"mxfp4, scales of 20 binades", "mxfp4", kMxfp4, Zeros::kMiddle, 1, false, 3, true},
      {"fp8, blocks", "fp8", {Format::kE4M3, Format::kBF16, Zero::kNone, 128}},
      {"float_quantized, rows", "float_quantized", {Format::kE4M3, Format::kF32, Zero::kNone, 0}},
      {"bnb_nf4", "bnb_nf4", {Format::kNF4, Format::kF32, Zero::kNone, 64}},
      {"kbit, 3 bits",
       "kbit",
       {Format::kNFL3, Format::kE4M4, Zero::kNone, 32},
       Zeros::kMiddle,
       0.5},
      {"vq, 2 bits", "vq", {Format::kVQ2, Format::kE4M4, Zero::kNone, 32}, Zeros::kMiddle, 0.5},
      {"vq, 4 bits, rotated", "vq", {Format::kVQ4, Format::kE4M4, Zero::kNone, 32, 64}},
      {"f32", "f32", {Format::kF32, Format::kNone, Zero::kNone, 0}},
      {"bf16", "bf16", {Format::kBF16, Format::kNone, Zero::kNone, 0}},
      {"f16", "f16", {Format::kF16, Format::kNone, Zero::kNone, 0}}};
  return all;
}

/// Formats as convert names them, without the alias, and as the table heads its columns.
std::vector<std::string> targets() {
  std::vector<std::string> names = conversion_formats();
  std::erase(names, "compressed-tensors");
  std::erase(names, "ak48");  // whole models of Qwen3 only: convert_orin_test
  std::erase(names, "gguf");  // whole models, too: gguf_written_test
  return names;
}

void set_zeros(const Row& row, RandomMatrix& matrix, Random& random) {
  const int width = zero_bytes(row.format.zero);
  if (width == 0) return;
  for (std::size_t i = 0; i < matrix.zeros->span().size() / width; ++i) {
    uint64_t zero = uint64_t{1} << (info(row.format.element).bits - 1);
    if (row.zeros == Zeros::kFrom1To15) zero = 1 + random.below(15);
    if (row.zeros == Zeros::kFrom0To15) zero = random.below(16);
    std::memcpy(matrix.zeros->data() + i * width, &zero, width);
  }
}

/// All rows of a block have the same.
void share_scales(RandomMatrix& matrix) {
  const auto row_bytes =
      static_cast<std::size_t>(matrix.view.groups() * info(matrix.view.format.scale).bits / 8);
  std::byte* const scales = matrix.scales->data();
  for (int64_t n = 1; n < matrix.view.rows; ++n) {
    std::memcpy(scales + static_cast<std::size_t>(n) * row_bytes, scales, row_bytes);
  }
}

RandomMatrix matrix_of(const Row& row, int64_t out, int64_t in, uint64_t seed,
                       const std::vector<uint32_t>& order) {
  Random random(seed);
  RandomMatrix matrix = random_matrix(row.format, out, in, Contents::kReal, seed);
  set_zeros(row, matrix, random);
  if (row.format.scale == Format::kE8M0) {
    for (std::size_t i = 0; i < matrix.scales->span().size(); ++i) {
      matrix.scales->data()[i] = std::byte(118 + (row.wide_scales ? i % 20 : i % 8));
    }
  }
  if (row.format.element == Format::kE4M3 && row.format.group_size != 0) {
    share_scales(matrix);
  }
  matrix.view.tensor_scale = row.factor;
  if (row.act_order) matrix.view.input_order = order;
  return matrix;
}

/// A model of one row; `order` holds what its views refer to.
QuantizedModel model_of(const Row& row, std::vector<uint32_t>& order) {
  constexpr int64_t kOut = 64;
  constexpr int64_t kIn = 128;
  Random random(5);
  order.resize(kIn);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t k = kIn - 1; k > 0; --k) std::swap(order[k], order[random.below(k + 1)]);
  // As a file would say it: inputs of a group in their order.
  for (int64_t k = 0; k < kIn; k += 32) std::sort(order.begin() + k, order.begin() + k + 32);
  QuantizedModel model = {row.exporter, {}};
  if (row.experts > 1) {
    for (const char* name : {"gate_up_proj", "down_proj"}) {
      ModelModule& module = model.modules.emplace_back();
      module.name = fmt::format("model.layers.0.mlp.experts.{}", name);
      for (int e = 0; e < row.experts; ++e) {
        module.matrices.push_back(matrix_of(row, kOut, kIn, model.modules.size() * 10 + e, order));
      }
    }
    return model;
  }
  // Experts with names of their own are part of what every flavour may hold.
  for (const char* name : {"self_attn.q_proj", "mlp.experts.0.up_proj", "mlp.experts.1.up_proj"}) {
    ModelModule& module = model.modules.emplace_back();
    module.name = fmt::format("model.layers.0.{}", name);
    module.matrices.push_back(matrix_of(row, kOut, kIn, 100 + model.modules.size(), order));
  }
  return model;
}

/// Modules of experts as one stack, where a conversion joined them.
QuantizedModel joined(QuantizedModel model) {
  ModelModule stack;
  stack.name = "model.layers.0.mlp.experts.up_proj";
  for (std::size_t i = 1; i < model.modules.size(); ++i) {
    stack.matrices.push_back(std::move(model.modules[i].matrices.front()));
  }
  model.modules.resize(1);
  model.modules.push_back(std::move(stack));
  return model;
}

Result<ConvertReport> convert(const fs::path& from, const fs::path& to, const std::string& format,
                              int threads = 2) {
  ThreadPool pool(threads);
  return convert_model(from, to, {.format = format}, pool);
}

bool same_tensors(const fs::path& a, const fs::path& b) {
  const auto first = TensorSource::open(a);
  const auto second = TensorSource::open(b);
  if (!first.ok() || !second.ok()) return false;
  return std::ranges::equal(first->tensors(), second->tensors(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.dtype == y.second.dtype &&
           x.second.shape == y.second.shape && std::ranges::equal(x.second.bytes, y.second.bytes);
  });
}

/// One cell: "bytes" when all weights are kept and the way back gives the same tensors, "values"
/// when the weights are kept, else the code of the refusal.
std::string outcome(const Row& row, const std::string& target) {
  const TempDir folder;
  std::vector<uint32_t> order;
  QuantizedModel model = model_of(row, order);
  write_model(model, folder, "source");
  const auto report = convert(folder / "source", folder / "target", target);
  if (!report.ok()) {
    EXPECT_EQ(folder.names(), (std::set<std::string>{"source"}));
    return std::string(report.error().code);
  }
  EXPECT_EQ(report->rounded_matrices, 0);
  EXPECT_EQ(report->loss.unequal, 0);
  const bool dense = find_exporter(row.exporter) == nullptr;
  const bool joins =
      row.experts == 1 && target.starts_with("mxfp4") && !target.ends_with("_pack_quantized");
  const bool back = convert(folder / "target", folder / "back", row.exporter).ok();
  const bool bytes = back && same_tensors(folder / "source", folder / "back");
  if (back) expect_weights_of(model, folder / "back", !dense);
  if (joins) model = joined(std::move(model));
  expect_weights_of(model, folder / "target", !dense);
  return bytes ? "bytes" : "values";
}

/// The lines of the table with its legend.
std::string make_table() {
  std::map<std::string, char> letters;
  std::string text = "|from \\ to|";
  for (const std::string& target : targets()) text += fmt::format("{}|", target);
  text += "\n|---|";
  for (std::size_t i = 0; i < targets().size(); ++i) text += "---|";
  text += "\n";
  for (const Row& row : rows()) {
    text += fmt::format("|{}|", row.title);
    for (const std::string& target : targets()) {
      const std::string cell = outcome(row, target);
      if (cell == "bytes" || cell == "values") {
        text += cell == "bytes" ? "**B**|" : "**V**|";
        continue;
      }
      const auto letter = letters.try_emplace(cell, static_cast<char>('a' + letters.size())).first;
      text += fmt::format("{}|", letter->second);
    }
    text += "\n";
  }
  text += "\n";
  for (char c = 'a'; c < 'a' + static_cast<char>(letters.size()); ++c) {
    for (const auto& [code, letter] : letters) {
      if (letter == c) text += fmt::format("- {}: `{}`\n", letter, code);
    }
  }
  return text;
}

TEST(ConvertTable, is_what_the_documentation_says) {
  std::ifstream file(std::string(SUBBYTE_TEST_DATA) + "/../../docs/conversions.md");
  ASSERT_TRUE(file.is_open());
  std::stringstream buffer;
  buffer << file.rdbuf();
  const std::string text = buffer.str();
  const std::string begin = "<!-- table: convert_table_test -->\n";
  const std::string end = "<!-- end -->";
  const std::size_t first = text.find(begin);
  const std::size_t last = text.find(end);
  ASSERT_TRUE(first != std::string::npos && last != std::string::npos);
  EXPECT_EQ(text.substr(first + begin.size(), last - first - begin.size()), make_table());
}

TEST(ConvertTable, same_bytes_for_any_number_of_threads) {
  for (const auto& [title, target] :
       std::map<std::string, std::string>{{"gptq, act-order", "pack_quantized_lanes"},
                                          {"pack_quantized, asymmetric", "awq"},
                                          {"mxfp4, experts", "nvfp4_pack_quantized"},
                                          {"pack_quantized, 5 bits", "f32"}}) {
    const TempDir folder;
    std::vector<uint32_t> order;
    const auto row = std::ranges::find(rows(), title, &Row::title);
    ASSERT_NE(row, rows().end()) << title;
    write_model(model_of(*row, order), folder, "source");
    for (const int threads : {1, 2, 8}) {
      const auto report =
          convert(folder / "source", folder / std::to_string(threads), target, threads);
      ASSERT_TRUE(report.ok()) << report.error().message;
    }
    for (const char* name : {"model.safetensors", "config.json"}) {
      const std::string one = folder.read(std::string("1/") + name);
      EXPECT_FALSE(one.empty());
      EXPECT_EQ(one, folder.read(std::string("2/") + name)) << title;
      EXPECT_EQ(one, folder.read(std::string("8/") + name)) << title;
    }
  }
}

}  // namespace
}  // namespace subbyte
