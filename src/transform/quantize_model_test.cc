#include "support/test_context.h"
#include "transform/transform.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>

#include "base/float16.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "checkpoints/importer.h"
#include "json/strict_json.h"
#include "models/model.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_tensors.h"
#include "synth/synth.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-bf16";
constexpr std::array kModules = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                 "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                 "mlp.down_proj"};

Result<QuantizeReport> quantize(const fs::path& source, const fs::path& destination,
                                int64_t group_size = 128, int threads = 2) {
  ThreadPool pool(threads);
  return quantize_model(source, destination, {"awq", group_size}, pool);
}

QuantizationConfig quantization_of(const fs::path& directory) {
  const std::string where = (directory / "config.json").string();
  const auto value = json::parse_file(where, 1 << 20);
  return *read_quantization_config(*json::Object::of(*value, where), directory);
}

std::vector<std::string> module_names(int layers) {
  std::vector<std::string> names;
  for (int i = 0; i < layers; ++i) {
    for (const char* module : kModules)
      names.push_back(fmt::format("model.layers.{}.{}", i, module));
  }
  return names;
}

double bfloat16_at(const FileTensor& tensor, int64_t index) {
  uint16_t bits = 0;
  std::memcpy(&bits, tensor.bytes.data() + 2 * index, 2);
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

/// `value` > 0 rounded to 11 significant bits, ties to even: F16 between 2^-14 and 65504.
double round_to_half(double value) {
  const double unit = std::exp2(std::floor(std::log2(value)) - 10);
  return std::nearbyint(value / unit) * unit;
}

/// What one group of weights becomes, straight from the formula in round_to_nearest.h.
struct OracleGroup {
  double scale;
  std::vector<double> weights;
};

OracleGroup quantized_group(const std::vector<double>& weights) {
  const double low = std::min(0.0, *std::ranges::min_element(weights));
  const double high = std::max(0.0, *std::ranges::max_element(weights));
  OracleGroup group = {round_to_half((high - low) / 15), {}};
  const double zero = std::min(15.0, std::nearbyint(-low / group.scale));
  for (const double weight : weights) {
    const double code = std::nearbyint(weight / group.scale) + zero;
    group.weights.push_back((std::min(15.0, std::max(0.0, code)) - zero) * group.scale);
  }
  return group;
}

TEST(quantize_model, weights_are_those_of_the_formula_in_double_precision) {
  const TempDir directory;
  const auto report = quantize(kGolden, directory / "awq");
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto source = TensorSource::open(kGolden);
  const auto result = TensorSource::open(directory / "awq");
  ASSERT_TRUE(source.ok() && result.ok());
  const QuantizationConfig config = quantization_of(directory / "awq");
  ThreadPool pool(1);
  double signal = 0, noise = 0, largest_noise = 0;
  for (const std::string& module : module_names(2)) {
    const auto matrix = import_matrix({*result, config, pool}, module);
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    const MatrixView& view = matrix->view;
    const FileTensor& weight = *source->find(module + ".weight");
    ASSERT_EQ(weight.shape,
              (Shape{static_cast<uint64_t>(view.rows), static_cast<uint64_t>(view.cols)}));
    for (int64_t n = 0; n < view.rows; ++n) {
      for (int64_t first = 0; first < view.cols; first += 128) {
        std::vector<double> weights;
        for (int64_t k = first; k < first + 128; ++k) {
          weights.push_back(bfloat16_at(weight, n * view.cols + k));
        }
        const OracleGroup oracle = quantized_group(weights);
        // Half a step, and what a scale that was rounded down cannot reach: round_to_nearest.h.
        const double bound = (0.5 + 15 * 0x1p-11) * oracle.scale;
        for (int64_t i = 0; i < 128; ++i) {
          ASSERT_EQ(weight_at(view, n, first + i), oracle.weights[i]) << module << n << " " << i;
          const double error = weights[i] - oracle.weights[i];
          ASSERT_LE(std::fabs(error), bound);
          signal += weights[i] * weights[i];
          noise += error * error;
          largest_noise += bound * bound;
        }
      }
    }
  }
  EXPECT_EQ(report->quantized_matrices, 14);
  EXPECT_NEAR(report->signal_to_noise_db, 10 * std::log10(signal / noise), 1e-9);
  EXPECT_GT(report->signal_to_noise_db, 10 * std::log10(signal / largest_noise));
  // Errors spread evenly over a step have a third of the largest square: 4.77 dB. A quantizer
  // that truncated would be 6 dB worse than one that rounds.
  EXPECT_NEAR(report->signal_to_noise_db, 10 * std::log10(3 * signal / largest_noise), 0.5);
}

TEST(quantize_model, keeps_everything_else_as_16_bit_floats) {
  const TempDir directory;
  const auto report = quantize(kGolden, directory / "awq");
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto source = TensorSource::open(kGolden);
  const auto result = TensorSource::open(directory / "awq");
  ASSERT_TRUE(source.ok() && result.ok());
  int64_t kept = 0;
  for (const auto& [name, tensor] : source->tensors()) {
    if (name.find("_proj.") != std::string::npos) {
      EXPECT_EQ(result->find(name), nullptr) << name;
      continue;
    }
    const FileTensor* half = result->find(name);
    ASSERT_NE(half, nullptr) << name;
    EXPECT_EQ(half->dtype, DType::kF16);
    ASSERT_EQ(half->shape, tensor.shape);
    for (std::size_t i = 0; i < tensor.bytes.size() / 2; ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, half->bytes.data() + 2 * i, 2);
      const double value = bfloat16_at(tensor, static_cast<int64_t>(i));
      // 8 significant bits fit into 11: exact, except below the normal numbers of F16.
      const double unit = std::fabs(value) < 0x1p-14 ? 0x1p-24 : 0;
      const double expected = unit == 0 ? value : std::nearbyint(value / unit) * unit;
      ASSERT_EQ(to_float(Float16{bits}), expected) << name << " " << i;
    }
    ++kept;
  }
  EXPECT_EQ(report->kept_tensors, kept);
  EXPECT_EQ(report->source_bytes, source->total_bytes());
  EXPECT_EQ(report->result_bytes, result->total_bytes());
}

TEST(quantize_model, config_keeps_its_keys_in_order_and_names_the_container) {
  const TempDir directory;
  ASSERT_TRUE(quantize(kGolden, directory / "awq", 64).ok());
  auto before = *json::parse_file((kGolden / "config.json").string(), 1 << 20);
  const auto after = *json::parse_file((directory / "awq/config.json").string(), 1 << 20);
  before["torch_dtype"] = "float16";
  before["quantization_config"] = *json::parse(
      R"({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm",
          "zero_point": true, "modules_to_not_convert": null})",
      "expected");
  EXPECT_EQ(before.text(), after.text());
}

TEST(quantize_model, logits_are_those_of_the_dequantized_weights) {
  const TempDir directory;
  ASSERT_TRUE(quantize(kGolden, directory / "awq").ok());
  const auto source = TensorSource::open(directory / "awq");
  ASSERT_TRUE(source.ok());
  const QuantizationConfig config = quantization_of(directory / "awq");
  ThreadPool pool(1);
  std::vector<TestTensor> tensors;
  for (const auto& [name, tensor] : source->tensors()) {
    if (tensor.dtype != DType::kF16 || name.ends_with(".scales")) continue;
    tensors.push_back({name, tensor.dtype, tensor.shape, {}});
    tensors.back().bytes.assign(reinterpret_cast<const char*>(tensor.bytes.data()),
                                tensor.bytes.size());
  }
  for (const std::string& module : module_names(2)) {
    const auto matrix = import_matrix({*source, config, pool}, module);
    ASSERT_TRUE(matrix.ok());
    const MatrixView& view = matrix->view;
    const Shape shape = {static_cast<uint64_t>(view.rows), static_cast<uint64_t>(view.cols)};
    TestTensor& plain = tensors.emplace_back(filled(module + ".weight", DType::kF32, shape, 0.0f));
    for (int64_t i = 0; i < view.rows * view.cols; ++i) {
      // Exact: a difference of codes has 5 bits, a scale 11.
      plain.set(i, static_cast<float>(weight_at(view, i / view.cols, i % view.cols)));
    }
  }
  fs::create_directory(directory / "plain");
  fs::copy_file(kGolden / "config.json", directory / "plain/config.json");
  ASSERT_TRUE(write_tensors(directory / "plain/model.safetensors", tensors).ok());

  std::vector<std::vector<float>> logits;
  for (const char* name : {"awq", "plain"}) {
    const auto backend = testing::make_test_backend(1);
    const auto model = load_model(directory / name, *backend);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const std::vector<int32_t> tokens = {3, 141, 59, 265};
    logits.push_back(testing::logits_of(**model, *backend, tokens));
  }
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < logits[0].size(); ++i) {
    difference += std::pow(static_cast<double>(logits[0][i]) - logits[1][i], 2);
    size += std::pow(static_cast<double>(logits[1][i]), 2);
  }
  // Equal weights, so only the rounding of binary32 differs: about 2^-24 * sqrt(512) in a product,
  // a few times that after two layers. One group with a wrong scale would be above 1e-3.
  EXPECT_LT(std::sqrt(difference / size), 2e-5);
}

TEST(quantize_model, same_bytes_for_any_number_of_threads) {
  const TempDir directory;
  const auto one = quantize(kGolden, directory / "one", 32, 1);
  const auto three = quantize(kGolden, directory / "three", 32, 3);
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_EQ(directory.read("one/model.safetensors"), directory.read("three/model.safetensors"));
  EXPECT_EQ(one->signal_to_noise_db, three->signal_to_noise_db);
}

TEST(quantize_model, copies_side_files_and_nothing_else) {
  const TempDir directory;
  fs::copy(kGolden, directory / "source");
  directory.write("source/tokenizer.json", "{tokens}");
  directory.write("source/merges.txt", "");
  directory.write("source/chat_template.jinja", "{{ text }}");
  const std::set<std::string> others = {"preprocessor_config.json", "processor_config.json",
                                        "video_preprocessor_config.json"};
  for (const std::string& name : others) directory.write("source/" + name, "{}");
  directory.write("source/pytorch_model.bin", "old");
  directory.write("source/notes.txt", "mine");
  ASSERT_TRUE(quantize(directory / "source", directory / "awq").ok());
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory / "awq")) {
    names.insert(entry.path().filename().string());
  }
  std::set<std::string> expected = {"config.json", "model.safetensors", "tokenizer.json",
                                    "merges.txt", "chat_template.jinja"};
  expected.insert(others.begin(), others.end());  // without which a wrapper has no processor
  EXPECT_EQ(names, expected);
  EXPECT_EQ(directory.read("awq/tokenizer.json"), "{tokens}");
}

/// A one-layer model of F32 weights that a test spoils.
struct Small {
  int64_t key_rows = 8;
  uint64_t norm_size = 16;
  std::string also;     // a tensor that config.json does not ask for
  std::string spoiled;  // the tensor whose element 5 becomes `value`
  float value = 0;
  std::string missing;
  std::string scaled;  // the tensor all of whose elements are multiplied by `factor`
  float factor = 1;

  void write(const TempDir& directory) const {
    directory.write("source/config.json", fmt::format(R"({{"model_type": "qwen3",
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": {}, "vocab_size": 10,
        "max_position_embeddings": 32, "tie_word_embeddings": true}})",
                                                      key_rows));
    const uint64_t head = key_rows;
    std::vector<TestTensor> tensors;
    Random random(2);
    const auto add = [&](const std::string& name, const Shape& shape) {
      if (name == missing) return;
      TestTensor& tensor = tensors.emplace_back(random_floats(name, DType::kF32, shape, random));
      if (name == spoiled) tensor.set(5, value);
      if (name != scaled) return;
      for (std::size_t i = 0; i < tensor.bytes.size() / 4; ++i) {
        tensor.set(i, tensor.at<float>(i) * factor);
      }
    };
    add("model.embed_tokens.weight", {10, 16});
    add("model.norm.weight", {norm_size});
    if (!also.empty()) add(also, {24, 16});
    const std::string layer = "model.layers.0.";
    add(layer + "input_layernorm.weight", {16});
    add(layer + "post_attention_layernorm.weight", {16});
    add(layer + "self_attn.q_proj.weight", {2 * head, 16});
    add(layer + "self_attn.k_proj.weight", {head, 16});
    add(layer + "self_attn.v_proj.weight", {head, 16});
    add(layer + "self_attn.o_proj.weight", {16, 2 * head});
    add(layer + "self_attn.q_norm.weight", {head});
    add(layer + "self_attn.k_norm.weight", {head});
    add(layer + "mlp.gate_proj.weight", {24, 16});
    add(layer + "mlp.up_proj.weight", {24, 16});
    add(layer + "mlp.down_proj.weight", {16, 24});
    EXPECT_TRUE(write_tensors(directory / "source/model.safetensors", tensors).ok());
  }
};

Small spoiled(const std::string& name, float value) {
  Small small;
  small.spoiled = name;
  small.value = value;
  return small;
}

/// Quantizes it; the error, and nothing may be left.
Error refusal_of(const Small& small, int64_t group_size = 8) {
  const TempDir directory;
  small.write(directory);
  const auto report = quantize(directory / "source", directory / "awq", group_size);
  EXPECT_EQ(directory.names().contains("awq"), report.ok());
  EXPECT_EQ(directory.names().size(), report.ok() ? 2u : 1u);
  return report.ok() ? Error{"ok", ""} : report.error();
}

void expect_refused(const Small& small, std::string_view code, std::string_view named) {
  const Error error = refusal_of(small);
  EXPECT_EQ(error.code, code);
  EXPECT_NE(error.message.find(named), std::string::npos) << error.message;
}

TEST(quantize_model, takes_32_bit_floats_and_groups_of_8) {
  const TempDir directory;
  Small().write(directory);
  const auto report = quantize(directory / "source", directory / "awq", 8);
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto backend = testing::make_test_backend(1);
  const auto model = load_model(directory / "awq", *backend);
  EXPECT_TRUE(model.ok()) << model.error().message;
}

TEST(quantize_model, names_the_tensor_that_f16_or_4_bits_cannot_hold) {
  const std::string linear = "model.layers.0.mlp.gate_proj.weight";
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  expect_refused(spoiled("model.norm.weight", 65520), "quantize.f16_overflow",
                 "\"model.norm.weight\"");
  EXPECT_EQ(refusal_of(spoiled("model.norm.weight", 65519)).code, "ok");
  expect_refused(spoiled("model.embed_tokens.weight", -1e6f), "quantize.f16_overflow",
                 "element 5 is -1000000, beyond f16");
  expect_refused(spoiled("model.embed_tokens.weight", kInfinity), "quantize.not_finite",
                 "\"model.embed_tokens.weight\"");
  expect_refused(spoiled(linear, kNan), "quantize.not_finite", linear);
  expect_refused(spoiled(linear, 1e6f), "quantize.scale_overflow", linear);
}

TEST(quantize_model, refuses_to_lose_a_tensor_and_names_it) {
  // Numbers up to 2 become ones up to 2^-27: f16 ends at 2^-24.
  for (const std::string name : {"model.layers.0.mlp.up_proj", "model.norm.weight"}) {
    Small small;
    small.scaled = name.ends_with("_proj") ? name + ".weight" : name;
    small.factor = 0x1p-28f;
    expect_refused(small, "quantize.loss", "\"" + name + "\"");
    const TempDir directory;
    small.write(directory);
    ThreadPool pool(2);
    const auto report = quantize_model(directory / "source", directory / "awq",
                                       {.group_size = 8, .allow_lossy = true}, pool);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report->worst.name, name);
    EXPECT_LT(report->worst.signal_to_noise_db, 10);
  }
}

TEST(quantize_model, says_which_matrix_lost_most) {
  const TempDir directory;
  Small small = spoiled("model.layers.0.self_attn.o_proj.weight", 30);  // beside others of 1
  small.write(directory);
  const auto report = quantize(directory / "source", directory / "awq", 8);
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto source = TensorSource::open(directory / "source");
  const auto result = TensorSource::open(directory / "awq");
  ASSERT_TRUE(source.ok() && result.ok());
  const QuantizationConfig config = quantization_of(directory / "awq");
  ThreadPool pool(1);
  std::string worst;
  double least = 1e9;
  for (const std::string& module : module_names(1)) {
    const auto matrix = import_matrix({*result, config, pool}, module);
    ASSERT_TRUE(matrix.ok());
    const MatrixView& view = matrix->view;
    double signal = 0, noise = 0;
    for (int64_t i = 0; i < view.rows * view.cols; ++i) {
      float weight = 0;
      std::memcpy(&weight, source->find(module + ".weight")->bytes.data() + 4 * i, 4);
      signal += std::pow(weight, 2);
      noise += std::pow(weight - weight_at(view, i / view.cols, i % view.cols), 2);
    }
    const double db = 10 * std::log10(signal / noise);
    if (db < least) worst = module;
    least = std::min(least, db);
  }
  EXPECT_EQ(report->worst.name, worst);
  EXPECT_NEAR(report->worst.signal_to_noise_db, least, 1e-9);
  EXPECT_LT(report->worst.signal_to_noise_db, report->signal_to_noise_db);
}

TEST(quantize_model, names_the_tensor_that_does_not_fit_the_container) {
  Small narrow;
  narrow.key_rows = 4;
  expect_refused(narrow, "export.shape", "self_attn.k_proj");
  Small incomplete;
  incomplete.missing = "model.layers.0.self_attn.v_proj.weight";
  expect_refused(incomplete, "import.missing", "\"model.layers.0.self_attn.v_proj.weight\"");
  incomplete.missing = "model.norm.weight";
  expect_refused(incomplete, "import.missing", "\"model.norm.weight\"");
  Small other;
  other.norm_size = 8;
  expect_refused(other, "import.shape", "\"model.norm.weight\": expected shape [16], found [8]");
  Small surplus;
  surplus.also = "model.layers.1.mlp.up_proj.weight";
  expect_refused(surplus, "model.surplus", "\"model.layers.1.mlp.up_proj.weight\"");
  const Error group = refusal_of({}, 16);  // 24 inputs of down_proj
  EXPECT_EQ(group.code, "quantize.group_size");
  EXPECT_NE(
      group.message.find("down_proj.weight\": 24 inputs are not a multiple of the group size"),
      std::string::npos)
      << group.message;
  for (const int64_t size : {0, -1, 12}) {
    EXPECT_EQ(refusal_of({}, size).code, "quantize.group_size") << size;
  }
}

TEST(quantize_model, refuses_models_and_formats_without_an_awq_form) {
  const TempDir directory;
  ThreadPool pool(1);
  EXPECT_EQ(quantize(kGolden.parent_path() / "qwen3-awq", directory / "x").error().code,
            "quantize.already_quantized");
  SynthOptions options;
  options.arch = "gpt-oss";
  options.shape = "tiny";
  options.format = "bf16";
  ASSERT_TRUE(synthesize(directory / "experts", options, pool).ok());
  EXPECT_EQ(quantize(directory / "experts", directory / "x").error().code, "quantize.model_type");
  EXPECT_EQ(quantize_model(kGolden, directory / "x", {"gguf", 128}, pool).error().code,
            "quantize.format");
  EXPECT_FALSE(fs::exists(directory / "x"));
}

TEST(quantize_model, does_not_write_over_what_is_there) {
  const TempDir directory;
  directory.write("awq/config.json", "mine");
  const auto report = quantize(kGolden, directory / "awq");
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, "file.exists");
  EXPECT_EQ(directory.read("awq/config.json"), "mine");
  QuantizeOptions options = {.format = "gptq", .bits = 3.4};
  bool is_measured = false;
  options.measure = [&](auto&&...) -> Result<double> {
    is_measured = true;
    return 1.0;
  };
  ThreadPool pool(1);
  EXPECT_FALSE(quantize_model(kGolden, directory / "awq", options, pool).ok());
  EXPECT_FALSE(is_measured);
  EXPECT_EQ(directory.names(), std::set<std::string>{"awq"});
}

TEST(quantize_model, leaves_nothing_when_the_disk_is_full) {
  const TempDir directory;
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {200'000, 200'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto report = quantize(kGolden, directory / "awq", 128, 1);
    _exit(!report.ok() && report.error().code == "file.no_space" ? 7 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_TRUE(directory.names().empty());
}

TEST(quantize_model, groups_are_halved_until_they_divide_the_inputs) {
  const TempDir directory;
  Small().write(directory);  // 16 and 24 inputs
  ThreadPool pool(1);
  const auto report = quantize_model(directory / "source", directory / "q", {}, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->group_size, 8);
  const auto rows =
      quantize_model(directory / "source", directory / "rows",
                     {.format = "compressed-tensors", .group_size = 0, .bits = 4.0}, pool);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_TRUE(load_model(directory / "rows", *testing::make_test_backend(1)).ok());
  const auto gptq = quantize_model(directory / "source", directory / "x", {.format = "gptq"}, pool);
  EXPECT_EQ(gptq.error().code, "quantize.group_size");
}

}  // namespace
}  // namespace subbyte
