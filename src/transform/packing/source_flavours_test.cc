// Models of flavours that are only read, packed and unpacked: their importers read what the writers
// of unpacking make, and every tensor comes back bit for bit.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "support/quantized_model.h"
#include "support/test_names.h"
#include "transform/packing/pack_model.h"

namespace subbyte {
namespace {

using testing::Contents;
using testing::random_matrix;
using testing::RandomMatrix;

struct Source {
  const char* name;
  WeightFormat format;
  const char* layout;
  const char* config;  // quantization_config
  int64_t experts = 1;
};

constexpr const char* kMxfp4 = R"({"quant_method": "modelopt", "quant_algo": "MXFP4"})";
constexpr const char* kNvfp4 = R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})";
constexpr const char* kNaive4 = R"({"quant_method": "compressed-tensors",
    "format": "naive-quantized", "config_groups": {"group_0": {"targets": ["Linear"],
    "weights": {"num_bits": 4, "strategy": "group", "group_size": 32}}}})";
constexpr const char* kNaive4Asymmetric = R"({"quant_method": "compressed-tensors",
    "format": "naive-quantized", "config_groups": {"group_0": {"targets": ["Linear"],
    "weights": {"num_bits": 4, "symmetric": false, "strategy": "group", "group_size": 64}}}})";
constexpr const char* kNaive8 = R"({"quant_method": "compressed-tensors",
    "format": "int-quantized", "config_groups": {"group_0": {"targets": ["Linear"],
    "weights": {"num_bits": 8, "strategy": "channel"}}}})";
constexpr const char* kMarlin = R"({"quant_method": "gptq", "bits": 4, "group_size": 64,
    "desc_act": false, "checkpoint_format": "marlin"})";

/// The tensors of a module, and those that its writer leaves to others.
std::vector<TestTensor> tensors_of(const Source& flavour, uint64_t seed) {
  std::vector<RandomMatrix> random;
  std::vector<Matrix> matrices;
  for (int64_t e = 0; e < flavour.experts; ++e) {
    random.push_back(random_matrix(flavour.format, 128, 256, Contents::kReal, seed + e));
    RandomMatrix& matrix = random.back();
    if (matrix.zeros) {
      for (std::byte& zero : matrix.zeros->span()) zero &= std::byte{15};
    }
    if (flavour.format.scale == Format::kE4M3) {  // from 0.0625, which Marlin has without signs
      for (std::byte& scale : matrix.scales->span()) {
        scale = (scale & std::byte{15}) | std::byte{0x30};
      }
    }
    matrices.push_back(unowned(matrix.view));
  }
  const std::string name = flavour.experts > 1 ? "model.layers.0.mlp.experts.down_proj"
                                               : "model.layers.0.self_attn.q_proj";
  ThreadPool pool(1);
  const Exporter& writer = *find_module_exporter(flavour.name);
  const auto written = writer.write_experts != nullptr
                           ? writer.write_experts(matrices, name, pool)
                           : writer.write(matrices.front().view, name, pool);
  EXPECT_TRUE(written.ok()) << written.error().message;
  std::vector<TestTensor> tensors = kept_tensors("awq");
  for (const ExportedTensor& tensor : *written) {
    tensors.push_back({name + std::string(tensor.suffix),
                       tensor.dtype,
                       tensor.shape,
                       {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}});
  }
  if (flavour.format.scale == Format::kE4M3) {
    const float factor = 0.25f;
    std::string bytes(sizeof factor, '\0');
    std::memcpy(bytes.data(), &factor, sizeof factor);
    tensors.push_back({name + "_weight_scale_2", DType::kF32, {}, bytes});
  }
  return tensors;
}

std::map<std::string, std::string> contents_of(const std::filesystem::path& model) {
  std::map<std::string, std::string> all;
  const auto tensors = TensorSource::open(model);
  EXPECT_TRUE(tensors.ok()) << tensors.error().message;
  if (!tensors.ok()) return all;
  for (const auto& [name, tensor] : tensors->tensors()) {
    std::string& bytes = all[fmt::format("{} {}", name, to_string(tensor.shape))];
    bytes.assign(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  return all;
}

class SourceFlavours : public ::testing::TestWithParam<Source> {};

TEST_P(SourceFlavours, come_back_bit_for_bit) {
  const Source& flavour = GetParam();
  EXPECT_EQ(find_exporter(flavour.name), nullptr) << "convert writes it, too";
  const TempDir folder;
  folder.write("model/config.json", fmt::format(R"({{"model_type": "any", "torch_dtype": "bfloat16",
                               "quantization_config": {}}})",
                                                flavour.config));
  ASSERT_TRUE(write_tensors(folder / "model/model.safetensors", tensors_of(flavour, 1)).ok());
  PackOptions options;
  options.layout = flavour.layout;
  options.activations = flavour.format.scale == Format::kE4M3 ? "bf16" : "";
  ThreadPool pool(2);
  const auto packed = pack_model(folder / "model", folder / "packed", options, pool);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  EXPECT_EQ(packed->modules, 1);
  const auto back = unpack_model(folder / "packed", folder / "back", {}, pool);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(contents_of(folder / "back"), contents_of(folder / "model"));
  EXPECT_EQ(folder.read("back/config.json"), folder.read("model/config.json"));
}

constexpr WeightFormat integers(Format element, Format scale, Zero zero, int64_t group) {
  return {element, scale, zero, group};
}

INSTANTIATE_TEST_SUITE_P(
    All, SourceFlavours,
    ::testing::Values(
        Source{"modelopt_mxfp4",
               {Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
               "marlin-fp4",
               kMxfp4},
        Source{"modelopt_mxfp4",
               {Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
               "flashinfer-mxfp4",
               kMxfp4},
        Source{"modelopt_experts",
               {Format::kE2M1, Format::kE4M3, Zero::kNone, 16},
               "marlin-fp4",
               kNvfp4,
               3},
        Source{"naive_quantized", integers(Format::kI4, Format::kBF16, Zero::kNone, 32), "marlin",
               kNaive4},
        Source{"naive_quantized", integers(Format::kI4, Format::kF16, Zero::kNone, 32),
               "int4pack-cuda", kNaive4},
        Source{"naive_quantized", integers(Format::kU4, Format::kF16, Zero::kU8, 64), "marlin",
               kNaive4Asymmetric},
        Source{"naive_quantized", integers(Format::kI8, Format::kBF16, Zero::kNone, 0), "marlin",
               kNaive8},
        Source{"marlin", integers(Format::kI4, Format::kF16, Zero::kNone, 64), "marlin", kMarlin},
        Source{"marlin_qweight", integers(Format::kI4, Format::kF16, Zero::kNone, 64), "marlin",
               kMarlin}),
    [](const auto& test) {
      return test_name_of(fmt::format("{}_{}_{}", test.param.name, to_string(test.param.format),
                                      test.param.layout));
    });

}  // namespace
}  // namespace subbyte
