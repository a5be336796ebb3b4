// What convert makes of a checkpoint runs, and gives the logits of the checkpoint.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/thread_pool.h"
#include "checkpoints/containers/tensor_source.h"
#include "models/model.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "support/test_names.h"
#include "support/test_tensors.h"
#include "transform/transform.h"
#include "verify/verify.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(SUBBYTE_TEST_DATA) / "goldens";

Result<std::vector<float>> logits_of(const fs::path& path) {
  const auto backend = testing::make_test_backend(2);
  SUBBYTE_TRY(const auto model, load_model(path, *backend));
  std::vector<int32_t> tokens = {3, 141, 59, 265, 358, 97, 93, 238, 46, 264, 338, 327};
  for (int32_t& token : tokens) token %= static_cast<int32_t>(model->config().vocab_size);
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
  EXPECT_EQ(report->rounded_matrices, 0);
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

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.golden << " to " << way.format;
}

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
        Way{"gpt-oss-mxfp4", "nvfp4_pack_quantized", false}, Way{"gpt-oss-mxfp4", "bf16", false},
        Way{"gpt-oss-mxfp4", "f16", false}, Way{"gpt-oss-mxfp4", "f32", false},
        Way{"qwen3-awq", "gptq_v2", true}, Way{"qwen3-awq", "compressed-tensors", true},
        Way{"qwen3-gptq-v1", "pack_quantized", true}, Way{"qwen3-gptq-v1", "awq", true},
        Way{"qwen3-gptq-act-order", "pack_quantized_lanes", true},
        Way{"qwen3-gptq-act-order", "gptq_v2", true}, Way{"qwen3-biases-gptq", "awq", true},
        Way{"qwen3-biases-gptq", "pack_quantized", true}, Way{"qwen3-biases-gptq", "f32", false},
        Way{"autoawq-qwen3-moe", "pack_quantized", true},
        Way{"llmcompressor-qwen3-moe", "gptq", true}, Way{"llmcompressor-qwen3-moe", "f32", false}),
    NamedByValue());

/// Expert `e` of a stack [experts][rows][...], all its rows or every second one from `first` on.
TestTensor expert_of(const std::string& name, const FileTensor& stack, std::size_t e, int first) {
  const std::size_t rows = stack.shape[1];
  const std::size_t row = stack.bytes.size() / stack.shape[0] / rows;
  const std::size_t step = first < 0 ? 1 : 2;
  TestTensor part = {name, stack.dtype, {rows / step}, {}};
  if (stack.shape.size() > 2) part.shape.push_back(row);
  for (std::size_t i = first < 0 ? 0 : static_cast<std::size_t>(first); i < rows; i += step) {
    part.bytes.append(reinterpret_cast<const char*>(stack.bytes.data()) + (e * rows + i) * row,
                      row);
  }
  return part;
}

/// The names that llm-compressor and AutoRound write: gate and up apart, each with its bias.
std::vector<TestTensor> as_llm_compressor(const TensorSource& source) {
  constexpr std::pair<std::string_view, std::string_view> kEndings[] = {
      {"_bias", ".bias"}, {"_blocks", ".weight_packed"}, {"_scales", ".weight_scale"}};
  std::vector<TestTensor> tensors;
  for (const auto& entry : source.tensors()) {
    const std::string& name = entry.first;  // bindings cannot be captured with clang 14
    const FileTensor& tensor = entry.second;
    const std::size_t experts = name.find("experts.");
    if (experts == std::string::npos) {
      tensors.push_back(
          {name, tensor.dtype, tensor.shape,
           std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size())});
      continue;
    }
    const std::string stem = name.substr(0, experts + 8);
    const auto ending = std::ranges::find_if(
        kEndings, [&](const auto& pair) { return name.ends_with(pair.first); });
    for (std::size_t e = 0; e < tensor.shape[0]; ++e) {
      const auto part = [&](std::string_view matrix, int first) {
        tensors.push_back(expert_of(
            stem + std::to_string(e) + "." + std::string(matrix) + std::string(ending->second),
            tensor, e, first));
      };
      if (name.find("gate_up_proj") == std::string::npos) {
        part("down_proj", -1);
      } else {
        part("gate_proj", 0);
        part("up_proj", 1);
      }
    }
  }
  return tensors;
}

class LlmCompressorNames : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(convert(golden_, folder_ / "written", "compressed-tensors"));
    const auto source = TensorSource::open(golden_ / "model.safetensors");
    ASSERT_TRUE(source.ok());
    tensors_ = as_llm_compressor(*source);
    fs::create_directory(folder_ / "apart");
    fs::copy(folder_ / "written/config.json", folder_ / "apart/config.json");
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

/// Every tensor of `expected` is in `directory` with that shape and those bytes, and no other.
void expect_tensors(const fs::path& directory, const std::vector<TestTensor>& expected) {
  const auto written = TensorSource::open(directory);
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(written->tensors().size(), expected.size());
  for (const TestTensor& tensor : expected) {
    const FileTensor* found = written->find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(found->bytes, std::as_bytes(std::span(tensor.bytes))))
        << tensor.name;
  }
}

TEST_F(LlmCompressorNames, are_written_where_a_format_has_no_stacks) {
  expect_tensors(folder_ / "written", tensors_);
  // In NVFP4 gate and up share a factor, as they do in what runs.
  ASSERT_NO_FATAL_FAILURE(convert(golden_, folder_ / "nvfp4", "nvfp4_pack_quantized"));
  const auto nvfp4 = TensorSource::open(folder_ / "nvfp4");
  ASSERT_TRUE(nvfp4.ok());
  for (const TestTensor& tensor : tensors_) EXPECT_NE(nvfp4->find(tensor.name), nullptr);
  const std::string expert = "model.layers.1.mlp.experts.3.";
  const FileTensor* gate = nvfp4->find(expert + "gate_proj.weight_global_scale");
  const FileTensor* up = nvfp4->find(expert + "up_proj.weight_global_scale");
  ASSERT_TRUE(gate != nullptr && up != nullptr);
  EXPECT_TRUE(std::ranges::equal(gate->bytes, up->bytes));
  ASSERT_NO_FATAL_FAILURE(convert(folder_ / "nvfp4", folder_ / "back", "mxfp4"));
  ThreadPool pool(2);
  EXPECT_TRUE(diff_models(folder_ / "back", golden_, pool)->same_bytes());
}

TEST_F(LlmCompressorNames, are_the_same_values_to_diff) {
  ThreadPool pool(2);
  for (const auto& [a, b] : {std::pair(golden_, folder_ / "apart"), {folder_ / "apart", golden_}}) {
    const auto diff = diff_models(a, b, pool);
    ASSERT_TRUE(diff.ok()) << diff.error().message;
    EXPECT_TRUE(diff->same_values());
    EXPECT_FALSE(diff->same_bytes());
  }
  TestTensor& up = tensor("5.up_proj.bias");
  up.bytes[0] ^= 1;
  TestTensor& gate = tensor("4.gate_proj.weight_packed");
  gate.bytes[0] ^= 1;
  write();
  const auto diff = diff_models(golden_, folder_ / "apart", pool);
  ASSERT_TRUE(diff.ok()) << diff.error().message;
  EXPECT_EQ(diff->count(ComparedWeight::Verdict::kDifferent), 2);
  EXPECT_EQ(diff->count(ComparedWeight::Verdict::kOnlyFirst), 0);
  EXPECT_EQ(diff->count(ComparedWeight::Verdict::kOnlySecond), 0);
}

std::string code_of_conversion(const fs::path& source, const fs::path& to,
                               const std::string& format) {
  ThreadPool pool(2);
  const auto report = convert_model(source, to, {.format = format}, pool);
  return report.ok() ? "ok" : std::string(report.error().code);
}

TEST_F(LlmCompressorNames, of_experts_are_refused_where_software_has_them_otherwise) {
  for (const fs::path& source : {golden_, folder_ / "apart"}) {
    EXPECT_EQ(code_of_conversion(source, folder_ / "no", "modelopt_nvfp4"), "export.experts");
  }
}

/// GPTQModel writes the same names, and in "gate_proj" the first half of rows that take turns.
TEST(GptqModelExperts, are_refused_by_name) {
  const fs::path golden = kGoldens / "gptqmodel-gpt-oss";
  const TempDir folder;
  const auto found = logits_of(golden);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, "model.unsupported");
  EXPECT_NE(found.error().message.find("GPTQModel"), std::string::npos) << found.error().message;
  for (const char* format : {"f32", "pack_quantized", "gptq_v2"}) {
    EXPECT_EQ(code_of_conversion(golden, folder / "no", format), "model.unsupported") << format;
  }
}

TEST(GptqModelExperts, are_not_written) {
  // As if another program had written it: gate_proj is gate then.
  const TempDir folder;
  fs::copy_file(kGoldens / "gptqmodel-gpt-oss/model.safetensors", folder / "model.safetensors");
  fs::copy_file(kGoldens / "gptqmodel-gpt-oss/config.json", folder / "config.json");
  std::string config = folder.read("config.json");
  const std::size_t meta = config.find("\"meta\"");
  ASSERT_NE(meta, std::string::npos);
  folder.write("config.json", config.replace(meta, 2, "\"_"));
  const auto backend = testing::make_test_backend(1);
  EXPECT_TRUE(load_model(folder.path(), *backend).ok());
  const TempDir to;
  EXPECT_EQ(code_of_conversion(folder.path(), to / "ct", "pack_quantized"), "ok");
  for (const char* format : {"awq", "gptq", "gptq_v2"}) {
    EXPECT_EQ(code_of_conversion(folder.path(), to / "no", format), "export.experts") << format;
  }
}

TEST_F(LlmCompressorNames, become_the_stacks_of_gpt_oss) {
  for (const char* format : {"mxfp4", "bf16", "nvfp4_pack_quantized", "mxfp4_pack_quantized"}) {
    ASSERT_NO_FATAL_FAILURE(convert(folder_ / "apart", folder_ / format, format));
    EXPECT_EQ(errors_of(folder_ / format), std::vector<std::string>()) << format;
  }
  EXPECT_EQ(logits(folder_ / "mxfp4"), logits(golden_));
  EXPECT_EQ(logits(folder_ / "mxfp4_pack_quantized"), logits(golden_));
  // Every tensor has the name and the bytes that transformers wrote.
  ThreadPool pool(2);
  EXPECT_TRUE(diff_models(folder_ / "mxfp4", golden_, pool)->same_bytes());
  ASSERT_NO_FATAL_FAILURE(convert(golden_, folder_ / "golden-bf16", "bf16"));
  EXPECT_EQ(logits(folder_ / "bf16"), logits(folder_ / "golden-bf16"));
  ASSERT_NO_FATAL_FAILURE(convert(golden_, folder_ / "golden-nvfp4", "nvfp4_pack_quantized"));
  EXPECT_EQ(logits(folder_ / "nvfp4_pack_quantized"), logits(folder_ / "golden-nvfp4"));
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
