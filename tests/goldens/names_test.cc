// Checkpoints whose tensors have the names and the shapes of other software: the same numbers give
// the same bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/thread_pool.h"
#include "checkpoints/containers/tensor_source.h"
#include "json/strict_json.h"
#include "models/model.h"
#include "support/goldens.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "support/test_tensors.h"
#include "transform/transform.h"
#include "verify/inspect.h"
#include "verify/verify.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Tensors = std::vector<TestTensor>;

Tensors read_tensors(const fs::path& file) {
  const auto source = TensorSource::open(file);
  EXPECT_TRUE(source.ok()) << source.error().message;
  Tensors tensors;
  for (const auto& [name, tensor] : source->tensors()) {
    tensors.push_back({name,
                       tensor.dtype,
                       tensor.shape,
                       {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}});
  }
  return tensors;
}

Tensors read_golden(const std::string& golden) {
  return read_tensors(testing::golden_folder(golden) / "model.safetensors");
}

/// A golden with other tensors.
class Checkpoint {
 public:
  Checkpoint(const std::string& golden, const Tensors& tensors) {
    fs::create_directory(path());
    fs::copy(testing::golden_folder(golden) / "config.json", path());
    const Status written = write_tensors(path() / "model.safetensors", tensors);
    EXPECT_TRUE(written.ok()) << written.error().message;
  }

  fs::path path() const { return folder_ / "model"; }

  /// Empty, with a failure, if it does not load.
  std::vector<float> logits() const {
    const auto backend = testing::make_test_backend(2);
    const auto model = load_model(path(), *backend);
    EXPECT_TRUE(model.ok()) << model.error().message;
    const std::vector<int32_t> tokens = {3, 14, 15, 92, 65, 35, 89, 79};
    return model.ok() ? testing::logits_of(**model, *backend, tokens) : std::vector<float>();
  }

  std::string load_code() const {
    const auto backend = testing::make_test_backend(1);
    const auto model = load_model(path(), *backend);
    return model.ok() ? "" : std::string(model.error().code);
  }

  /// What verify calls an error: "model.names module.model.norm.weight".
  std::vector<std::string> errors() const {
    ThreadPool pool(2);
    const auto report = verify(path(), {}, pool);
    EXPECT_TRUE(report.ok()) << report.error().message;
    std::vector<std::string> errors;
    for (const Finding& finding : report->findings) {
      if (finding.severity != Severity::kError) continue;
      errors.push_back(std::string(finding.code) + " " + finding.where);
    }
    return errors;
  }

 private:
  TempDir folder_;
};

void expect_bits_of(const std::string& golden, const Tensors& tensors, const std::string& what) {
  const std::vector<float> expected = Checkpoint(golden, read_golden(golden)).logits();
  const Checkpoint checkpoint(golden, tensors);
  EXPECT_EQ(checkpoint.logits(), expected) << what;
  EXPECT_EQ(checkpoint.errors(), std::vector<std::string>()) << what;
}

Tensors with_prefix(Tensors tensors, const std::string& prefix, const std::string& head_prefix) {
  for (TestTensor& tensor : tensors) {
    constexpr std::string_view kUsual = "model.";
    const bool is_head = !tensor.name.starts_with(kUsual);
    tensor.name = is_head ? head_prefix + tensor.name : prefix + tensor.name.substr(kUsual.size());
  }
  return tensors;
}

TEST(Names, with_any_known_prefix_give_the_same_bits) {
  for (const char* golden : {"qwen3-awq", "qwen3-moe-bf16", "gpt-oss-mxfp4"}) {
    const Tensors tensors = read_golden(golden);
    expect_bits_of(golden, with_prefix(tensors, "", ""), "none");
    expect_bits_of(golden, with_prefix(tensors, "model.language_model.", ""), "newer");
    expect_bits_of(golden, with_prefix(tensors, "language_model.model.", "language_model."),
                   "older");
  }
}

TEST(Names, with_another_prefix_are_refused_once) {
  for (const std::string prefix : {"module.", "_orig_mod.", "base_model.model.", "model."}) {
    const Checkpoint checkpoint(
        "qwen3-moe-bf16", with_prefix(read_golden("qwen3-moe-bf16"), prefix + "model.", prefix));
    EXPECT_EQ(checkpoint.load_code(), "model.names");
    EXPECT_EQ(checkpoint.errors(),
              std::vector<std::string>{"model.names " + prefix + "model.embed_tokens.weight"});
  }
}

std::string row_of(const TestTensor& matrix, uint64_t row) {
  const std::size_t bytes = matrix.bytes.size() / matrix.shape[0];
  return matrix.bytes.substr(row * bytes, bytes);
}

const TestTensor& find(const Tensors& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &TestTensor::name);
  EXPECT_NE(found, tensors.end()) << name;
  return *found;
}

/// Takes `parts` out of `tensors` and puts one matrix in, which has their rows one after the other.
void join(Tensors& tensors, const std::string& name, const std::vector<std::string>& parts) {
  TestTensor joined = {name, DType::kBF16, {0, 0}, {}};
  for (const std::string& part : parts) {
    const TestTensor tensor = find(tensors, part);
    joined.dtype = tensor.dtype;
    joined.shape = {joined.shape[0] + tensor.shape[0], tensor.shape[1]};
    joined.bytes += tensor.bytes;
    std::erase_if(tensors, [&](const TestTensor& other) { return other.name == part; });
  }
  tensors.push_back(joined);
}

TEST(Names, of_matrices_that_a_file_has_joined_give_the_same_bits) {
  Tensors tensors = read_golden("qwen3-bf16");
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const std::string attention = prefix + "self_attn.";
    join(tensors, attention + "qkv_proj.weight",
         {attention + "q_proj.weight", attention + "k_proj.weight", attention + "v_proj.weight"});
    join(tensors, prefix + "mlp.gate_up_proj.weight",
         {prefix + "mlp.gate_proj.weight", prefix + "mlp.up_proj.weight"});
  }
  expect_bits_of("qwen3-bf16", tensors, "joined");
}

/// [rows][cols] as [cols][rows], of elements of two bytes.
std::string transposed(const TestTensor& matrix) {
  std::string bytes;
  for (uint64_t col = 0; col < matrix.shape[1]; ++col) {
    for (uint64_t row = 0; row < matrix.shape[0]; ++row) {
      bytes += row_of(matrix, row).substr(2 * col, 2);
    }
  }
  return bytes;
}

/// All experts of layer 0 in one tensor as transformers 5 has it in memory, or with inputs first.
/// Down is square: which side is which is seen by gate and up.
void stack_experts(Tensors& tensors, bool inputs_first) {
  const std::string prefix = "model.layers.0.mlp.experts.";
  TestTensor gate_up = {prefix + "gate_up_proj", DType::kBF16, {}, {}};
  TestTensor down = {prefix + "down_proj", DType::kBF16, {}, {}};
  for (uint64_t e = 0;; ++e) {
    const std::string expert = prefix + std::to_string(e) + ".";
    const bool is_there = std::ranges::any_of(tensors, [&](const TestTensor& tensor) {
      return tensor.name == expert + "gate_proj.weight";
    });
    if (!is_there) break;
    join(tensors, "both", {expert + "gate_proj.weight", expert + "up_proj.weight"});
    const TestTensor both = find(tensors, "both");
    const TestTensor one = find(tensors, expert + "down_proj.weight");
    for (const auto& [stack, matrix] : {std::pair(&gate_up, &both), std::pair(&down, &one)}) {
      const Shape& shape = matrix->shape;
      stack->shape = {e + 1, shape[inputs_first ? 1 : 0], shape[inputs_first ? 0 : 1]};
      stack->bytes += inputs_first ? transposed(*matrix) : matrix->bytes;
    }
    std::erase_if(tensors, [&](const TestTensor& tensor) {
      return tensor.name == "both" || tensor.name == expert + "down_proj.weight";
    });
  }
  ASSERT_FALSE(gate_up.shape.empty());
  tensors.push_back(gate_up);
  tensors.push_back(down);
}

TEST(Names, of_experts_in_stacks_give_the_same_bits) {
  for (const bool inputs_first : {false, true}) {
    Tensors tensors = read_golden("qwen3-moe-bf16");
    stack_experts(tensors, inputs_first);
    expect_bits_of("qwen3-moe-bf16", tensors, inputs_first ? "inputs first" : "outputs first");
    const Checkpoint checkpoint("qwen3-moe-bf16", tensors);
    const auto backend = testing::make_test_backend(1);
    const auto found = inspect(checkpoint.path(), backend->host());
    ASSERT_TRUE(found.ok()) << found.error().message;
    const auto stack = std::ranges::find(found->weights, "model.layers.0.mlp.experts.gate_up_proj",
                                         &InspectedWeight::name);
    ASSERT_NE(stack, found->weights.end());
    EXPECT_EQ(stack->flavour, "dense");
    EXPECT_EQ(stack->shape, (std::vector<uint64_t>{4, 128, 64}));
    // What diff says of stacks with inputs first is of their shapes.
    if (inputs_first) continue;
    const Checkpoint apart("qwen3-moe-bf16", read_golden("qwen3-moe-bf16"));
    const auto diff = diff_models(apart.path(), checkpoint.path(), backend->host());
    ASSERT_TRUE(diff.ok()) << diff.error().message;
    EXPECT_TRUE(diff->same_values());
  }
}

/// The tensors that quantize makes of a checkpoint.
Tensors quantized(const Checkpoint& checkpoint) {
  const TempDir folder;
  ThreadPool pool(2);
  const auto report = quantize_model(checkpoint.path(), folder / "awq", {"awq", 32}, pool);
  EXPECT_TRUE(report.ok()) << report.error().message;
  return report.ok() ? read_tensors(folder / "awq/model.safetensors") : Tensors();
}

TEST(Names, of_experts_in_stacks_are_quantized_to_the_same_modules) {
  const std::string golden = "qwen3-moe-bf16";
  const Tensors apart = read_golden(golden);
  Tensors stacks = apart;
  stack_experts(stacks, false);
  const Tensors expected = quantized(Checkpoint(golden, apart));
  const Tensors found = quantized(Checkpoint(golden, stacks));
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].name, expected[i].name);
    EXPECT_EQ(found[i].bytes, expected[i].bytes) << found[i].name;
  }
  const std::string expert = "model.layers.0.mlp.experts.3.up_proj.";
  EXPECT_EQ(find(found, expert + "qweight").shape, (Shape{64, 8}));
  EXPECT_EQ(find(found, "model.layers.0.mlp.gate.weight").dtype, DType::kF16);  // the router
  // The quantized model runs.
  Checkpoint awq(golden, found);
  json::Value config = *json::parse_file((awq.path() / "config.json").string(), 1 << 20);
  config["quantization_config"] = {
      {"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"zero_point", true}};
  std::ofstream(awq.path() / "config.json") << config.text();
  EXPECT_FALSE(awq.logits().empty());
  EXPECT_EQ(awq.errors(), std::vector<std::string>());
}

/// transformers gives linear layers whose biases a file does not have zeros for them.
TEST(Names, of_linear_layers_without_biases_give_the_bits_of_zeros) {
  const std::string golden = "llama2-biases-bf16";
  const auto is_bias = [](const TestTensor& tensor) { return tensor.name.ends_with(".bias"); };
  Tensors zeros = read_golden(golden);
  for (TestTensor& tensor : zeros) {
    if (is_bias(tensor)) tensor.bytes.assign(tensor.bytes.size(), '\0');
  }
  Tensors none = zeros;
  ASSERT_NE(std::erase_if(none, is_bias), 0u);
  const Checkpoint without(golden, none);
  EXPECT_EQ(without.logits(), Checkpoint(golden, zeros).logits());
  EXPECT_EQ(without.errors(), std::vector<std::string>());
  Tensors some = zeros;  // those of one layer are lost
  std::erase_if(some, [&](const TestTensor& tensor) {
    return is_bias(tensor) && tensor.name.find("layers.1.self_attn.q_proj") != std::string::npos;
  });
  EXPECT_EQ(Checkpoint(golden, some).load_code(), "import.missing");
}

/// The stacks of gpt-oss in bf16, [experts][inputs][outputs], as unsloth has them.
Tensors with_unsloth_names(const Tensors& tensors) {
  Tensors result;
  for (const TestTensor& tensor : tensors) {
    const std::size_t at = tensor.name.find(".experts.");
    if (at == std::string::npos) {
      result.push_back(tensor);
      const std::size_t router = tensor.name.find(".mlp.router.");
      if (router != std::string::npos) result.back().name.insert(router + 12, "linear.");
      continue;
    }
    const bool is_bias = tensor.name.ends_with("_bias");
    const std::string list = tensor.name.substr(0, tensor.name.size() - (is_bias ? 5 : 0)) + "s.";
    for (uint64_t e = 0; e < tensor.shape[0]; ++e) {
      const Shape shape(tensor.shape.begin() + 1, tensor.shape.end());
      TestTensor one = {"", tensor.dtype, shape, row_of(tensor, e)};
      if (!is_bias) {
        one.bytes = transposed(one);
        std::swap(one.shape[0], one.shape[1]);
      }
      one.name = list + std::to_string(e) + (is_bias ? ".bias" : ".weight");
      result.push_back(one);
    }
  }
  return result;
}

TEST(Names, of_unsloth_give_the_same_bits) {
  const std::string golden = "gpt-oss-mxfp4";
  const TempDir folder;
  ThreadPool pool(2);
  const auto converted =
      convert_model(testing::golden_folder(golden), folder / "bf16", {.format = "bf16"}, pool);
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  const auto file = json::parse_file((folder / "bf16/config.json").string(), 1 << 20);
  const auto checkpoint_of = [&](const Tensors& tensors) {
    auto checkpoint = std::make_unique<Checkpoint>(golden, tensors);
    std::ofstream(checkpoint->path() / "config.json") << file->text();
    return checkpoint;
  };
  const Tensors stacks = read_tensors(folder / "bf16/model.safetensors");
  const auto apart = checkpoint_of(with_unsloth_names(stacks));
  const std::vector<float> logits = apart->logits();
  EXPECT_FALSE(logits.empty());
  EXPECT_EQ(logits, checkpoint_of(stacks)->logits());
  EXPECT_EQ(apart->errors(), std::vector<std::string>());
  const auto found = inspect(apart->path(), pool);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_NE(std::ranges::find(found->weights, "model.layers.0.mlp.experts.3.gate_up_proj",
                              &InspectedWeight::name),
            found->weights.end());
  Tensors twice = with_unsloth_names(stacks);
  twice.push_back(find(stacks, "model.layers.0.mlp.router.weight"));
  EXPECT_EQ(checkpoint_of(twice)->load_code(), "index.tensor_twice");
}

/// Other software has gate and up of an expert apart, or all experts in one tensor, with biases.
TEST(Names, of_unsloth_become_those_of_other_software) {
  const fs::path golden = testing::golden_folder("unsloth-gpt-oss-nf4");
  const TempDir folder;
  ThreadPool pool(2);
  for (const char* format : {"nf4", "f32"}) {
    const auto converted =
        convert_model(golden, folder / format, {.format = format, .allow_lossy = true}, pool);
    ASSERT_TRUE(converted.ok()) << converted.error().message;
    const auto backend = testing::make_test_backend(2);
    const auto model = load_model(folder / format, *backend);
    EXPECT_TRUE(model.ok()) << model.error().message;
    const auto diff = diff_models(golden, folder / format, pool);
    ASSERT_TRUE(diff.ok()) << diff.error().message;
    using Verdict = ComparedWeight::Verdict;
    for (const Verdict verdict : {Verdict::kOnlyFirst, Verdict::kOnlySecond, Verdict::kShape}) {
      EXPECT_EQ(diff->count(verdict), 0) << format << ": " << name_of(verdict);
    }
    if (format == std::string_view("nf4")) {
      EXPECT_TRUE(diff->same_values());
    }
  }
}

TEST(Names, of_missing_experts_are_one_finding) {
  Tensors tensors = read_golden("qwen3-moe-bf16");
  std::erase_if(tensors, [](const TestTensor& tensor) {
    return tensor.name.find("layers.0.mlp.experts.") != std::string::npos &&
           tensor.name.ends_with("gate_proj.weight");
  });
  const Checkpoint checkpoint("qwen3-moe-bf16", tensors);
  EXPECT_EQ(checkpoint.load_code(), "import.missing");
  const std::string layer = "model.layers.0.mlp.experts.";
  const std::vector<std::string> errors = checkpoint.errors();
  EXPECT_EQ(std::ranges::count(errors, "import.missing " + layer + "0.gate_proj"), 1);
  EXPECT_EQ(std::ranges::count_if(
                errors, [](const std::string& error) { return error.starts_with("import."); }),
            1);
}

/// Also where config.json asks for more experts than there is memory for their names.
TEST(Names, of_experts_that_are_not_there_take_no_time) {
  const std::string golden = "qwen3-moe-bf16";
  Tensors tensors = read_golden(golden);
  const Checkpoint checkpoint(golden, tensors);
  auto config = json::parse_file((checkpoint.path() / "config.json").string(), 1 << 20);
  ASSERT_TRUE(config.ok());
  (*config)["num_experts"] = 4096;
  (*config)["num_hidden_layers"] = 1024;
  (*config)["mlp_only_layers"] = nullptr;
  std::ofstream(checkpoint.path() / "config.json") << config->text();
  const std::vector<std::string> errors = checkpoint.errors();
  EXPECT_LT(errors.size(), 20u * 1024);
}

}  // namespace
}  // namespace subbyte
