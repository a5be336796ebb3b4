// What convert writes is taken by everything else: of each family, in each way of storing weights
// that there is a quantizer for, into every format. Where convert succeeds, verify finds nothing
// wrong, the model loads, and its logits are those of its own weights as f32, which the dense
// kernels multiply.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>

#include "base/thread_pool.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/containers/tensor_source.h"
#include "json/strict_json.h"
#include "quantize/mxfp4.h"
#include "quantize/round_to_nearest.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "support/test_names.h"
#include "support/test_tensors.h"
#include "transform/matrix_rows.h"
#include "transform/transform.h"
#include "verify/inspect.h"
#include "verify/verify.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(SUBBYTE_TEST_DATA) / "goldens";
constexpr int64_t kGroup = 32;

using Quantize = std::function<Result<Matrix>(int64_t rows, int64_t cols, const RowReader& rows_of,
                                              Executor& pool)>;

Quantize integers(int bits, bool symmetric) {
  return [=](int64_t rows, int64_t cols, const RowReader& read, Executor& pool) {
    return symmetric ? quantize_symmetric(rows, cols, kGroup, bits, read, pool)
                     : quantize_min_max(rows, cols, kGroup, bits, read, pool);
  };
}

Result<Matrix> mxfp4(int64_t rows, int64_t cols, const RowReader& read, Executor& pool) {
  return quantize_mxfp4(rows, cols, ScaleRule::kCeil, Rounding::kNearestEven, read, pool);
}

/// What is quantized: linear layers, or embedding and head, too.
enum class Which : uint8_t { kLayers, kAll };

bool is_quantized(const std::string& name, Which which) {
  return name.ends_with("_proj.weight") ||
         (which == Which::kAll &&
          (name.ends_with("embed_tokens.weight") || name == "lm_head.weight"));
}

/// The golden with that of its matrices quantized and written by that exporter.
Status write_quantized(const fs::path& golden, const fs::path& to, std::string_view name,
                       const Quantize& quantize, Which which) {
  const Exporter& exporter = *find_exporter(name);
  ThreadPool pool(2);
  SUBBYTE_TRY(const TensorSource source, TensorSource::open(golden));
  std::vector<TestTensor> tensors;
  ExportedModel exported;
  if (which == Which::kLayers) exported.kept.push_back("lm_head");
  for (const auto& [tensor_name, tensor] : source.tensors()) {
    if (!is_quantized(tensor_name, which)) {
      tensors.push_back(
          {tensor_name,
           tensor.dtype,
           tensor.shape,
           {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}});
      if (tensor_name.ends_with("mlp.gate.weight")) {
        exported.kept.push_back(tensor_name.substr(0, tensor_name.rfind('.')));
      }
      continue;
    }
    const std::string module = tensor_name.substr(0, tensor_name.rfind('.'));
    const auto rows = static_cast<int64_t>(tensor.shape[0]);
    const auto cols = static_cast<int64_t>(tensor.shape[1]);
    SUBBYTE_TRY(const Matrix matrix,
                quantize(rows, cols, row_reader({&tensor, rows, cols, 0, cols}), pool));
    SUBBYTE_TRY(const auto written, exporter.write(matrix.view, module, pool));
    for (const ExportedTensor& part : written) {
      tensors.push_back({module + std::string(part.suffix),
                         part.dtype,
                         part.shape,
                         {reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size()}});
    }
    exported.modules.push_back({module, shape_of(matrix.view)});
  }
  fs::create_directory(to);
  SUBBYTE_TRY(json::Value config, json::parse_file((golden / "config.json").string(), 1 << 20));
  config["quantization_config"] = exporter.config(exported).section;
  std::ofstream(to / "config.json") << config.text();
  return write_tensors(to / "model.safetensors", tensors);
}

struct Source {
  const char* title;
  const char* golden;
  const char* exporter;  // nullptr: the golden as it is
  Quantize quantize;
  const char* targets;  // that are exact, in the order of conversion_formats()
  Which which = Which::kLayers;
};

std::ostream& operator<<(std::ostream& out, const Source& source) {
  return out << source.title;
}

constexpr const char* kOfFp4 =
    "nvfp4_pack_quantized mxfp4_pack_quantized modelopt_nvfp4 f32 bf16 f16";
constexpr const char* kOfIntegers = "pack_quantized pack_quantized_lanes f32";

class EveryConversion : public ::testing::TestWithParam<Source> {
 protected:
  void SetUp() override {
    source_ = kGoldens / GetParam().golden;
    if (GetParam().exporter == nullptr) return;
    const Status written = write_quantized(source_, folder_ / "source", GetParam().exporter,
                                           GetParam().quantize, GetParam().which);
    ASSERT_TRUE(written.ok()) << written.error().message;
    source_ = folder_ / "source";
  }

  std::vector<float> logits(const fs::path& path) const {
    const auto model = load_model(path, *backend_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (!model.ok()) return {};
    std::vector<int32_t> tokens = {3, 141, 59, 265, 358, 97, 93, 238, 46, 264, 338, 327};
    for (int32_t& token : tokens) token %= static_cast<int32_t>((*model)->config().vocab_size);
    return testing::logits_of(**model, *backend_, tokens);
  }

  void expect_sound(const fs::path& path) const {
    ThreadPool pool(2);
    const auto report = verify(path, {}, pool, backend_.get());
    ASSERT_TRUE(report.ok()) << report.error().message;
    for (const Finding& finding : report->findings) {
      EXPECT_NE(finding.severity, Severity::kError)
          << finding.code << " " << finding.where << ": " << to_string(finding);
    }
    const auto inspected = inspect(path, pool, backend_.get());
    ASSERT_TRUE(inspected.ok()) << inspected.error().message;
    EXPECT_EQ(inspected->problems, std::vector<std::string>());
  }

  void expect_weights_of_source(const fs::path& path) const {
    const std::vector<float> expected = logits(folder_ / "f32");
    const std::vector<float> found = logits(path);
    ASSERT_EQ(found.size(), expected.size());
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      difference += std::pow(static_cast<double>(found[i]) - expected[i], 2);
      size += std::pow(static_cast<double>(expected[i]), 2);
    }
    // The same weights, or ones rounded to f32, in sums of another order: about 2^-24 * sqrt(512)
    // in a product, a few times that after some layers.
    EXPECT_LT(std::sqrt(difference / size), 2e-5);
  }

  TempDir folder_;
  fs::path source_;
  std::unique_ptr<Backend> backend_ = testing::make_test_backend(2);
};

TEST_P(EveryConversion, that_succeeds_gives_a_model_that_runs) {
  ThreadPool pool(2);
  const auto floats =
      convert_model(source_, folder_ / "f32", {.format = "f32", .allow_lossy = true}, pool);
  ASSERT_TRUE(floats.ok()) << floats.error().message;
  expect_sound(source_);
  expect_weights_of_source(source_);
  std::string targets;
  for (const std::string& format : conversion_formats()) {
    if (format == "compressed-tensors" || format == "ak48") continue;  // an alias, and a file
    SCOPED_TRACE(format);
    const fs::path path = folder_ / ("to-" + format);
    const auto report = convert_model(source_, path, {.format = format}, pool);
    if (!report.ok()) continue;
    targets += (targets.empty() ? "" : " ") + format;
    expect_sound(path);
    expect_weights_of_source(path);
  }
  EXPECT_EQ(targets, GetParam().targets);
}

INSTANTIATE_TEST_SUITE_P(
    all, EveryConversion,
    ::testing::Values(
        Source{"qwen3 in awq", "qwen3-bf16", "awq", integers(4, false),
               "awq gptq gptq_v2 pack_quantized pack_quantized_lanes f32"},
        Source{"qwen3 in 3 bits", "qwen3-bf16", "pack_quantized", integers(3, true),
               "gptq gptq_v2 pack_quantized pack_quantized_lanes f32"},
        Source{"qwen3 in 5 bits", "qwen3-bf16", "pack_quantized", integers(5, true),
               "pack_quantized pack_quantized_lanes gguf f32"},
        Source{"qwen3 in 6 bits", "qwen3-bf16", "pack_quantized", integers(6, false), kOfIntegers},
        Source{"qwen3 in 7 bits", "qwen3-bf16", "pack_quantized", integers(7, true), kOfIntegers},
        Source{"qwen3 in 8 bits", "qwen3-bf16", "gptq_v2", integers(8, false),
               "gptq gptq_v2 pack_quantized pack_quantized_lanes f32"},
        Source{"qwen3 in 4 bits with embedding and head", "qwen3-bf16", "pack_quantized",
               integers(4, true), "awq gptq gptq_v2 pack_quantized pack_quantized_lanes gguf f32",
               Which::kAll},
        Source{"qwen3 in mxfp4", "qwen3-bf16", "mxfp4_pack_quantized", mxfp4,
               "nvfp4_pack_quantized mxfp4_pack_quantized modelopt_nvfp4 gguf f32 bf16 f16"},
        Source{"qwen3_moe in awq", "qwen3-moe-bf16", "awq", integers(4, false),
               "awq gptq gptq_v2 pack_quantized pack_quantized_lanes f32"},
        Source{"qwen3_moe in 7 bits", "qwen3-moe-bf16", "pack_quantized", integers(7, true),
               kOfIntegers},
        Source{"qwen3_moe in mxfp4", "qwen3-moe-bf16", "mxfp4_pack_quantized", mxfp4, kOfFp4},
        Source{"gpt_oss in mxfp4", "gpt-oss-mxfp4", nullptr, nullptr,
               "nvfp4_pack_quantized mxfp4_pack_quantized mxfp4 gguf f32 bf16 f16"},
        Source{"qwen3 in nf4", "bitsandbytes-nf4-double", nullptr, nullptr, "bnb_nf4"}),
    NamedByValue());

}  // namespace
}  // namespace subbyte
