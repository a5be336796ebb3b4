#include "support/test_context.h"
#include "support/test_names.h"
#include "transform/transform.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <numeric>

#include "models/model.h"
#include "support/paths.h"
#include "support/quantized_model.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using testing::Contents;
using testing::random_matrix;
using testing::RandomMatrix;

const fs::path kGoldens = fs::path(SUBBYTE_TEST_DATA) / "goldens";
constexpr WeightFormat kU4 = {Format::kU4, Format::kF16, Zero::kU8, 32};

Result<ConvertReport> convert(const fs::path& from, const fs::path& to, const std::string& format,
                              bool lossy = false, uint64_t shard_bytes = uint64_t{4} << 30) {
  ThreadPool pool(2);
  return convert_model(from, to, {format, lossy, shard_bytes}, pool);
}

std::string code_of(const fs::path& from, const fs::path& to, const std::string& format,
                    bool lossy = false) {
  const auto report = convert(from, to, format, lossy);
  return report.ok() ? "ok" : std::string(report.error().code);
}

RandomMatrix matrix_with_zeros(const WeightFormat& format, int64_t rows, int64_t cols,
                               uint64_t seed, uint64_t zero) {
  RandomMatrix matrix = random_matrix(format, rows, cols, Contents::kReal, seed);
  const int width = zero_bytes(format.zero);
  for (int64_t i = 0; width != 0 && i < rows * matrix.view.groups(); ++i) {
    std::memcpy(matrix.zeros->data() + i * width, &zero, width);
  }
  return matrix;
}

/// One module for each format.
QuantizedModel model_of(const std::string& exporter, const std::vector<WeightFormat>& formats,
                        uint64_t zero = 7) {
  QuantizedModel model = {exporter, {}};
  for (std::size_t i = 0; i < formats.size(); ++i) {
    ModelModule& module = model.modules.emplace_back();
    module.name = fmt::format("model.layers.{}.mlp.up_proj", i);
    module.matrices.push_back(matrix_with_zeros(formats[i], 32, 128, i + 1, zero));
  }
  return model;
}

json::Value section_of(const TempDir& folder, const std::string& directory) {
  const auto config = json::parse(folder.read(directory + "/config.json"), "config.json");
  return config.ok() ? config->at("quantization_config") : json::Value();
}

void expect_same_tensors(const fs::path& a, const fs::path& b) {
  ThreadPool pool(2);
  const auto diff = diff_models(a, b, pool);
  ASSERT_TRUE(diff.ok()) << diff.error().message;
  EXPECT_TRUE(diff->same_bytes());
}

struct Way {
  const char* golden;
  const char* there;
  const char* back;
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.golden << " to " << way.there << " to " << way.back;
}

class ConvertGolden : public ::testing::TestWithParam<Way> {};

TEST_P(ConvertGolden, goes_there_and_comes_back_to_the_byte) {
  const TempDir folder;
  const fs::path golden = kGoldens / GetParam().golden;
  const auto there = convert(golden, folder / "there", GetParam().there);
  ASSERT_TRUE(there.ok()) << there.error().message;
  const auto back = convert(folder / "there", folder / "back", GetParam().back);
  ASSERT_TRUE(back.ok()) << back.error().message;
  expect_same_tensors(golden, folder / "back");
  ThreadPool pool(2);
  const auto diff = diff_models(golden, folder / "there", pool);
  ASSERT_TRUE(diff.ok()) << diff.error().message;
  EXPECT_TRUE(diff->same_values());
  EXPECT_FALSE(diff->same_bytes());
}

INSTANTIATE_TEST_SUITE_P(
    goldens, ConvertGolden,
    ::testing::Values(Way{"qwen3-awq", "gptq_v2", "awq"}, Way{"qwen3-awq", "pack-quantized", "awq"},
                      Way{"qwen3-awq", "compressed-tensors", "awq"},
                      Way{"qwen3-gptq-v1", "pack_quantized", "gptq"},
                      Way{"qwen3-gptq-v1", "gptq_v2", "gptq"},
                      Way{"qwen3-gptq-v2", "pack_quantized", "gptq_v2"},
                      Way{"qwen3-gptq-act-order", "pack_quantized_lanes", "gptq"},
                      Way{"gpt-oss-mxfp4", "compressed-tensors", "mxfp4"},
                      Way{"gpt-oss-mxfp4", "nvfp4-pack-quantized", "mxfp4"}),
    NamedByValue());

TEST(ConvertModel, the_new_directory_gives_the_same_logits) {
  for (const auto& [golden, format] :
       {std::pair{"qwen3-gptq-v1", "compressed-tensors"}, std::pair{"qwen3-awq", "f32"},
        std::pair{"gpt-oss-mxfp4", "bf16"}}) {
    const TempDir folder;
    ASSERT_TRUE(convert(kGoldens / golden, folder / "new", format).ok());
    std::vector<std::vector<float>> logits;
    for (const fs::path& path : {kGoldens / golden, folder / "new"}) {
      const auto backend = testing::make_test_backend(1, "scalar");
      const auto model = load_model(path, *backend);
      ASSERT_TRUE(model.ok()) << model.error().message;
      const std::vector<int32_t> tokens = {3, 141, 59, 265};
      logits.push_back(testing::logits_of(**model, *backend, tokens));
    }
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < logits[0].size(); ++i) {
      difference += std::pow(static_cast<double>(logits[0][i]) - logits[1][i], 2);
      size += std::pow(static_cast<double>(logits[1][i]), 2);
    }
    // The same weights in sums of another order: about 2^-24 * sqrt(512) in a product, a few times
    // that after some layers.
    EXPECT_LT(std::sqrt(difference / size), 2e-5) << golden;
  }
}

TEST(ConvertModel, configs_are_those_that_readers_look_for) {
  const TempDir folder;
  write_model(model_of("pack_quantized", {{Format::kI4, Format::kF16, Zero::kNone, 32},
                                          {Format::kI4, Format::kF16, Zero::kNone, 64},
                                          {Format::kI4, Format::kF16, Zero::kNone, 64}}),
              folder, "source");
  ASSERT_EQ(code_of(folder / "source", folder / "awq", "awq"), "ok");
  EXPECT_EQ(section_of(folder, "awq").text(),
            R"({"quant_method":"awq","bits":4,"group_size":32,"version":"gemm","zero_point":true,)"
            R"("modules_to_not_convert":["model.layers.0.mlp.router"]})");
  ASSERT_EQ(code_of(folder / "source", folder / "gptq", "gptq"), "ok");
  const std::string gptq = section_of(folder, "gptq").text();
  EXPECT_EQ(gptq, R"({"quant_method":"gptq","bits":4,"group_size":64,"desc_act":false,"sym":true,)"
                  R"("lm_head":false,"true_sequential":true,"static_groups":false,)"
                  R"("checkpoint_format":"gptq","pack_dtype":"int32","dynamic":)"
                  R"({"+:^model\\.layers\\.0\\.mlp\\.up_proj$":{"bits":4,"group_size":32},)"
                  R"("-:^model\\.layers\\.0\\.mlp\\.router$":{}},)"
                  R"("modules_in_block_to_quantize":[["mlp.up_proj"]]})");
  EXPECT_EQ(json::parse(folder.read("gptq/quantize_config.json"), "side")->text(), gptq);
  ASSERT_EQ(code_of(folder / "gptq", folder / "ct", "compressed-tensors"), "ok");
  const json::Value ct = section_of(folder, "ct");
  EXPECT_EQ(ct["format"], "pack-quantized");
  EXPECT_EQ(ct["ignore"], json::Value({"model.layers.0.mlp.router", "lm_head"}));
  const json::Value& first = ct["config_groups"]["group_0"];
  EXPECT_EQ(first["targets"],
            json::Value({"model.layers.1.mlp.up_proj", "model.layers.2.mlp.up_proj"}));
  EXPECT_EQ(first["weights"].text(),
            R"({"num_bits":4,"type":"int","symmetric":true,"strategy":"group","group_size":64,)"
            R"("dynamic":false,"actorder":null})");
  EXPECT_EQ(ct["config_groups"]["group_1"]["weights"]["group_size"], 32);
  EXPECT_FALSE(fs::exists(folder / "ct/quantize_config.json"));
  expect_same_tensors(folder / "source", folder / "ct");
}

TEST(ConvertModel, floats_have_no_quantization_config_and_a_dtype) {
  const TempDir folder;
  write_model(model_of("awq", {kU4}), folder, "source");
  ASSERT_EQ(code_of(folder / "source", folder / "f32", "f32"), "ok");
  EXPECT_EQ(json::parse(folder.read("f32/config.json"), "config")->text(),
            R"({"model_type":"any","torch_dtype":"float32"})");
}

TEST(ConvertModel, layers_that_slide_are_said) {
  const fs::path golden = kGoldens / "qwen3-sliding-4-51";
  const TempDir folder;
  for (const char* format : {"bf16", "f32"}) {
    ASSERT_EQ(code_of(golden, folder / format, format), "ok");
    json::Value config =
        *json::parse(folder.read(std::string(format) + "/config.json"), "config.json");
    EXPECT_EQ(config["layer_types"],
              json::Value::array({"sliding_attention", "sliding_attention"}));
    // A later version would decide by max_window_layers, and does not need to now.
    config["transformers_version"] = "5.23.0";
    folder.write(std::string(format) + "/config.json", config.text());
    EXPECT_EQ(read_model_config(folder / format)->windows, std::vector<int64_t>(2, 5));
  }
}

TEST(ConvertModel, copies_side_files_but_not_those_of_the_old_format) {
  const TempDir folder;
  write_model(model_of("gptq", {kU4}), folder, "source");
  folder.write("source/tokenizer.json", "{tokens}");
  folder.write("source/quantize_config.json", "{}");
  folder.write("source/notes.txt", "mine");
  folder.write("source/.gitattributes", "");
  folder.write("source/Licence.md", "terms");
  folder.write("source/NOTICE", "names");
  std::string said;
  ThreadPool pool(1);
  ConvertOptions options;
  options.format = "awq";
  options.notice = [&](const std::string& line) { said += line; };
  ASSERT_TRUE(convert_model(folder / "source", folder / "new", options, pool).ok());
  EXPECT_TRUE(said.ends_with("source: not copied: \"notes.txt\"")) << said;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "new")) {
    names.insert(entry.path().filename().string());
  }
  EXPECT_EQ(names, (std::set<std::string>{"Licence.md", "NOTICE", "config.json",
                                          "model.safetensors", "tokenizer.json"}));
  EXPECT_EQ(folder.read("new/tokenizer.json"), "{tokens}");
}

TEST(ConvertModel, says_that_a_folder_of_templates_is_not_copied) {
  const TempDir folder;
  write_model(model_of("gptq", {kU4}), folder, "source");
  fs::create_directory(folder / "source" / "additional_chat_templates");
  ThreadPool pool(1);
  std::vector<std::string> lines;
  ConvertOptions options;
  options.format = "awq";
  options.notice = [&](const std::string& line) { lines.push_back(line); };
  ASSERT_TRUE(convert_model(folder / "source", folder / "new", options, pool).ok());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("additional_chat_templates: its chat templates are not copied"),
            std::string::npos);
}

TEST(ConvertModel, groups_of_several_sizes_become_the_one_size_of_awq) {
  const TempDir folder;
  const QuantizedModel model = model_of(
      "gptq",
      {kU4, {Format::kU4, Format::kF16, Zero::kU8, 0}, {Format::kU4, Format::kF16, Zero::kU8, 16}});
  write_model(model, folder, "source");
  ASSERT_EQ(code_of(folder / "source", folder / "awq", "awq"), "ok");
  EXPECT_EQ(section_of(folder, "awq")["group_size"], 16);
  expect_weights_of(model, folder / "awq");
}

TEST(ConvertModel, rows_of_one_group_say_the_size_that_others_have) {
  const TempDir folder;
  QuantizedModel model = model_of("awq", {kU4, kU4});
  const WeightFormat of_128 = {Format::kU4, Format::kF16, Zero::kU8, 128};
  model.modules[0].matrices[0] = matrix_with_zeros(of_128, 32, 256, 1, 7);
  model.modules[1].matrices[0] = matrix_with_zeros(of_128, 32, 128, 2, 7);
  write_model(model, folder, "source");
  ASSERT_EQ(code_of(folder / "source", folder / "gptq", "gptq"), "ok");
  const json::Value gptq = section_of(folder, "gptq");
  EXPECT_EQ(gptq["group_size"], 128);
  EXPECT_FALSE(gptq["dynamic"].text().find("group_size") != std::string::npos) << gptq.text();
  ASSERT_EQ(code_of(folder / "source", folder / "ct", "compressed-tensors"), "ok");
  EXPECT_EQ(section_of(folder, "ct")["config_groups"].size(), 1u);
  expect_weights_of(model, folder / "gptq");
  expect_weights_of(model, folder / "ct");
}

TEST(ConvertModel, act_order_in_runs_becomes_smaller_groups) {
  const TempDir folder;
  QuantizedModel model = model_of("gptq", {kU4});
  std::vector<uint32_t> order;  // groups 0 and 1 share runs of 16
  for (const uint32_t run : {0, 2, 1, 3, 4, 5, 6, 7}) {
    for (uint32_t k = 0; k < 16; ++k) order.push_back(16 * run + k);
  }
  model.modules[0].matrices[0].view.input_order = order;
  write_model(model, folder, "source");
  ASSERT_EQ(code_of(folder / "source", folder / "awq", "awq"), "ok");
  EXPECT_EQ(section_of(folder, "awq")["group_size"], 16);
  expect_weights_of(model, folder / "awq");
}

void set_scale(RandomMatrix& matrix, int64_t index, float scale) {
  std::memcpy(matrix.scales->data() + 4 * index, &scale, 4);
}

TEST(ConvertModel, f32_scales_that_are_numbers_of_f16_become_f16) {
  const TempDir folder;
  QuantizedModel model = model_of("pack_quantized", {{Format::kU4, Format::kF32, Zero::kU8, 32}});
  RandomMatrix& matrix = model.modules[0].matrices[0];
  for (int64_t i = 0; i < 128; ++i) set_scale(matrix, i, static_cast<float>(i + 1) * 0x1p-10f);
  write_model(model, folder, "source");
  ASSERT_EQ(code_of(folder / "source", folder / "awq", "awq"), "ok");
  expect_weights_of(model, folder / "awq");
  EXPECT_EQ(TensorSource::open(folder / "awq")->find("model.layers.0.mlp.up_proj.scales")->dtype,
            DType::kF16);
}

TEST(ConvertModel, names_the_scale_that_would_be_rounded_and_measures_it_when_told) {
  const TempDir folder;
  QuantizedModel model = model_of("pack_quantized", {{Format::kU4, Format::kF32, Zero::kU8, 32},
                                                     {Format::kU4, Format::kF32, Zero::kU8, 32}});
  for (ModelModule& module : model.modules) {
    for (int64_t i = 0; i < 128; ++i) set_scale(module.matrices[0], i, 1);
  }
  RandomMatrix& matrix = model.modules[1].matrices[0];
  set_scale(matrix, 6, 1 + 0x1p-12f);  // rounds to 1
  write_model(model, folder, "source");
  const auto refused = convert(folder / "source", folder / "awq", "awq");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "recast.scale");
  EXPECT_EQ(
      refused.error().message,
      "\"model.layers.1.mlp.up_proj\": scale 1.00024414 of output 1, group 2 has no exact form "
      "in f16");
  EXPECT_EQ(folder.names(), std::set<std::string>{"source"});
  const auto report = convert(folder / "source", folder / "awq", "awq", true);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->rounded_matrices, 1);
  double max = 0, sum = 0, signal = 0, noise = 0;
  for (int64_t n = 0; n < 32; ++n) {
    for (int64_t k = 0; k < 128; ++k) {
      const double weight = weight_at(matrix.view, n, k);
      signal += weight * weight;
      if (n != 1 || k / 32 != 2) continue;
      const double error = std::fabs(weight - weight / (1 + 0x1p-12));
      max = std::max(max, error);
      sum += error;
      noise += error * error;
    }
  }
  EXPECT_DOUBLE_EQ(report->loss.max, max);
  EXPECT_NEAR(report->loss.mean(), sum / (32 * 128), 1e-15);
  EXPECT_NEAR(report->loss.signal_to_noise_db(), 10 * std::log10(signal / noise), 1e-9);
  EXPECT_EQ(report->worst.name, model.modules[1].name);
  EXPECT_EQ(report->worst.signal_to_noise_db, report->loss.signal_to_noise_db());
}

/// `value` rounded to `digits` significant bits, ties to even; exponents are those of bf16 here.
double rounded(double value, int digits) {
  if (value == 0) return value;
  const double unit = std::ldexp(1.0, std::ilogb(value) - digits + 1);
  return std::nearbyint(value / unit) * unit;
}

TEST(ConvertModel, nf4_is_dequantized_to_the_nearest_bf16_only_when_told) {
  const TempDir folder;
  const QuantizedModel model = model_of("bnb_nf4", {{Format::kNF4, Format::kF32, Zero::kNone, 64}});
  write_model(model, folder, "source");
  const auto refused = convert(folder / "source", folder / "new", "bf16");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "convert.inexact");
  EXPECT_NE(refused.error().message.find("\"model.layers.0.mlp.up_proj\": output "),
            std::string::npos);
  const auto report = convert(folder / "source", folder / "new", "bf16", true);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->rounded_matrices, 1);
  const auto opened = OpenModel::open(folder / "new");
  ASSERT_TRUE(opened.ok());
  const auto matrix = opened->matrix(model.modules[0].name, 0, 1);
  ASSERT_TRUE(matrix.ok());
  const MatrixView& view = model.modules[0].matrices[0].view;
  double noise = 0, signal = 0;
  for (int64_t n = 0; n < view.rows; ++n) {
    for (int64_t k = 0; k < view.cols; ++k) {
      const double weight = weight_at(view, n, k);
      ASSERT_EQ(weight_at(matrix->view, n, k), rounded(weight, 8)) << n << " " << k;
      signal += weight * weight;
      noise += std::pow(weight - rounded(weight, 8), 2);
    }
  }
  EXPECT_NEAR(report->loss.signal_to_noise_db(), 10 * std::log10(signal / noise), 1e-9);
}

TEST(ConvertModel, weights_beyond_f16_are_refused_even_when_loss_is_allowed) {
  const TempDir folder;
  QuantizedModel model = model_of("bnb_nf4", {{Format::kNF4, Format::kF32, Zero::kNone, 64}});
  set_scale(model.modules[0].matrices[0], 3, 1e6f);
  write_model(model, folder, "source");
  EXPECT_EQ(code_of(folder / "source", folder / "new", "f16", true), "convert.overflow");
  EXPECT_EQ(folder.names(), std::set<std::string>{"source"});
}

TEST(ConvertModel, scales_of_activations_are_left_out_only_when_told) {
  const TempDir folder;
  const QuantizedModel model =
      model_of("modelopt_nvfp4", {{Format::kE2M1, Format::kE4M3, Zero::kNone, 16}});
  write_model(model, folder, "source");
  std::vector<TestTensor> tensors;
  const auto source = TensorSource::open(folder / "source");
  for (const auto& [name, tensor] : source->tensors()) {
    const std::string bytes(reinterpret_cast<const char*>(tensor.bytes.data()),
                            tensor.bytes.size());
    tensors.push_back({name, tensor.dtype, tensor.shape, bytes});
  }
  tensors.push_back(filled("model.layers.0.mlp.up_proj.input_scale", DType::kF32, {}, 0.5f));
  ASSERT_TRUE(write_tensors(folder / "source/model.safetensors", tensors).ok());
  EXPECT_EQ(code_of(folder / "source", folder / "new", "nvfp4-pack-quantized"),
            "convert.activation_scale");
  const auto report = convert(folder / "source", folder / "new", "nvfp4-pack-quantized", true);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->dropped_activation_scales, 1);
  EXPECT_EQ(report->rounded_matrices, 0);
  EXPECT_EQ(code_of(folder / "source", folder / "f32", "f32"), "ok");
}

TEST(ConvertModel, shards_hold_the_same_weights) {
  const TempDir folder;
  const QuantizedModel model = model_of("awq", {kU4, kU4, kU4});
  write_model(model, folder, "source");
  ASSERT_TRUE(convert(folder / "source", folder / "new", "gptq", false, 4096).ok());
  EXPECT_TRUE(fs::exists(folder / "new/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(folder / "new/model.safetensors"));
  expect_weights_of(model, folder / "new");
}

TEST(ConvertModel, refuses_what_there_is_nothing_to_do_for) {
  const TempDir folder;
  EXPECT_EQ(code_of(kGoldens / "qwen3-bf16", folder / "x", "awq"), "convert.not_quantized");
  EXPECT_EQ(code_of(kGoldens / "qwen3-awq", folder / "x", "onnx"), "convert.format");
  EXPECT_EQ(code_of(folder / "none", folder / "x", "awq"), "file.not_found");
  folder.write("x/config.json", "mine");
  EXPECT_EQ(code_of(kGoldens / "qwen3-awq", folder / "x", "gptq_v2"), "file.exists");
  EXPECT_EQ(folder.read("x/config.json"), "mine");
  EXPECT_EQ(folder.names(), std::set<std::string>{"x"});
}

TEST(ConvertModel, leaves_nothing_when_the_disk_is_full) {
  for (const rlim_t bytes : {100, 5'000, 200'000}) {
    const TempDir folder;
    const pid_t child = fork();
    if (child == 0) {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit = {bytes, bytes};
      setrlimit(RLIMIT_FSIZE, &limit);
      ThreadPool pool(1);
      const auto report = convert_model(kGoldens / "qwen3-awq", folder / "new", {"gptq_v2"}, pool);
      _exit(!report.ok() && report.error().code == "file.no_space" ? 7 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 7) << bytes;
    EXPECT_TRUE(folder.names().empty());
  }
}

TEST(ConvertModel, a_directory_without_tensors_is_refused) {
  const TempDir folder;
  folder.write("source/config.json", R"({"model_type": "foo"})");
  folder.write("source/model.safetensors", std::string_view("\x08\0\0\0\0\0\0\0{}      ", 16));
  for (const bool allow_lossy : {false, true}) {
    const auto refused = convert(folder / "source", folder / "new", "f32", allow_lossy);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, "index.no_checkpoint");
    EXPECT_FALSE(fs::exists(folder / "new"));
  }
}

}  // namespace
}  // namespace subbyte
