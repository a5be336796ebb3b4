// To the model files of OrinMLLM and back.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/thread_pool.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/containers/tensor_source.h"
#include "checkpoints/model_path.h"
#include "models/model.h"
#include "support/orin_bytes.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "support/test_tensors.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(SUBBYTE_TEST_DATA) / "goldens";

Result<ConvertReport> convert(const fs::path& from, const fs::path& to, const std::string& format,
                              bool lossy = false) {
  ThreadPool pool(2);
  return convert_model(from, to, {format, lossy}, pool);
}

std::string code_of(const fs::path& from, const fs::path& to, const std::string& format,
                    bool lossy = false) {
  const auto report = convert(from, to, format, lossy);
  return report.ok() ? "ok" : std::string(report.error().code);
}

std::vector<float> logits_of(const fs::path& path) {
  const auto backend = testing::make_test_backend(2);
  const auto model = load_model(path, *backend);
  EXPECT_TRUE(model.ok()) << model.error().message;
  if (!model.ok()) return {};
  const std::vector<int32_t> tokens = {3, 141, 59, 265, 358, 97};
  return testing::logits_of(**model, *backend, tokens);
}

ModelDiff diff_of(const fs::path& a, const fs::path& b) {
  ThreadPool pool(2);
  auto diff = diff_models(a, b, pool);
  EXPECT_TRUE(diff.ok()) << diff.error().message;
  return diff.ok() ? std::move(diff).value() : ModelDiff{};
}

/// A golden in a directory of its own, to be changed.
class OrinConversion : public ::testing::Test {
 protected:
  void copy(const char* golden) {
    fs::remove_all(folder_ / "source");
    fs::create_directory(folder_ / "source");
    for (const char* name : {"config.json", "model.safetensors"}) {
      fs::copy(kGoldens / golden / name, folder_ / "source" / name);
    }
  }

  void change_config(const std::function<void(json::Value&)>& change) {
    auto config = json::parse(folder_.read("source/config.json"), "config.json");
    ASSERT_TRUE(config.ok());
    change(*config);
    folder_.write("source/config.json", config->text());
  }

  void change_tensors(const std::function<void(std::vector<TestTensor>&)>& change) {
    std::vector<TestTensor> tensors;
    {
      const auto source = TensorSource::open(folder_ / "source");
      ASSERT_TRUE(source.ok());
      for (const auto& [name, tensor] : source->tensors()) {
        tensors.push_back(
            {name, tensor.dtype, tensor.shape,
             std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size())});
      }
    }
    change(tensors);
    ASSERT_TRUE(write_tensors(folder_ / "source/model.safetensors", tensors).ok());
  }

  /// The refusal of the source as it is, which must leave nothing behind.
  std::string refusal(bool lossy = false) {
    const std::string code = code_of(folder_ / "source", folder_ / "new", "ak48", lossy);
    EXPECT_EQ(folder_.names(), std::set<std::string>{"source"}) << code;
    return code;
  }

  TempDir folder_;
};

TEST_F(OrinConversion, goes_there_and_comes_back_to_the_byte) {
  const fs::path golden = kGoldens / "qwen3-awq";
  const auto there = convert(golden, folder_ / "there", "ak48");
  ASSERT_TRUE(there.ok()) << there.error().message;
  EXPECT_EQ(there->format, "ak48");
  EXPECT_EQ(there->converted_matrices, 14);
  EXPECT_EQ(there->rounded_matrices, 0);
  const auto file = find_model((folder_ / "there").string());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(*file, folder_ / "there" / kOrinFileName);
  EXPECT_TRUE(diff_of(golden, *file).same_bytes());
  EXPECT_EQ(logits_of(*file), logits_of(golden));

  ASSERT_EQ(code_of(*file, folder_ / "back", "awq"), "ok");
  EXPECT_TRUE(diff_of(golden, folder_ / "back").same_bytes());
  EXPECT_EQ(logits_of(folder_ / "back"), logits_of(golden));
  ASSERT_EQ(code_of(folder_ / "back", folder_ / "again", "ak48"), "ok");
  EXPECT_TRUE(folder_.read("again/model.ak48") == folder_.read("there/model.ak48"));
  // And from one file to another.
  ASSERT_EQ(code_of(*file, folder_ / "copy", "ak48"), "ok");
  EXPECT_TRUE(folder_.read("copy/model.ak48") == folder_.read("there/model.ak48"));
}

TEST_F(OrinConversion, the_directory_that_comes_back_has_a_whole_config) {
  ASSERT_EQ(code_of(kGoldens / "qwen3-awq", folder_ / "there", "ak48"), "ok");
  ASSERT_EQ(code_of(folder_ / "there/model.ak48", folder_ / "back", "awq"), "ok");
  const auto config = json::parse(folder_.read("back/config.json"), "config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ((*config)["architectures"], json::Value::array({"Qwen3ForCausalLM"}));
  EXPECT_EQ((*config)["torch_dtype"], "float16");
  EXPECT_EQ((*config)["rope_theta"], 1e6);
  EXPECT_EQ((*config)["quantization_config"]["quant_method"], "awq");
  EXPECT_EQ((*config)["quantization_config"]["group_size"], 128);
  ASSERT_EQ(code_of(folder_ / "there/model.ak48", folder_ / "ct", "compressed-tensors"), "ok");
  EXPECT_TRUE(diff_of(kGoldens / "qwen3-awq", folder_ / "ct").same_values());
  EXPECT_EQ(logits_of(folder_ / "ct"), logits_of(kGoldens / "qwen3-awq"));
}

TEST_F(OrinConversion, what_awq_can_say_is_written_from_other_formats) {
  for (const char* golden : {"qwen3-gptq-v1", "qwen3-gptq-v2"}) {
    SCOPED_TRACE(golden);
    ASSERT_EQ(code_of(kGoldens / golden, folder_ / golden, "ak48"), "ok");
    const fs::path file = folder_ / golden / "model.ak48";
    EXPECT_TRUE(diff_of(kGoldens / golden, file).same_values());
    EXPECT_EQ(logits_of(file), logits_of(kGoldens / golden));
    const std::string back = std::string(golden).ends_with("v1") ? "gptq" : "gptq_v2";
    ASSERT_EQ(code_of(file, folder_ / ("back-" + back), back), "ok");
    EXPECT_TRUE(diff_of(kGoldens / golden, folder_ / ("back-" + back)).same_bytes());
  }
}

TEST_F(OrinConversion, the_tokens_of_end_come_along) {
  copy("qwen3-awq");
  change_config([](json::Value& config) { config["eos_token_id"] = {7, 9}; });
  ASSERT_EQ(code_of(folder_ / "source", folder_ / "new", "ak48"), "ok");
  EXPECT_EQ(read_model_config(folder_ / "new/model.ak48")->eos_tokens,
            (std::vector<int32_t>{7, 9}));
  ASSERT_EQ(code_of(folder_ / "new/model.ak48", folder_ / "back", "awq"), "ok");
  EXPECT_EQ(read_model_config(folder_ / "back")->eos_tokens, (std::vector<int32_t>{7, 9}));
  fs::remove_all(folder_ / "new");
  fs::remove_all(folder_ / "back");

  folder_.write("source/generation_config.json", R"({"eos_token_id": 11})");
  ASSERT_EQ(code_of(folder_ / "source", folder_ / "new", "ak48"), "ok");
  EXPECT_EQ(folder_.read("new/generation_config.json"), R"({"eos_token_id": 11})");
  fs::remove_all(folder_ / "new");

  folder_.write("source/generation_config.json", R"({"top_k": 5})");
  EXPECT_EQ(refusal(), "export.format");
}

TEST_F(OrinConversion, the_tokens_of_end_of_qwen3_are_those_of_its_vocabulary) {
  constexpr int kVocabulary = 151936;
  const OrinBytes bytes = {.vocabulary = kVocabulary,
                           .data = 3984 + std::size_t{2} * 2 * 16 * (kVocabulary - 10)};
  folder_.write("qwen3.bin", bytes.text());
  const std::vector<int32_t> end = {151645, 151643};
  const auto config = read_model_config(folder_ / "qwen3.bin");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->eos_tokens, end);
  ASSERT_EQ(code_of(folder_ / "qwen3.bin", folder_ / "awq", "awq"), "ok");
  EXPECT_EQ(read_model_config(folder_ / "awq")->eos_tokens, end);
  ASSERT_EQ(code_of(folder_ / "awq", folder_ / "new", "ak48"), "ok");
  EXPECT_TRUE(folder_.read("new/model.ak48") == bytes.text());
  EXPECT_FALSE(fs::exists(folder_ / "new/generation_config.json"));

  // Other tokens, and none, are written beside the file.
  for (const json::Value& other : {json::Value(7u), json::Value(nullptr)}) {
    auto changed = json::parse(folder_.read("awq/config.json"), "config.json");
    ASSERT_TRUE(changed.ok());
    (*changed)["eos_token_id"] = other;
    folder_.write("awq/config.json", changed->text());
    fs::remove_all(folder_ / "new");
    ASSERT_EQ(code_of(folder_ / "awq", folder_ / "new", "ak48"), "ok");
    EXPECT_EQ(read_model_config(folder_ / "new/model.ak48")->eos_tokens,
              other.is_null() ? std::vector<int32_t>() : std::vector<int32_t>{7});
  }
}

TEST_F(OrinConversion, floats_become_f16_when_that_holds_them) {
  copy("qwen3-awq");
  constexpr std::string_view kNorm = "model.norm.weight";
  const auto with_norm = [&](uint16_t first) {
    change_tensors([&](std::vector<TestTensor>& tensors) {
      for (TestTensor& tensor : tensors) {
        if (tensor.name != kNorm) continue;
        tensor = filled<uint16_t>(tensor.name, DType::kBF16, tensor.shape, 0x3F80);  // 1
        tensor.set(0, first);
      }
    });
  };
  with_norm(0x3F81);  // 1 + 2^-7
  ASSERT_EQ(code_of(folder_ / "source", folder_ / "new", "ak48"), "ok");
  EXPECT_TRUE(diff_of(folder_ / "source", folder_ / "new/model.ak48").same_values());
  EXPECT_EQ(logits_of(folder_ / "new/model.ak48"), logits_of(folder_ / "source"));
  fs::remove_all(folder_ / "new");
  with_norm(0x0081);  // far below f16
  EXPECT_EQ(refusal(), "convert.inexact");
  const auto lossy = convert(folder_ / "source", folder_ / "new", "ak48", true);
  ASSERT_TRUE(lossy.ok()) << lossy.error().message;
  EXPECT_EQ(lossy->rounded_matrices, 1);
  EXPECT_GT(lossy->loss.max, 0);
}

TEST_F(OrinConversion, what_the_file_cannot_say_is_refused) {
  const auto with = [&](const char* key, const json::Value& value) {
    copy("qwen3-awq");
    change_config([&](json::Value& config) { config[key] = value; });
    return refusal();
  };
  EXPECT_EQ(with("rms_norm_eps", 1e-5), "export.format");
  EXPECT_EQ(with("rope_parameters", {{"rope_theta", 5e6}, {"rope_type", "default"}}),
            "export.format");
  EXPECT_EQ(with("max_position_embeddings", 262144), "json.range");
  EXPECT_EQ(with("vocab_size", 511), "import.shape");
  EXPECT_EQ(with("tie_word_embeddings", true), "export.surplus");  // lm_head.weight
  EXPECT_EQ(with("hidden_act", "gelu"), "config.hidden_act");
  copy("qwen3-awq");
  change_config([](json::Value& config) {
    config["layer_types"] = {"full_attention", "sliding_attention"};
    config["sliding_window"] = 128;
    config["use_sliding_window"] = true;
  });
  EXPECT_EQ(refusal(), "export.format");

  copy("qwen3-awq");
  change_tensors([](std::vector<TestTensor>& tensors) {
    tensors.push_back(filled<uint16_t>("model.extra.weight", DType::kF16, {4}, 0));
  });
  EXPECT_EQ(refusal(), "export.surplus");
  copy("qwen3-awq");
  change_tensors([](std::vector<TestTensor>& tensors) {
    std::erase_if(tensors, [](const TestTensor& tensor) {
      return tensor.name == "model.layers.1.self_attn.q_norm.weight";
    });
  });
  EXPECT_EQ(refusal(), "import.missing");
  EXPECT_EQ(refusal(true), "import.missing");
}

TEST_F(OrinConversion, other_models_are_refused) {
  for (const auto& [golden, code] : {std::pair{"qwen3-bf16", "convert.not_quantized"},
                                     std::pair{"qwen3-gptq-act-order", "recast.act_order"},
                                     std::pair{"gpt-oss-mxfp4", "export.format"}}) {
    copy(golden);
    EXPECT_EQ(refusal(), code) << golden;
  }
}

TEST_F(OrinConversion, files_that_say_too_little_for_a_config_are_refused) {
  const OrinBytes llama = {.magic = 0x616B3432, .version = 1, .rest = {}, .data = 16960};
  folder_.write("ak42.bin", llama.text());
  EXPECT_EQ(code_of(folder_ / "ak42.bin", folder_ / "new", "f16"), "convert.config");
  OrinBytes longer;
  longer.positions = 262144;
  folder_.write("later.bin", longer.text());
  EXPECT_EQ(code_of(folder_ / "later.bin", folder_ / "new", "awq"), "json.type");
  const OrinBytes f16 = {.magic = 0x616B3437, .version = 4, .rest = {8}, .data = 8544};
  folder_.write("ak47.bin", f16.text());
  EXPECT_EQ(code_of(folder_ / "ak47.bin", folder_ / "new", "f16"), "ok");
  EXPECT_TRUE(diff_of(folder_ / "ak47.bin", folder_ / "new").same_bytes());
  // A cut file.
  folder_.write("cut.bin", OrinBytes().text().substr(0, 3000));
  EXPECT_EQ(code_of(folder_ / "cut.bin", folder_ / "x", "awq"), "orin.truncated");
  EXPECT_FALSE(fs::exists(folder_ / "x"));
}

TEST_F(OrinConversion, never_over_what_is_there) {
  copy("qwen3-awq");
  EXPECT_EQ(code_of(folder_ / "source", folder_ / "source", "ak48"), "file.exists");
  ASSERT_EQ(code_of(folder_ / "source", folder_ / "new", "ak48"), "ok");
  const std::string before = folder_.read("new/model.ak48");
  EXPECT_EQ(code_of(folder_ / "source", folder_ / "new", "ak48"), "file.exists");
  EXPECT_EQ(code_of(folder_ / "new/model.ak48", folder_ / "new/model.ak48", "awq"), "file.exists");
  EXPECT_TRUE(folder_.read("new/model.ak48") == before);
  EXPECT_EQ(folder_.names(), (std::set<std::string>{"new", "source"}));
}

TEST_F(OrinConversion, same_bytes_for_any_number_of_threads_and_progress_reaches_the_end) {
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    uint64_t last = 0, all = 1;
    const auto report = convert_model(kGoldens / "qwen3-gptq-v1", folder_ / std::to_string(threads),
                                      {"ak48"}, pool, [&](uint64_t done, uint64_t total) {
                                        EXPECT_GT(done, last);
                                        last = done;
                                        all = total;
                                      });
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(last, all);
    EXPECT_EQ(report->result_bytes, all);
    EXPECT_EQ(fs::file_size(folder_ / std::to_string(threads) / "model.ak48"), all + 256);
    EXPECT_TRUE(folder_.read(std::to_string(threads) + "/model.ak48") ==
                folder_.read("1/model.ak48"));
  }
}

}  // namespace
}  // namespace subbyte
