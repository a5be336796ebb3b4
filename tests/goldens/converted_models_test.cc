// What convert makes of a checkpoint runs, and gives the logits of the checkpoint.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/thread_pool.h"
#include "checkpoints/containers/tensor_source.h"
#include "models/model.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "support/test_tensors.h"
#include "transform/convert_model.h"
#include "verify/verify.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(SUBBYTE_TEST_DATA) / "goldens";

Result<std::vector<float>> logits_of(const fs::path& path) {
  const auto backend = testing::make_test_backend(2);
  SUBBYTE_TRY(const auto model, load_model(path, *backend));
  const std::vector<int32_t> tokens = {3, 141, 59, 265, 358, 97, 93, 238, 46, 264, 338, 327};
  return testing::logits_of(*model, *backend, tokens);
}

std::vector<float> logits(const fs::path& path) {
  auto found = logits_of(path);
  EXPECT_TRUE(found.ok()) << found.error().message;
  return found.ok() ? std::move(found).value() : std::vector<float>();
}

void convert(const fs::path& from, const fs::path& to, const std::string& format) {
  ThreadPool pool(2);
  const auto report = convert_model(from, to, {.format = format}, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->rounded_modules, 0);
}

/// The codes of what verify calls an error.
std::vector<std::string> errors_of(const fs::path& path) {
  ThreadPool pool(2);
  const auto report = verify(path, {}, pool);
  EXPECT_TRUE(report.ok()) << report.error().message;
  std::vector<std::string> errors;
  if (!report.ok()) return errors;
  for (const Finding& finding : report->findings) {
    if (finding.severity != Severity::kError) continue;
    errors.push_back(std::string(finding.code) + " " + finding.where);
  }
  return errors;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

struct Way {
  const char* golden;
  const char* format;
  bool same_sums;  // the same groups in the same kernel: the same bits come out
};

class ConvertedModels : public ::testing::TestWithParam<Way> {};

TEST_P(ConvertedModels, give_the_logits_of_the_checkpoint) {
  const TempDir folder;
  const fs::path golden = kGoldens / GetParam().golden;
  ASSERT_NO_FATAL_FAILURE(convert(golden, folder / "new", GetParam().format));
  EXPECT_EQ(errors_of(folder / "new"), std::vector<std::string>());
  const auto expected = logits(golden);
  const auto found = logits(folder / "new");
  ASSERT_FALSE(expected.empty());
  if (GetParam().same_sums) {
    EXPECT_EQ(found, expected);
  } else {
    // The same weights, to the bit, in sums of another order: about 2^-24 * sqrt(512) in a product,
    // a few times that after some layers.
    EXPECT_LT(relative_difference(found, expected), 2e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    all, ConvertedModels,
    ::testing::Values(
        Way{"gpt-oss-mxfp4", "compressed-tensors", true},
        Way{"gpt-oss-mxfp4", "mxfp4_pack_quantized", true}, Way{"gpt-oss-mxfp4", "mxfp4", true},
        Way{"gpt-oss-mxfp4", "nvfp4_pack_quantized", false},
        Way{"gpt-oss-mxfp4", "modelopt_nvfp4", false}, Way{"gpt-oss-mxfp4", "bf16", false},
        Way{"gpt-oss-mxfp4", "f16", false}, Way{"gpt-oss-mxfp4", "f32", false},
        Way{"qwen3-awq", "gptq_v2", true}, Way{"qwen3-awq", "compressed-tensors", true},
        Way{"qwen3-gptq-v1", "pack_quantized", true}, Way{"qwen3-gptq-v1", "awq", true},
        Way{"qwen3-gptq-act-order", "pack_quantized_lanes", true},
        Way{"qwen3-gptq-act-order", "gptq_v2", true}),
    [](const auto& param) {
      std::string name = std::string(param.param.golden) + "_as_" + param.param.format;
      std::ranges::replace(name, '-', '_');
      return name;
    });

/// Every second row of a tensor [rows][...], from `first` on.
TestTensor every_second_row(const std::string& name, const FileTensor& from, std::size_t first) {
  TestTensor part = {name, from.dtype, from.shape, {}};
  const std::size_t row = from.bytes.size() / from.shape[0];
  for (std::size_t i = first; i < from.shape[0]; i += 2) {
    part.bytes.append(reinterpret_cast<const char*>(from.bytes.data()) + i * row, row);
  }
  part.shape[0] /= 2;
  return part;
}

/// `name` with "gate_up_proj" replaced.
std::string renamed(std::string name, std::string_view to) {
  constexpr std::string_view kGateUp = "gate_up_proj";
  return name.replace(name.find(kGateUp), kGateUp.size(), to);
}

/// The names that llm-compressor writes: gate and up apart, biases with their expert.
std::vector<TestTensor> as_llm_compressor(const TensorSource& source) {
  std::vector<TestTensor> tensors;
  for (const auto& entry : source.tensors()) {
    const std::string& name = entry.first;
    const FileTensor& tensor = entry.second;
    const auto text = [&](std::size_t begin, std::size_t size) {
      return std::string(reinterpret_cast<const char*>(tensor.bytes.data()) + begin, size);
    };
    if (name.ends_with("_proj_bias")) {
      const std::size_t size = tensor.bytes.size() / tensor.shape[0];
      const bool pair = name.find("gate_up_proj") != std::string::npos;
      for (uint64_t e = 0; e < tensor.shape[0]; ++e) {
        std::string module = name.substr(0, name.size() - 5);
        module.insert(module.find("experts.") + 8, std::to_string(e) + ".");
        TestTensor bias = {module + ".bias", tensor.dtype, {tensor.shape[1]}, text(e * size, size)};
        if (!pair) {
          tensors.push_back(bias);
          continue;
        }
        for (const std::size_t half : {0u, 1u}) {
          TestTensor part = {renamed(bias.name, half == 0 ? "gate_proj" : "up_proj"),
                             tensor.dtype,
                             {tensor.shape[1] / 2},
                             {}};
          for (std::size_t i = 2 * half; i < size; i += 4) part.bytes += bias.bytes.substr(i, 2);
          tensors.push_back(part);
        }
      }
    } else if (name.find(".gate_up_proj.") != std::string::npos) {
      tensors.push_back(every_second_row(renamed(name, "gate_proj"), tensor, 0));
      tensors.push_back(every_second_row(renamed(name, "up_proj"), tensor, 1));
    } else {
      tensors.push_back({name, tensor.dtype, tensor.shape, text(0, tensor.bytes.size())});
    }
  }
  return tensors;
}

class LlmCompressorNames : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(convert(golden_, folder_ / "joint", "compressed-tensors"));
    const auto source = TensorSource::open(folder_ / "joint");
    ASSERT_TRUE(source.ok());
    tensors_ = as_llm_compressor(*source);
    fs::create_directory(folder_ / "apart");
    fs::copy(folder_ / "joint/config.json", folder_ / "apart/config.json");
    write();
  }

  void write() { ASSERT_TRUE(write_tensors(folder_ / "apart/model.safetensors", tensors_).ok()); }

  TestTensor& tensor(const std::string& name) {
    return *std::ranges::find(tensors_, "model.layers.2.mlp.experts." + name, &TestTensor::name);
  }

  std::string load_code() {
    write();
    const auto found = logits_of(folder_ / "apart");
    return found.ok() ? "ok" : std::string(found.error().code);
  }

  const fs::path golden_ = kGoldens / "gpt-oss-mxfp4";
  TempDir folder_;
  std::vector<TestTensor> tensors_;
};

TEST_F(LlmCompressorNames, give_the_logits_of_the_checkpoint) {
  EXPECT_EQ(logits(folder_ / "apart"), logits(golden_));
  EXPECT_EQ(errors_of(folder_ / "apart"), std::vector<std::string>());
}

TEST_F(LlmCompressorNames, become_the_stacks_of_gpt_oss) {
  for (const char* format :
       {"mxfp4", "bf16", "nvfp4_pack_quantized", "modelopt_nvfp4", "mxfp4_pack_quantized"}) {
    ASSERT_NO_FATAL_FAILURE(convert(folder_ / "apart", folder_ / format, format));
    EXPECT_EQ(errors_of(folder_ / format), std::vector<std::string>()) << format;
  }
  EXPECT_EQ(logits(folder_ / "mxfp4"), logits(golden_));
  EXPECT_EQ(logits(folder_ / "mxfp4_pack_quantized"), logits(golden_));
  // Every tensor has the name and the bytes that transformers wrote.
  const auto written = TensorSource::open(folder_ / "mxfp4");
  const auto golden = TensorSource::open(golden_);
  ASSERT_TRUE(written.ok() && golden.ok());
  EXPECT_EQ(written->tensors().size(), golden->tensors().size());
  for (const auto& [name, tensor] : golden->tensors()) {
    const FileTensor* found = written->find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->shape, tensor.shape) << name;
    EXPECT_TRUE(std::ranges::equal(found->bytes, tensor.bytes)) << name;
  }
  ASSERT_NO_FATAL_FAILURE(convert(golden_, folder_ / "golden-bf16", "bf16"));
  EXPECT_EQ(logits(folder_ / "bf16"), logits(folder_ / "golden-bf16"));
  ASSERT_NO_FATAL_FAILURE(convert(golden_, folder_ / "golden-nvfp4", "modelopt_nvfp4"));
  EXPECT_EQ(logits(folder_ / "modelopt_nvfp4"), logits(folder_ / "golden-nvfp4"));
}

TEST_F(LlmCompressorNames, are_refused_when_something_is_missing_or_more) {
  ASSERT_EQ(load_code(), "ok");
  const std::vector<TestTensor> sound = tensors_;
  std::erase_if(tensors_, [](const TestTensor& tensor) {
    return tensor.name == "model.layers.2.mlp.experts.5.up_proj.bias";
  });
  EXPECT_EQ(load_code(), "import.missing");
  EXPECT_EQ(errors_of(folder_ / "apart"),
            std::vector<std::string>{"import.missing model.layers.2.mlp.experts.5.up_proj.bias"});
  tensors_ = sound;
  std::erase_if(tensors_, [](const TestTensor& tensor) {
    return tensor.name.starts_with("model.layers.2.mlp.experts.7.down_proj.weight");
  });
  EXPECT_EQ(load_code(), "import.missing");
  tensors_ = sound;
  TestTensor more = tensor("7.down_proj.bias");
  more.name = "model.layers.2.mlp.experts.8.down_proj.bias";
  tensors_.push_back(more);
  EXPECT_EQ(load_code(), "model.surplus");
  tensors_ = sound;
  TestTensor& gate = tensor("0.gate_proj.bias");
  gate.shape[0] /= 2;
  gate.bytes.resize(gate.bytes.size() / 2);
  EXPECT_EQ(load_code(), "import.shape");
}

}  // namespace
}  // namespace subbyte
