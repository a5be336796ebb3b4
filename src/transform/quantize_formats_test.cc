// Quantizing into other formats than AWQ: stacks of experts, factors that matrices share, shards,
// and runs that go on where another was stopped.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/partial_name.h"
#include "base/thread_pool.h"
#include "checkpoints/importer.h"
#include "checkpoints/modules.h"
#include "json/strict_json.h"
#include "models/model.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "synth/synth.h"
#include "transform/module_pattern.h"
#include "transform/probing_backend.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-bf16";

/// "bits" of the quantization_config, a number or a list.
json::Value said_bits(const fs::path& directory) {
  const auto config = json::parse_file((directory / "config.json").string(), 1 << 20);
  return config.ok() ? config->at("quantization_config").at("bits") : json::Value();
}

QuantizationConfig quantization_of(const fs::path& directory) {
  const std::string where = (directory / "config.json").string();
  const auto value = json::parse_file(where, 1 << 20);
  return *read_quantization_config(*json::Object::of(*value, where), directory);
}

double bfloat16_at(const FileTensor& tensor, int64_t index) {
  uint16_t bits = 0;
  std::memcpy(&bits, tensor.bytes.data() + 2 * index, 2);
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

/// The matrices of a directory by name, as doubles.
std::map<std::string, std::vector<double>> weights_of(const fs::path& directory) {
  const auto source = TensorSource::open(directory);
  EXPECT_TRUE(source.ok());
  const QuantizationConfig config = quantization_of(directory);
  ThreadPool pool(1);
  std::map<std::string, std::vector<double>> result;
  const ImportContext context = {*source, config, pool};
  for (const FoundModule& module : find_modules(context)) {
    const auto matrices = import_experts(context, module.name);
    EXPECT_TRUE(matrices.ok());
    for (const Matrix& matrix : *matrices) {
      for (int64_t i = 0; i < matrix.view.rows * matrix.view.cols; ++i) {
        result[module.name].push_back(
            weight_at(matrix.view, i / matrix.view.cols, i % matrix.view.cols));
      }
    }
  }
  return result;
}

SynthOptions synth_options(const std::string& arch) {
  SynthOptions options;
  options.arch = arch;
  options.shape = "tiny";
  options.format = "bf16";
  return options;
}

TEST(QuantizeFormats, experts_of_a_stack_are_those_of_its_transposed_and_alternating_rows) {
  const TempDir directory;
  ThreadPool pool(2);
  ASSERT_TRUE(synthesize(directory / "source", synth_options("gpt-oss"), pool).ok());
  ASSERT_TRUE(quantize_model(directory / "source", directory / "q", {.format = "int8"}, pool).ok());
  const auto source = TensorSource::open(directory / "source");
  ASSERT_TRUE(source.ok());
  const auto quantized = weights_of(directory / "q");
  const std::string stack = "model.layers.1.mlp.experts.";
  // [experts][inputs][outputs]; even outputs are gate, odd ones up.
  const FileTensor& tensor = *source->find(stack + "gate_up_proj");
  const auto inputs = static_cast<int64_t>(tensor.shape[1]);
  const auto outputs = static_cast<int64_t>(tensor.shape[2]);
  for (int64_t e = 0; e < static_cast<int64_t>(tensor.shape[0]); ++e) {
    for (int64_t part = 0; part < 2; ++part) {
      const auto& found =
          quantized.at(fmt::format("{}{}.{}_proj", stack, e, part == 0 ? "gate" : "up"));
      ASSERT_EQ(std::ssize(found), inputs * outputs / 2);
      for (int64_t n = 0; n < outputs / 2; ++n) {
        double largest = 0;
        const auto at = [&](int64_t k) {
          return bfloat16_at(tensor, (e * inputs + k) * outputs + 2 * n + part);
        };
        for (int64_t k = 0; k < inputs; ++k) largest = std::max(largest, std::fabs(at(k)));
        for (int64_t k = 0; k < inputs; ++k) {
          // Half a step of 2 largest / 255, and what rounding it to f16 adds at the ends.
          ASSERT_NEAR(found[n * inputs + k], at(k), 1.13 * largest / 255) << e << part << n << k;
        }
      }
    }
  }
}

TEST(QuantizeFormats, what_is_multiplied_as_one_shares_its_factor) {
  const TempDir directory;
  ThreadPool pool(2);
  const fs::path source = kGolden.parent_path() / "qwen3-moe-bf16";
  const auto report = quantize_model(source, directory / "q", {.format = "nvfp4"}, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto result = TensorSource::open(directory / "q");
  ASSERT_TRUE(result.ok());
  const auto factor = [&](const std::string& module) {
    float value = 0;
    const FileTensor* tensor = result->find("model.layers.0." + module + ".weight_global_scale");
    EXPECT_NE(tensor, nullptr) << module;
    if (tensor != nullptr) std::memcpy(&value, tensor->bytes.data(), 4);
    return value;
  };
  const float attention = factor("self_attn.q_proj");
  EXPECT_GT(attention, 0);
  EXPECT_EQ(factor("self_attn.k_proj"), attention);
  EXPECT_EQ(factor("self_attn.v_proj"), attention);
  EXPECT_NE(factor("self_attn.o_proj"), attention);
  EXPECT_EQ(factor("mlp.experts.3.gate_proj"), factor("mlp.experts.3.up_proj"));
  EXPECT_NE(factor("mlp.experts.3.gate_proj"), factor("mlp.experts.2.gate_proj"));
}

TEST(QuantizeFormats, kbit_of_each_width_and_of_several) {
  constexpr double kDb[] = {9.8, 15.9, 22.1, 28.2};  // of normal numbers (docs/kbit.md)
  const TempDir directory;
  ThreadPool pool(2);
  const auto backend = testing::make_test_backend(1);
  for (int bits = 2; bits <= 5; ++bits) {
    const std::string name = fmt::format("kbit{}", bits);
    const auto report = quantize_model(kGolden, directory / name, {.format = name}, pool);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_NEAR(report->signal_to_noise_db, kDb[bits - 2], 0.5) << name;
    EXPECT_EQ(said_bits(directory / name), json::Value(bits));
    EXPECT_TRUE(load_model(directory / name, *backend).ok());
  }
  const auto mixed =
      quantize_model(kGolden, directory / "mixed", {.format = "kbit", .bits = 3.4}, pool);
  ASSERT_TRUE(mixed.ok()) << mixed.error().message;
  EXPECT_GT(said_bits(directory / "mixed").size(), 1u);
  EXPECT_TRUE(load_model(directory / "mixed", *backend).ok());
  EXPECT_EQ(mixed->format, "kbit");
}

TEST(QuantizeFormats, the_name_of_a_report_is_what_was_written) {
  const auto name_of = [](std::string_view name, std::optional<double> bits) {
    const auto format = choose_quantize_format(name, bits);
    return std::string(format.ok() ? (*format)->name : format.error().code);
  };
  EXPECT_EQ(name_of("kbit", {}), "kbit4");
  EXPECT_EQ(name_of("vq", {}), "vq2");
  for (int bits = 2; bits <= 5; ++bits) {
    EXPECT_EQ(name_of("kbit", bits), fmt::format("kbit{}", bits));
    EXPECT_EQ(name_of(fmt::format("kbit{}", bits), bits), fmt::format("kbit{}", bits));
    EXPECT_EQ(name_of(fmt::format("KBIT{}", bits), bits == 5 ? 4 : bits + 1), "quantize.bits");
    EXPECT_EQ(name_of(fmt::format("kbit{}", bits), bits + 0.5), "quantize.bits");
  }
  EXPECT_EQ(name_of("vq", 4), "vq4");
  EXPECT_EQ(name_of("vq4", 2), "quantize.bits");
  EXPECT_EQ(name_of("kbit", 3.4), "kbit");  // a mean of widths
  EXPECT_EQ(name_of("vq", 2.5), "vq");
  EXPECT_EQ(name_of("kbit", 6), "quantize.bits");
  EXPECT_EQ(name_of("gptq", 3), "gptq");
  EXPECT_EQ(name_of("awq", 3), "quantize.bits");
  EXPECT_EQ(name_of("w4a16", {}), "compressed-tensors");
  EXPECT_EQ(name_of("w4a16", 4), "compressed-tensors");
  EXPECT_EQ(name_of("W4A16", 8), "quantize.bits");
  EXPECT_EQ(name_of("w8a16", 8), "int8");
  EXPECT_EQ(name_of("bnb", {}), "nf4");
}

TEST(QuantizeFormats, names_of_other_software_say_what_is_meant) {
  const auto said = [](std::string_view name) {
    const auto format = choose_quantize_format(name, {});
    EXPECT_FALSE(format.ok()) << name;
    return format.ok() ? "" : format.error().message;
  };
  EXPECT_NE(said("int4").find("awq, gptq or w4a16"), std::string::npos);
  EXPECT_NE(said("4bit").find("awq, gptq or w4a16"), std::string::npos);
  EXPECT_NE(said("W4A16_ASYM").find("w4a16 with --asymmetric"), std::string::npos);
  EXPECT_NE(said("w8a8").find("int8"), std::string::npos);
  EXPECT_NE(said("Q4_K_M").find("GGUF"), std::string::npos);
  EXPECT_NE(said("hqq").find("not written"), std::string::npos);
  EXPECT_NE(said("marlin").find("`subbyte pack --to marlin`"), std::string::npos);
  EXPECT_NE(said("bf16").find("`subbyte convert --to bf16`"), std::string::npos);
  EXPECT_NE(said("nf5").find("expected one of awq, gptq"), std::string::npos);
}

TEST(QuantizeFormats, kbit_and_vq_of_experts_whose_rows_alternate) {
  const TempDir directory;
  ThreadPool pool(2);
  ASSERT_TRUE(synthesize(directory / "source", synth_options("gpt-oss"), pool).ok());
  const auto backend = testing::make_test_backend(1);
  for (const char* format : {"kbit4", "vq2"}) {
    ASSERT_TRUE(
        quantize_model(directory / "source", directory / format, {.format = format}, pool).ok());
    const auto model = load_model(directory / format, *backend);
    EXPECT_TRUE(model.ok()) << model.error().message;
  }
}

TEST(QuantizeFormats, vq_of_each_width_says_that_it_is_rotated) {
  constexpr double kDb[] = {10.4, 22.2};  // of normal numbers (docs/kbit.md)
  const TempDir directory;
  ThreadPool pool(2);
  const auto backend = testing::make_test_backend(1);
  const std::vector<int32_t> tokens = {3, 141, 59, 265};
  for (const int bits : {2, 4}) {
    const std::string name = fmt::format("vq{}", bits);
    const auto report = quantize_model(kGolden, directory / name, {.format = name}, pool);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_NEAR(report->signal_to_noise_db, kDb[bits == 4], 0.5) << name;
    const QuantizationConfig config = quantization_of(directory / name);
    EXPECT_EQ(config.method_name(), "vq");
    // The same logits as those of its weights in f32, but for roundings.
    const auto model = load_model(directory / name, *backend);
    ASSERT_TRUE(model.ok()) << model.error().message;
    ASSERT_TRUE(convert_model(directory / name, directory / (name + "-f32"),
                              {.format = "f32", .allow_lossy = true}, pool)
                    .ok());
    const auto floats = load_model(directory / (name + "-f32"), *backend);
    ASSERT_TRUE(floats.ok()) << floats.error().message;
    const std::vector<float> found = testing::logits_of(**model, *backend, tokens);
    const std::vector<float> expected = testing::logits_of(**floats, *backend, tokens);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 2e-4) << i;
  }
}

TEST(QuantizeFormats, kbit_refuses_inputs_that_are_no_blocks) {
  const TempDir directory;
  ThreadPool pool(2);
  const auto refused =
      quantize_model(kGolden, directory / "q", {.format = "kbit4", .group_size = 64}, pool);
  EXPECT_EQ(refused.error().code, "quantize.group_size");
}

/// Keeps what lies in a partial directory when so much is written: as a run that was killed there.
ByteProgress snapshot_at(const TempDir& directory, const fs::path& killed, double share) {
  return [&directory, killed, share](uint64_t done, uint64_t total) {
    if (static_cast<double>(done) < share * static_cast<double>(total) || fs::exists(killed))
      return;
    for (const auto& entry : fs::directory_iterator(directory.path())) {
      if (entry.path().filename().native().starts_with("q.partial-")) {
        fs::copy(entry.path(), killed);
      }
    }
  };
}

void expect_same_files(const TempDir& directory, const std::string& a, const std::string& b) {
  for (const auto& entry : fs::directory_iterator(directory / b)) {
    const std::string name = entry.path().filename();
    EXPECT_EQ(directory.read(a + "/" + name), directory.read(b + "/" + name)) << name;
  }
}

TEST(QuantizeFormats, goes_on_where_it_was_stopped) {
  const TempDir directory;
  ThreadPool pool(2);
  const QuantizeOptions options = {.format = "gptq", .shard_bytes = 40'000};
  const fs::path killed = directory / partial_name("q", 1, 1);
  const auto whole =
      quantize_model(kGolden, directory / "q", options, pool, snapshot_at(directory, killed, 0.5));
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->resumed_tensors, 0);
  fs::rename(directory / "q", directory / "clean");
  const auto resumed = quantize_model(kGolden, directory / "q", options, pool);
  ASSERT_TRUE(resumed.ok()) << resumed.error().message;
  EXPECT_GT(resumed->resumed_tensors, 0);
  EXPECT_LT(resumed->resumed_tensors, 25);
  EXPECT_FALSE(fs::exists(killed));
  expect_same_files(directory, "q", "clean");
}

/// Both rules leave as many matrices, and the third of them alone has zero points, which GPTQ
/// stores for the others, too: shards that were finished have the headers that they should have.
TEST(QuantizeFormats, begins_anew_when_rules_give_the_same_forms_to_other_matrices) {
  const TempDir directory;
  ThreadPool pool(2);
  QuantizeOptions options = {.format = "gptq", .shard_bytes = 40'000};
  options.rules = directory.write("first.json", R"({
      "re:.*layers\\.0\\.self_attn\\.[qkv]_proj": {"keep": true},
      "model.layers.0.mlp.down_proj": {"symmetric": false}})");
  const fs::path killed = directory / partial_name("q", 1, 1);
  ASSERT_TRUE(
      quantize_model(kGolden, directory / "q", options, pool, snapshot_at(directory, killed, 0.625))
          .ok());
  ASSERT_TRUE(fs::exists(killed));
  fs::remove_all(directory / "q");
  options.rules = directory.write("second.json", R"({
      "model.layers.1.self_attn.o_proj": {"keep": true},
      "re:.*layers\\.0\\.mlp\\.(gate|up)_proj": {"symmetric": false}})");
  const auto other = quantize_model(kGolden, directory / "q", options, pool);
  ASSERT_TRUE(other.ok()) << other.error().message;
  fs::rename(directory / "q", directory / "resumed");
  fs::remove_all(killed);
  ASSERT_TRUE(quantize_model(kGolden, directory / "q", options, pool).ok());
  expect_same_files(directory, "resumed", "q");
}

TEST(QuantizeFormats, shards_are_as_large_as_those_of_the_source) {
  const TempDir directory;
  ThreadPool pool(2);
  SynthOptions synth = synth_options("qwen3");
  synth.shard_bytes = 700'000;
  ASSERT_TRUE(synthesize(directory / "source", synth, pool).ok());
  ASSERT_TRUE(quantize_model(directory / "source", directory / "q", {.format = "int8"}, pool).ok());
  const auto files_of = [&](const char* name) {
    return TensorSource::open(directory / name)->files().size();
  };
  EXPECT_GT(files_of("source"), 3u);
  EXPECT_GT(files_of("q"), 1u);
  EXPECT_LT(files_of("q"), files_of("source"));
  const auto backend = testing::make_test_backend(1);
  EXPECT_TRUE(load_model(directory / "q", *backend).ok());
}

TEST(QuantizeFormats, that_a_family_does_not_have_are_refused_by_who_said_the_family) {
  const TempDir directory;
  const fs::path file = kGolden.parent_path().parent_path() / "gguf/gpt-oss/model.gguf";
  ThreadPool pool(1);
  const auto refused = quantize_model(file, directory / "q", {.format = "awq"}, pool);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "quantize.model_type");
  EXPECT_TRUE(
      refused.error().message.starts_with(file.native() + " (in the words of config.json): "))
      << refused.error().message;
}

TEST(ProbingBackend, gives_the_logits_of_a_directory_with_one_unit_quantized) {
  const TempDir directory;
  ThreadPool pool(2);
  const QuantizeOptions options = {
      .format = "compressed-tensors",
      .group_size = 32,
      .bits = 3.0,
      .ignore = {"model.layers.0", "model.layers.1.self_attn", "model.layers.1.mlp.down_proj"}};
  const auto report = quantize_model(kGolden, directory / "q", options, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->quantized_matrices, 2);  // gate and up
  const auto backend = testing::make_test_backend(1);
  const auto config = read_model_config(kGolden);
  ASSERT_TRUE(config.ok());
  const std::vector<int32_t> tokens = {3, 141, 59, 265};
  const auto logits_of_unit = [&](const std::string& unit) {
    ProbingBackend probing(*backend, *config, *find_quantize_format("compressed-tensors"),
                           {3, 32, true}, unit);
    const auto model = load_model(kGolden, probing);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return testing::logits_of(**model, probing, tokens);
  };
  const auto written = load_model(directory / "q", *backend);
  ASSERT_TRUE(written.ok()) << written.error().message;
  const std::vector<float> expected = testing::logits_of(**written, *backend, tokens);
  EXPECT_EQ(logits_of_unit("layers.1.mlp.gate_up_proj"), expected);
  EXPECT_NE(logits_of_unit("layers.1.mlp.down_proj"), expected);
  EXPECT_NE(logits_of_unit("layers.0.mlp.gate_up_proj"), expected);
}

TEST(ProbingBackend, finds_the_experts_of_a_layer) {
  const auto backend = testing::make_test_backend(1);
  const fs::path source = kGolden.parent_path() / "qwen3-moe-bf16";
  const auto config = read_model_config(source);
  ASSERT_TRUE(config.ok());
  const std::vector<int32_t> tokens = {3, 41, 59, 65};
  std::vector<std::vector<float>> logits;
  for (const std::string unit :
       {"layers.0.mlp.experts.gate_up_proj", "layers.0.mlp.experts.down_proj", "lm_head", "none"}) {
    ProbingBackend probing(*backend, *config, *find_quantize_format("compressed-tensors"),
                           {2, 32, true}, unit);
    const auto model = load_model(source, probing);
    ASSERT_TRUE(model.ok()) << model.error().message;
    logits.push_back(testing::logits_of(**model, probing, tokens));
  }
  const auto plain = load_model(source, *backend);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(logits.back(), testing::logits_of(**plain, *backend, tokens));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(logits[i], logits[j]) << i << j;
  }
}

TEST(ChooseWidths, bits_go_where_the_weighted_error_falls_most) {
  const TempDir directory;
  ThreadPool pool(2);
  QuantizeOptions options = {.format = "gptq_v2", .group_size = 32, .bits = 2.5};
  std::vector<std::string> measured;
  options.measure = [&](const std::string& unit, const QuantizeFormat& format,
                        const QuantizeForm& form) -> Result<double> {
    EXPECT_EQ(format.name, "gptq_v2");
    EXPECT_EQ(form.bits, 2);
    measured.push_back(unit);
    return unit == "layers.1.self_attn.o_proj" ? 1.0 : 1e-9;
  };
  std::vector<int64_t> done;
  options.measured = [&](int64_t now, int64_t all) {
    EXPECT_EQ(all, 8);
    done.push_back(now);
  };
  const auto report = quantize_model(kGolden, directory / "q", options, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(measured.size(), 8u);  // four in each of two layers
  EXPECT_EQ(done, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_LE(report->code_bits, 2.5);
  const auto source = TensorSource::open(directory / "q");
  ASSERT_TRUE(source.ok());
  const QuantizationConfig config = quantization_of(directory / "q");
  const auto bits_of = [&](const std::string& module) {
    const auto described = describe_module({*source, config, pool}, module);
    EXPECT_TRUE(described.ok());
    return info(described->format.element).bits;
  };
  EXPECT_EQ(bits_of("model.layers.1.self_attn.o_proj"), 8);  // all that there are
  EXPECT_LT(bits_of("model.layers.0.self_attn.o_proj"), 8);
}

TEST(ModulePattern, names_modules_as_other_tools_do) {
  const auto matches = [](std::string_view pattern, std::string_view module) {
    return ModulePattern::parse(pattern)->matches(module);
  };
  EXPECT_TRUE(matches("lm_head", "lm_head"));
  EXPECT_TRUE(matches("model.layers.1", "model.layers.1.mlp.up_proj"));
  EXPECT_FALSE(matches("model.layers.1", "model.layers.10.mlp.up_proj"));
  EXPECT_TRUE(matches("mlp.up_proj", "model.layers.10.mlp.up_proj"));
  EXPECT_FALSE(matches("p.up_proj", "model.layers.10.mlp.up_proj"));
  EXPECT_FALSE(matches("layers.10", "model.layers.10.mlp.up_proj"));
  EXPECT_TRUE(matches("re:.*up_proj", "model.layers.10.mlp.up_proj"));
  EXPECT_FALSE(matches("re:up_proj", "model.layers.10.mlp.up_proj"));  // not at its beginning
  EXPECT_TRUE(matches(R"(re:model\.layers\.[02]\.)", "model.layers.2.mlp.up_proj"));
  for (const std::string wrong : {"", "re:", "re:[", "re:(a", "re:a{2"}) {
    const auto refused = ModulePattern::parse(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.error().code, "quantize.pattern");
  }
  EXPECT_FALSE(ModulePattern::parse("re:" + std::string(1001, 'a')).ok());
}

}  // namespace
}  // namespace subbyte
