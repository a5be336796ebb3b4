#include "checkpoints/exporter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "base/random.h"
#include "base/thread_pool.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/integer_config.h"
#include "checkpoints/importer.h"
#include "json/strict_json.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_names.h"
#include "support/test_tensors.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char* exporter;
  int bits;
  int64_t rows;
  int64_t cols;
  int64_t group_size;  // -1: one group
  bool act_order = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.exporter << " " << c.bits << " bits [" << c.rows << "][" << c.cols << "] group "
             << c.group_size << (c.act_order ? " act-order" : "");
}

std::vector<int32_t> group_indices(Random& random, const Case& c) {
  std::vector<int32_t> groups(c.cols);
  const int64_t size = c.group_size == -1 ? c.cols : c.group_size;
  for (int64_t k = 0; k < c.cols; ++k) groups[k] = static_cast<int32_t>(k / size);
  if (c.act_order) {
    for (int64_t k = c.cols - 1; k > 0; --k) std::swap(groups[k], groups[random.below(k + 1)]);
  }
  return groups;
}

/// The tensors of module "m" with arbitrary contents, straight from the layouts.
std::vector<TestTensor> tensors_of(const Case& c, uint64_t seed) {
  Random random(seed);
  const uint64_t rows = c.rows;
  const uint64_t cols = c.cols;
  const uint64_t groups = c.group_size == -1 ? 1 : c.cols / c.group_size;
  const bool awq = std::string_view(c.exporter) == "awq";
  const Shape qweight = awq ? Shape{cols, rows / 8} : Shape{cols * c.bits / 32, rows};
  std::vector<TestTensor> tensors;
  tensors.push_back(random_bits("m.qweight", DType::kI32, qweight, random));
  tensors.push_back(random_bits("m.qzeros", DType::kI32, {groups, rows * c.bits / 32}, random));
  tensors.push_back(random_floats("m.scales", DType::kF16, {groups, rows}, random));
  if (!awq) tensors.push_back(int32_tensor("m.g_idx", {cols}, group_indices(random, c)));
  return tensors;
}

QuantizationConfig config_of(const Case& c) {
  QuantizationConfig config;
  const IntegerSizes sizes = {{c.bits}, {c.group_size}};
  if (std::string_view(c.exporter) == "awq") {
    auto state = std::make_shared<AwqState>();
    state->sizes = sizes;
    config.flavour = &awq_flavour;
    config.state = state;
  } else {
    auto state = std::make_shared<GptqState>();
    state->sizes = sizes;
    state->stores_zero_minus_one = std::string_view(c.exporter) == "gptq";
    config.flavour = &gptq_flavour;
    config.state = state;
  }
  return config;
}

/// Imports `module`, exports it and compares every tensor with that of the source.
void expect_round_trip(const TensorSource& source, const QuantizationConfig& config,
                       std::string_view exporter_name, const std::string& module) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    auto matrix = import_matrix({source, config, pool}, module);
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    const Exporter* exporter = find_exporter(exporter_name);
    ASSERT_NE(exporter, nullptr);
    const auto exported = exporter->write(matrix->view, module, pool);
    ASSERT_TRUE(exported.ok()) << exported.error().message;
    std::size_t compared = 0;
    for (const ExportedTensor& tensor : *exported) {
      const FileTensor* original = source.find(module + std::string(tensor.suffix));
      ASSERT_NE(original, nullptr) << tensor.suffix;
      EXPECT_EQ(tensor.dtype, original->dtype);
      EXPECT_EQ(tensor.shape, original->shape) << tensor.suffix;
      EXPECT_TRUE(std::ranges::equal(tensor.bytes, original->bytes)) << module << tensor.suffix;
      ++compared;
    }
    const auto of_module = std::ranges::count_if(
        source.tensors(), [&](const auto& entry) { return entry.first.starts_with(module + "."); });
    EXPECT_EQ(compared, static_cast<std::size_t>(of_module));
  }
}

class ExporterRoundTrip : public ::testing::TestWithParam<Case> {};

TEST_P(ExporterRoundTrip, gives_the_bytes_that_were_imported) {
  const Case& c = GetParam();
  const TempDir directory;
  ASSERT_TRUE(write_tensors(directory / "model.safetensors", tensors_of(c, 17)).ok());
  const auto source = TensorSource::open(directory.path());
  ASSERT_TRUE(source.ok()) << source.error().message;
  expect_round_trip(*source, config_of(c), c.exporter, "m");
}

INSTANTIATE_TEST_SUITE_P(
    flavours, ExporterRoundTrip,
    ::testing::Values(Case{"awq", 4, 8, 8, -1}, Case{"awq", 4, 136, 256, 128},
                      Case{"awq", 4, 264, 96, 32}, Case{"gptq", 2, 32, 64, 32},
                      Case{"gptq", 2, 48, 96, -1}, Case{"gptq", 3, 32, 64, 32},
                      Case{"gptq", 3, 96, 128, 64}, Case{"gptq", 4, 8, 8, -1},
                      Case{"gptq", 4, 136, 256, 128}, Case{"gptq", 8, 36, 64, 16},
                      Case{"gptq_v2", 2, 32, 64, 32}, Case{"gptq_v2", 3, 64, 96, 32},
                      Case{"gptq_v2", 4, 72, 128, 32}, Case{"gptq_v2", 8, 40, 64, -1},
                      Case{"gptq", 3, 32, 32, 32}, Case{"gptq_v2", 3, 32, 160, -1},
                      Case{"gptq", 8, 8, 96, 32}, Case{"gptq_v2", 8, 4, 8, 8},
                      Case{"gptq_v2", 2, 16, 16, 16}, Case{"gptq", 2, 16, 48, 16, true},
                      Case{"gptq_v2", 2, 48, 96, 32, true}, Case{"gptq_v2", 3, 32, 160, 32, true},
                      Case{"gptq_v2", 8, 8, 96, 32, true}, Case{"gptq", 4, 8, 48, 16, true},
                      Case{"gptq", 2, 32, 128, 32, true}, Case{"gptq", 3, 64, 96, 32, true},
                      Case{"gptq_v2", 4, 72, 128, 32, true}, Case{"gptq", 8, 36, 64, 16, true}),
    NamedByValue());

struct Golden {
  const char* directory;
  const char* exporter;
};

std::ostream& operator<<(std::ostream& out, const Golden& golden) {
  return out << golden.directory << " " << golden.exporter;
}

class ExporterGolden : public ::testing::TestWithParam<Golden> {};

TEST_P(ExporterGolden, gives_the_bytes_of_a_file_that_other_tools_wrote) {
  const fs::path directory = fs::path(SUBBYTE_TEST_DATA) / "goldens" / GetParam().directory;
  const std::string where = (directory / "config.json").string();
  const auto value = json::parse_file(where, 1 << 20);
  ASSERT_TRUE(value.ok()) << value.error().message;
  const auto object = json::Object::of(*value, where);
  const auto config = read_quantization_config(*object, directory);
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto source = TensorSource::open(directory);
  ASSERT_TRUE(source.ok()) << source.error().message;
  for (const char* module : {"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
                             "model.layers.1.mlp.gate_proj", "model.layers.1.mlp.down_proj"}) {
    expect_round_trip(*source, *config, GetParam().exporter, module);
  }
}

INSTANTIATE_TEST_SUITE_P(goldens, ExporterGolden,
                         ::testing::Values(Golden{"qwen3-awq", "awq"},
                                           Golden{"qwen3-gptq-v1", "gptq"},
                                           Golden{"qwen3-gptq-v2", "gptq_v2"},
                                           Golden{"qwen3-gptq-act-order", "gptq"}),
                         NamedByValue());

TEST(exporter, gives_the_experts_of_a_file_that_other_tools_wrote) {
  const auto source = TensorSource::open(fs::path(SUBBYTE_TEST_DATA) / "goldens/gpt-oss-mxfp4");
  ASSERT_TRUE(source.ok()) << source.error().message;
  QuantizationConfig config;
  config.flavour = find_flavour("mxfp4");
  ThreadPool pool(2);
  for (const std::string name : {"gate_up_proj", "down_proj"}) {
    const std::string module = "model.layers.0.mlp.experts." + name;
    const auto experts = import_experts({*source, config, pool}, module);
    ASSERT_TRUE(experts.ok()) << experts.error().message;
    EXPECT_GT(experts->size(), 1u);
    const auto written = find_exporter("mxfp4")->write_experts(*experts, module, pool);
    ASSERT_TRUE(written.ok()) << written.error().message;
    for (const ExportedTensor& tensor : *written) {
      const FileTensor* original = source->find(module + std::string(tensor.suffix));
      ASSERT_NE(original, nullptr) << tensor.suffix;
      EXPECT_EQ(tensor.shape, original->shape);
      EXPECT_TRUE(std::ranges::equal(tensor.bytes, original->bytes)) << tensor.suffix;
    }
  }
}

/// A matrix of zero codes with one zero point everywhere.
struct Plain {
  std::vector<std::byte> codes, scales, zeros;
  MatrixView view;

  Plain(const WeightFormat& format, int64_t rows, int64_t cols, uint16_t zero) {
    view.format = format;
    view.rows = rows;
    view.cols = cols;
    codes.resize(rows * view.row_bytes());
    scales.resize(rows * view.groups() * (info(format.scale).bits / 8));
    const int width = zero_bytes(format.zero);
    zeros.resize(rows * view.groups() * width);
    for (int64_t i = 0; i < rows * view.groups(); ++i) {
      std::memcpy(zeros.data() + i * width, &zero, width);
    }
    view.codes = codes;
    view.scales = scales;
    view.zeros = zeros;
  }
};

const WeightFormat kFourBits = {Format::kU4, Format::kF16, Zero::kU8, 32};
const WeightFormat kEightBits = {Format::kU8, Format::kF16, Zero::kU16, 32};

std::string_view code_of(const char* exporter, const MatrixView& view) {
  ThreadPool pool(1);
  const auto result = find_exporter(exporter)->write(view, "m", pool);
  return result.ok() ? "ok" : result.error().code;
}

TEST(exporter, three_bits_of_gptq_lie_in_a_stream) {
  // Codes k % 8 of 32 inputs are the octal digits 76543210 from the lowest up, four times: 0xFAC688
  // in each 24 bits, so that code 10 (2) crosses from word 0 into word 1. Zero points 1 are stored
  // as 0 by version 1 and as 001 001 ... by version 2.
  Plain plain({Format::kU3, Format::kF16, Zero::kU8, 32}, 32, 32, 1);
  for (std::size_t i = 0; i < plain.codes.size(); ++i) {
    plain.codes[i] = std::byte(0xFAC688u >> (8 * (i % 3)));
  }
  ThreadPool pool(1);
  const auto word = [](const ExportedTensor& tensor, std::size_t index) {
    uint32_t value = 0;
    std::memcpy(&value, tensor.bytes.data() + 4 * index, 4);
    return value;
  };
  for (const char* name : {"gptq", "gptq_v2"}) {
    const auto written = find_exporter(name)->write(plain.view, "m", pool);
    ASSERT_TRUE(written.ok());
    const ExportedTensor& qweight = (*written)[1];
    const ExportedTensor& qzeros = (*written)[2];
    ASSERT_EQ(qweight.suffix, ".qweight");
    ASSERT_EQ(qweight.shape, (Shape{3, 32}));
    ASSERT_EQ(qzeros.shape, (Shape{1, 3}));
    for (const std::size_t n : {0, 17, 31}) {
      EXPECT_EQ(word(qweight, n), 0x88FAC688u);
      EXPECT_EQ(word(qweight, 32 + n), 0xC688FAC6u);
      EXPECT_EQ(word(qweight, 64 + n), 0xFAC688FAu);
    }
    const bool v1 = std::string_view(name) == "gptq";
    EXPECT_EQ(word(qzeros, 0), v1 ? 0u : 0x49249249u);
    EXPECT_EQ(word(qzeros, 1), v1 ? 0u : 0x92492492u);
    EXPECT_EQ(word(qzeros, 2), v1 ? 0u : 0x24924924u);
  }
}

TEST(exporter, refuses_zero_points_that_cannot_be_stored) {
  EXPECT_EQ(code_of("awq", Plain(kFourBits, 8, 32, 15).view), "ok");
  EXPECT_EQ(code_of("awq", Plain(kFourBits, 8, 32, 16).view), "export.zero_range");
  EXPECT_EQ(code_of("gptq", Plain(kFourBits, 8, 32, 0).view), "export.zero_range");
  EXPECT_EQ(code_of("gptq", Plain(kFourBits, 8, 32, 1).view), "ok");
  EXPECT_EQ(code_of("gptq", Plain(kFourBits, 8, 32, 16).view), "ok");
  EXPECT_EQ(code_of("gptq", Plain(kFourBits, 8, 32, 17).view), "export.zero_range");
  EXPECT_EQ(code_of("gptq_v2", Plain(kFourBits, 8, 32, 0).view), "ok");
  EXPECT_EQ(code_of("gptq_v2", Plain(kFourBits, 8, 32, 16).view), "export.zero_range");
  EXPECT_EQ(code_of("gptq", Plain(kEightBits, 8, 32, 256).view), "ok");
  EXPECT_EQ(code_of("gptq_v2", Plain(kEightBits, 8, 32, 256).view), "export.zero_range");
}

TEST(exporter, refuses_what_the_flavour_cannot_hold) {
  EXPECT_EQ(code_of("awq", Plain(kFourBits, 12, 32, 8).view), "export.shape");
  EXPECT_EQ(code_of("awq", Plain(kFourBits, 8, 48, 8).view), "export.shape");
  EXPECT_EQ(code_of("awq", Plain(kEightBits, 8, 32, 8).view), "export.format");
  EXPECT_EQ(code_of("gptq", Plain(kFourBits, 12, 32, 8).view), "export.shape");
  EXPECT_EQ(code_of("gptq", Plain({Format::kU3, Format::kF16, Zero::kU8, 32}, 8, 32, 4).view),
            "export.shape");
  for (const char* name : {"gptq", "gptq_v2"}) {
    for (const auto& [size, code] : std::map<int64_t, std::string>{{0, "ok"},
                                                                   {8, "export.group_size"},
                                                                   {16, "ok"},
                                                                   {24, "export.group_size"},
                                                                   {64, "ok"},
                                                                   {1024, "ok"},
                                                                   {2048, "export.group_size"}}) {
      const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, size};
      EXPECT_EQ(code_of(name, Plain(format, 8, 6144, 8).view), code) << size;
    }
  }
  EXPECT_EQ(code_of("gptq", Plain({Format::kU4, Format::kE4M3, Zero::kU8, 32}, 8, 32, 8).view),
            "export.format");
  Plain ordered(kFourBits, 8, 64, 8);
  std::vector<uint32_t> order(64);
  std::iota(order.rbegin(), order.rend(), 0u);
  ordered.view.input_order = order;
  EXPECT_EQ(code_of("awq", ordered.view), "export.act_order");
  EXPECT_EQ(code_of("gptq", ordered.view), "ok");
}

TEST(exporter, names_what_it_refuses) {
  const auto refused = find_exporter("awq")->describe({kFourBits, 12, 32}, "model.layers.3.x");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "\"model.layers.3.x\": AWQ needs multiples of 8, found 12 outputs and 32 inputs");
}

TEST(exporter, describes_what_it_writes) {
  ThreadPool pool(1);
  for (const char* name : {"awq", "gptq", "gptq_v2", "pack_quantized", "pack_quantized_lanes"}) {
    const Exporter* exporter = find_exporter(name);
    const Plain plain(kFourBits, 16, 64, 8);
    const auto described = exporter->describe({kFourBits, 16, 64}, "m");
    const auto written = exporter->write(plain.view, "m", pool);
    ASSERT_TRUE(described.ok() && written.ok());
    ASSERT_EQ(described->size(), written->size());
    for (std::size_t i = 0; i < written->size(); ++i) {
      EXPECT_EQ((*described)[i].suffix, (*written)[i].suffix);
      EXPECT_EQ((*described)[i].shape, (*written)[i].shape);
      EXPECT_EQ((*described)[i].num_bytes(), (*written)[i].bytes.size());
    }
  }
}

TEST(exporter, knows_all_by_name) {
  EXPECT_EQ(find_exporter("awq")->name, "awq");
  EXPECT_EQ(find_exporter("gptq_v2")->name, "gptq_v2");
  EXPECT_EQ(find_exporter("gguf"), nullptr);
}

}  // namespace
}  // namespace subbyte
