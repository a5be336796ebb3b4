#include "synth/synth.h"
#include "support/test_context.h"
#include "support/test_names.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "base/float16.h"
#include "base/thread_pool.h"
#include "checkpoints/importer.h"
#include "json/strict_json.h"
#include "models/model.h"
#include "support/temp_dir.h"
#include "synth/synth_shapes.h"
#include "synth/synth_tensors.h"
#include "text/tokenizer.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char* arch;
  const char* format;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.arch << " " << c.format;
}

SynthOptions tiny(const Case& c) {
  SynthOptions options;
  options.arch = c.arch;
  options.shape = "tiny";
  options.format = c.format;
  options.seed = 5;
  return options;
}

void make(const fs::path& path, const SynthOptions& options, int threads = 2) {
  ThreadPool pool(threads);
  const Status status = synthesize(path, options, pool);
  ASSERT_TRUE(status.ok()) << status.error().message;
}

std::string_view code_of(const SynthOptions& options) {
  const TempDir directory;
  ThreadPool pool(1);
  const Status status = synthesize(directory / "model", options, pool);
  EXPECT_TRUE(directory.names().empty() || status.ok());
  return status.ok() ? "ok" : status.error().code;
}

/// Every file of a directory by name.
std::map<std::string, std::string> contents(const TempDir& directory, const std::string& model) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(directory / model)) {
    const std::string name = entry.path().filename().string();
    files[name] = directory.read(model + "/" + name);
  }
  return files;
}

class SynthTiny : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(formats, SynthTiny,
                         ::testing::Values(Case{"qwen3", "awq"}, Case{"qwen3", "gptq"},
                                           Case{"qwen3", "bf16"}, Case{"qwen3", "fp8"},
                                           Case{"qwen3-moe", "fp8"}, Case{"qwen3-moe", "awq"},
                                           Case{"qwen3-moe", "gptq"}, Case{"qwen3-moe", "bf16"},
                                           Case{"gpt-oss", "mxfp4"}, Case{"gpt-oss", "bf16"},
                                           Case{"qwen3", "kbit3"}, Case{"qwen3", "vq2"},
                                           Case{"qwen3-moe", "kbit5"}, Case{"qwen3-moe", "vq4"}),
                         NamedByValue());

TEST_P(SynthTiny, loads_and_gives_logits_of_ordinary_size) {
  const TempDir directory;
  make(directory / "model", tiny(GetParam()));
  const auto backend = testing::make_test_backend(2);
  const auto model = load_model(directory / "model", *backend);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<int32_t> tokens = {1, 300, 42, 7, 511};
  const std::vector<float> logits = testing::logits_of(**model, *backend, tokens);
  ASSERT_EQ(logits.size(), tokens.size() * (*model)->config().vocab_size);
  double sum = 0;
  for (const float logit : logits) {
    ASSERT_TRUE(std::isfinite(logit));
    sum += static_cast<double>(logit) * logit;
  }
  // The final norm gives a vector of rms 1 (its weights are within 5 percent of 1) and the rows of
  // the head have a standard deviation of 1 / sqrt(hidden): logits of standard deviation 1. Their
  // mean square over 2560 of them is within a quarter of that by far.
  const double mean_square = sum / static_cast<double>(logits.size());
  EXPECT_GT(mean_square, 0.75);
  EXPECT_LT(mean_square, 1.25);
}

TEST_P(SynthTiny, same_bytes_for_any_number_of_threads) {
  const TempDir directory;
  make(directory / "one", tiny(GetParam()), 1);
  make(directory / "three", tiny(GetParam()), 3);
  const auto one = contents(directory, "one");
  EXPECT_EQ(one, contents(directory, "three"));
  EXPECT_EQ(one.size(), 4u);
}

TEST_P(SynthTiny, other_bytes_for_another_seed) {
  const TempDir directory;
  SynthOptions options = tiny(GetParam());
  make(directory / "a", options);
  options.seed = 6;
  make(directory / "b", options);
  const auto a = contents(directory, "a");
  const auto b = contents(directory, "b");
  EXPECT_EQ(a.at("config.json"), b.at("config.json"));
  EXPECT_NE(a.at("model.safetensors"), b.at("model.safetensors"));
}

TEST_P(SynthTiny, tokenizer_fits_the_vocabulary_and_the_model) {
  const TempDir directory;
  make(directory / "model", tiny(GetParam()));
  const auto tokenizer = Tokenizer::load(directory / "model/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto config = read_model_config(directory / "model");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_LE(tokenizer->size(), config->vocab_size);
  for (TokenId id = 0; id < tokenizer->size(); ++id) {
    EXPECT_FALSE(tokenizer->token_bytes(id).empty()) << id;  // no holes
  }
  const bool qwen = std::string_view(GetParam().arch).starts_with("qwen3");
  const auto end = tokenizer->find(qwen ? "<|im_end|>" : "<|return|>");
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(tokenizer->is_special(*end));
  EXPECT_EQ(config->eos_tokens.front(), *end);
  const std::string text = "the \xC3\xA9t\xC3\xA9 of 1999, \x01\x7F {\"key\": '\\'}\n";
  const auto ids = tokenizer->encode(text, SpecialTokens::kRecognize);
  ASSERT_TRUE(ids.ok());
  EXPECT_LT(ids->size(), text.size());  // something was merged
  const auto back = tokenizer->decode(*ids, false);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, text);
}

/// Occurrences of every 4-bit code in tensors whose names end with `suffix`.
std::array<int64_t, 16> histogram(const TensorSource& source, std::string_view suffix) {
  std::array<int64_t, 16> counts = {};
  for (const auto& [name, tensor] : source.tensors()) {
    if (!name.ends_with(suffix)) continue;
    for (const std::byte byte : tensor.bytes) {
      ++counts[std::to_integer<int>(byte & std::byte{15})];
      ++counts[std::to_integer<int>(byte >> 4)];
    }
  }
  return counts;
}

TEST(synth, draws_every_code_equally_often) {
  for (const Case& c : {Case{"qwen3", "awq"}, Case{"qwen3", "gptq"}, Case{"gpt-oss", "mxfp4"}}) {
    const TempDir directory;
    make(directory / "model", tiny(c));
    const auto source = TensorSource::open(directory / "model");
    ASSERT_TRUE(source.ok());
    const auto counts = histogram(*source, c.arch[0] == 'q' ? ".qweight" : "_blocks");
    const double total =
        static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    const double expected = total / 16;
    for (const int64_t count : counts) {
      // Six standard deviations of a binomial count.
      EXPECT_NEAR(static_cast<double>(count), expected, 6 * std::sqrt(expected * 15 / 16)) << c;
    }
  }
}

TEST(synth, weights_have_the_deviation_that_keeps_the_size_of_activations) {
  for (const Case& c :
       {Case{"qwen3", "awq"}, Case{"qwen3", "gptq"}, Case{"qwen3", "bf16"}, Case{"qwen3", "fp8"},
        Case{"qwen3-moe", "awq"}, Case{"gpt-oss", "mxfp4"}, Case{"gpt-oss", "bf16"},
        Case{"qwen3", "kbit2"}, Case{"qwen3", "kbit3"}, Case{"qwen3", "kbit4"},
        Case{"qwen3", "kbit5"}, Case{"qwen3", "vq2"}, Case{"qwen3-moe", "vq4"}}) {
    const TempDir directory;
    make(directory / "model", tiny(c));
    const auto source = TensorSource::open(directory / "model");
    ASSERT_TRUE(source.ok());
    const auto value = json::parse_file((directory / "model/config.json").string(), 1 << 20);
    const auto object = json::Object::of(*value, "config.json");
    const auto config = read_quantization_config(*object, directory / "model");
    ASSERT_TRUE(config.ok()) << config.error().message;
    ThreadPool pool(1);
    const std::string_view arch = c.arch;
    const std::string module = arch == "qwen3"       ? "gate_proj"
                               : arch == "qwen3-moe" ? "experts.7.gate_proj"
                                                     : "experts.gate_up_proj";
    const auto matrices = import_experts({*source, *config, pool}, "model.layers.1.mlp." + module);
    ASSERT_TRUE(matrices.ok()) << matrices.error().message;
    const MatrixView& view = matrices->front().view;
    double sum = 0, squares = 0;
    for (int64_t n = 0; n < view.rows; ++n) {
      for (int64_t k = 0; k < view.cols; ++k) {
        sum += weight_at(view, n, k);
        squares += weight_at(view, n, k) * weight_at(view, n, k);
      }
    }
    const double count = static_cast<double>(view.rows * view.cols);
    const double wanted = 1 / std::sqrt(static_cast<double>(view.cols));
    // MXFP4's scales are powers of two, so up to a factor sqrt(2) off; the others are drawn to fit.
    const double factor = std::string_view(c.format) == "mxfp4" ? std::sqrt(2.0) * 1.02 : 1.05;
    const double deviation = std::sqrt(squares / count);
    EXPECT_LT(deviation, wanted * factor) << c;
    EXPECT_GT(deviation, wanted / factor) << c;
    // Zero points shared by a group make the sum scatter more than independent weights would:
    // half a step, 0.11 deviations, for each group of 128.
    const double scatter = wanted * std::sqrt(count) * 1.7;
    EXPECT_LT(std::fabs(sum), 5 * scatter) << c;
  }
}

TEST(synth, pieces_of_a_tensor_are_those_of_the_whole) {
  const auto tensors = synthetic_tensors(*find_shape("qwen3", "tiny"), 1, tiny({"qwen3", "gptq"}));
  ASSERT_TRUE(tensors.ok());
  for (const SynthTensor& tensor : *tensors) {
    const uint64_t size = tensor.declaration.num_bytes();
    std::vector<std::byte> whole(size), pieces(size);
    tensor.fill(whole, 0, 3);
    for (uint64_t begin = 0; begin < size; begin += 264) {
      const uint64_t end = std::min(begin + 264, size);
      tensor.fill(std::span(pieces).subspan(begin, end - begin), begin, 3);
    }
    EXPECT_EQ(whole, pieces) << tensor.declaration.name;
  }
}

TEST(synth, tensors_of_one_shape_differ) {
  const TempDir directory;
  make(directory / "model", tiny({"qwen3", "bf16"}));
  const auto source = TensorSource::open(directory / "model");
  ASSERT_TRUE(source.ok());
  std::set<std::string> seen;
  for (const auto& [name, tensor] : source->tensors()) {
    const auto* text = reinterpret_cast<const char*>(tensor.bytes.data());
    EXPECT_TRUE(seen.insert(std::string(text, 64)).second) << name;
  }
}

TEST(synth, writes_shards_with_an_index) {
  const TempDir directory;
  SynthOptions options = tiny({"qwen3", "awq"});
  make(directory / "whole", options);
  options.shard_bytes = 200'000;
  make(directory / "shards", options);
  const auto whole = TensorSource::open(directory / "whole");
  const auto shards = TensorSource::open(directory / "shards");
  ASSERT_TRUE(whole.ok());
  ASSERT_TRUE(shards.ok()) << shards.error().message;
  EXPECT_GT(shards->files().size(), 3u);
  ASSERT_EQ(shards->tensors().size(), whole->tensors().size());
  for (const auto& [name, tensor] : whole->tensors()) {
    const FileTensor* other = shards->find(name);
    ASSERT_NE(other, nullptr) << name;
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, other->bytes)) << name;
  }
  const std::string index = directory.read("shards/model.safetensors.index.json");
  EXPECT_NE(index.find(fmt::format("\"total_size\": {}", whole->total_bytes())), std::string::npos);
}

TEST(synth, cuts_layers) {
  const TempDir directory;
  SynthOptions options = tiny({"gpt-oss", "mxfp4"});
  options.layers = 3;
  make(directory / "model", options);
  const auto config = read_model_config(directory / "model");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->windows, (std::vector<int64_t>{8, 0, 8}));
  const auto source = TensorSource::open(directory / "model");
  EXPECT_NE(source->find("model.layers.2.self_attn.sinks"), nullptr);
  EXPECT_EQ(source->find("model.layers.3.self_attn.sinks"), nullptr);
}

TEST(synth, describes_the_published_models) {
  // Parameters as the model cards state them, in billions, embeddings included.
  struct Published {
    const char* arch;
    const char* shape;
    double billions;
  };
  for (const Published& model :
       {Published{"qwen3", "0.6b", 0.596}, Published{"qwen3", "1.7b", 1.72},
        Published{"qwen3", "4b", 4.02}, Published{"qwen3", "8b", 8.19},
        Published{"qwen3", "14b", 14.77}, Published{"qwen3", "32b", 32.76},
        Published{"qwen3-moe", "30b-a3b", 30.53}, Published{"qwen3-moe", "235b-a22b", 235.09},
        Published{"gpt-oss", "20b", 20.9}, Published{"gpt-oss", "120b", 116.8}}) {
    const ModelShape* shape = find_shape(model.arch, model.shape);
    ASSERT_NE(shape, nullptr);
    SynthOptions options;
    options.arch = model.arch;
    options.format = "bf16";
    const auto tensors = synthetic_tensors(*shape, shape->layers, options);
    ASSERT_TRUE(tensors.ok());
    double parameters = 0;
    for (const SynthTensor& tensor : *tensors) {
      parameters += static_cast<double>(tensor.declaration.num_bytes()) / 2;
    }
    EXPECT_NEAR(parameters / 1e9, model.billions, model.billions * 0.003) << model.shape;
  }
}

TEST(synth, writes_the_published_schema) {
  const TempDir directory;
  make(directory / "qwen", tiny({"qwen3", "gptq"}));
  const auto qwen = json::parse_file((directory / "qwen/config.json").string(), 1 << 20);
  ASSERT_TRUE(qwen.ok());
  EXPECT_EQ((*qwen)["rope_theta"], 1000000);
  EXPECT_EQ((*qwen)["eos_token_id"], 482);
  EXPECT_EQ((*qwen)["quantization_config"]["checkpoint_format"], "gptq");
  make(directory / "moe", tiny({"qwen3-moe", "awq"}));
  const auto moe = json::parse_file((directory / "moe/config.json").string(), 1 << 20);
  ASSERT_TRUE(moe.ok());
  EXPECT_EQ((*moe)["model_type"], "qwen3_moe");
  EXPECT_EQ((*moe)["num_experts"], 8);
  EXPECT_EQ((*moe)["moe_intermediate_size"], 128);
  make(directory / "oss", tiny({"gpt-oss", "mxfp4"}));
  const auto oss = json::parse_file((directory / "oss/config.json").string(), 1 << 20);
  ASSERT_TRUE(oss.ok());
  EXPECT_EQ((*oss)["rope_scaling"]["rope_type"], "yarn");
  EXPECT_EQ((*oss)["rope_scaling"]["truncate"], false);
  EXPECT_EQ((*oss)["swiglu_limit"], 7.0);
  EXPECT_EQ((*oss)["quantization_config"]["quant_method"], "mxfp4");
}

TEST(synth, refuses_what_it_does_not_know_and_names_what_there_is) {
  SynthOptions options = tiny({"qwen3", "awq"});
  options.arch = "falcon";
  EXPECT_EQ(code_of(options), "synth.arch");
  options = tiny({"qwen3", "awq"});
  options.shape = "20b";
  EXPECT_EQ(code_of(options), "synth.shape");
  EXPECT_EQ(code_of(tiny({"qwen3", "mxfp4"})), "synth.format");
  EXPECT_EQ(code_of(tiny({"gpt-oss", "awq"})), "synth.format");
  options = tiny({"qwen3", "awq"});
  options.layers = 3;
  EXPECT_EQ(code_of(options), "synth.layers");
  for (const int64_t size : {int64_t{0}, int64_t{-8}, int64_t{12}, int64_t{96}}) {
    options = tiny({"qwen3", "gptq"});
    options.group_size = size;
    EXPECT_EQ(code_of(options), "synth.group_size") << size;
  }
  for (const char* const format : {"bf16", "fp8", "kbit4", "vq2"}) {
    options = tiny({"qwen3", format});
    options.group_size = 64;
    EXPECT_EQ(code_of(options), "synth.group_size") << format;
  }
  options = tiny({"qwen3", "fp8"});
  options.group_size = 128;  // which it has in any case
  EXPECT_EQ(code_of(options), "ok");
  options = tiny({"qwen3", "awq"});
  options.shape = "9b";
  ThreadPool pool(1);
  const Status status = synthesize("never-made", options, pool);
  EXPECT_EQ(status.error().message,
            "unknown qwen3 shape \"9b\", expected one of tiny, 0.6b, 1.7b, 4b, 8b, 14b, 32b");
}

TEST(synth, does_not_write_over_what_is_there) {
  const TempDir directory;
  directory.write("model/config.json", "mine");
  ThreadPool pool(1);
  const Status status = synthesize(directory / "model", tiny({"qwen3", "awq"}), pool);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "file.exists");
  EXPECT_EQ(directory.read("model/config.json"), "mine");
  EXPECT_EQ(directory.names(), std::set<std::string>{"model"});
}

/// Runs `body` in a process that cannot write files longer than `bytes`; its exit status.
template <typename Body>
int with_file_size_limit(rlim_t bytes, Body body) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(synth, leaves_nothing_when_the_disk_is_full) {
  const TempDir directory;
  const int exit_code = with_file_size_limit(300'000, [&] {
    ThreadPool pool(1);
    const Status status = synthesize(directory / "model", tiny({"qwen3", "bf16"}), pool);
    return !status.ok() && status.error().code == "file.no_space" ? 7 : 1;
  });
  EXPECT_EQ(exit_code, 7);
  EXPECT_TRUE(directory.names().empty());
}

TEST(synth, reports_progress_up_to_the_end) {
  const TempDir directory;
  ThreadPool pool(2);
  uint64_t last = 0, whole = 0;
  ASSERT_TRUE(synthesize(directory / "model", tiny({"qwen3", "awq"}), pool,
                         [&](uint64_t done, uint64_t total) {
                           EXPECT_GE(done, last);
                           last = done;
                           whole = total;
                         })
                  .ok());
  EXPECT_EQ(last, whole);
  EXPECT_EQ(whole, TensorSource::open(directory / "model")->total_bytes());
}

}  // namespace
}  // namespace subbyte
