// Tiny checkpoints whose logits and greedy continuations were computed by Hugging Face transformers
// in float32 on the dequantized weights. Those that other software wrote (tools/interop/golden.py)
// were dequantized by that software.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/thread_pool.h"
#include "checkpoints/containers/tensor_source.h"
#include "engine/generate.h"
#include "models/model.h"
#include "support/golden_bound.h"
#include "support/goldens.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "support/test_names.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

constexpr int kPrompts = 3;

struct Golden {
  std::vector<int32_t> ids;
  std::vector<float> logits;  // [ids][vocab]
  std::vector<int32_t> greedy;
};

template <typename T>
std::vector<T> read_tensor(const TensorSource& source, const std::string& name) {
  const FileTensor* tensor = source.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

class GoldenModels : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto directory = testing::golden_folder(GetParam());
    const char* isa = std::getenv("SUBBYTE_ISA");  // ./dev test runs this with "scalar" as well
    backend_ = testing::make_test_backend(2, isa == nullptr ? "" : isa);
    ASSERT_NO_FATAL_FAILURE(load(directory));
    auto source = TensorSource::open(directory / "reference.safetensors");
    ASSERT_TRUE(source.ok()) << source.error().message;
    for (int i = 0; i < kPrompts; ++i) {
      const std::string prefix = "prompt" + std::to_string(i);
      goldens_.push_back({read_tensor<int32_t>(*source, prefix + ".ids"),
                          read_tensor<float>(*source, prefix + ".logits"),
                          read_tensor<int32_t>(*source, prefix + ".greedy")});
      ASSERT_FALSE(goldens_.back().ids.empty());
      ASSERT_EQ(goldens_.back().greedy.size(), 24u);
    }
  }

  void load(const std::filesystem::path& directory) {
    auto model = load_model(directory, *backend_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
  }

  /// What logits of a prompt, or of a single token, may differ from those.
  double tolerance(std::span<const float> reference, bool is_prompt = true) const {
    return testing::golden_tolerance(
        model_->config(), reference,
        testing::rounding_of(testing::isa_of(*backend_), Activations::kF32, is_prompt));
  }

  /// The whole prompts, in one step each.
  void expect_reference_logits() {
    double worst = 0;  // of the tolerance
    for (const Golden& golden : goldens_) {
      const double difference =
          worst_difference(testing::logits_of(*model_, *backend_, golden.ids), golden.logits);
      const double tolerated = tolerance(golden.logits);
      EXPECT_LE(difference, tolerated);
      worst = std::max(worst, difference / tolerated);
    }
    RecordProperty("worst_of_tolerance", std::to_string(worst));
    // Where nothing is rounded on purpose, the bound is one that something could reach.
    if (testing::isa_of(*backend_) == "amx") return;
    EXPECT_GT(worst, 1.0 / 20);
  }

  static double worst_difference(std::span<const float> a, std::span<const float> b) {
    EXPECT_EQ(a.size(), b.size());
    double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
      worst = difference <= worst ? worst : difference;  // NaN becomes the worst
    }
    return worst;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::vector<Golden> goldens_;
};

TEST_P(GoldenModels, prefill_gives_the_reference_logits) {
  expect_reference_logits();
}

TEST_P(GoldenModels, token_by_token_gives_the_reference_logits) {
  const std::size_t vocab = model_->config().vocab_size;
  for (const Golden& golden : goldens_) {
    testing::TestContext context(*model_, *backend_, 64);
    for (std::size_t i = 0; i < golden.ids.size(); ++i) {
      const auto logits = context.forward({&golden.ids[i], 1});
      const auto expected = std::span(golden.logits).subspan(i * vocab, vocab);
      EXPECT_LE(worst_difference(logits, expected), tolerance(golden.logits, false))
          << "token " << i;
    }
  }
}

TEST_P(GoldenModels, pieces_of_a_prompt_give_the_reference_logits) {
  const std::size_t vocab = model_->config().vocab_size;
  const Golden& golden = goldens_.back();
  for (const std::size_t piece : {2u, 3u, 5u, 17u}) {
    testing::TestContext context(*model_, *backend_, 64);
    for (std::size_t i = 0; i < golden.ids.size(); i += piece) {
      const std::size_t n = std::min(piece, golden.ids.size() - i);
      const auto logits = context.forward(std::span(golden.ids).subspan(i, n));
      const auto expected = std::span(golden.logits).subspan(i * vocab, n * vocab);
      EXPECT_LE(worst_difference(logits, expected), tolerance(golden.logits))
          << "piece of " << piece;
    }
  }
}

TEST_P(GoldenModels, greedy_tokens_through_the_cache_are_identical) {
  for (const Golden& golden : goldens_) {
    testing::TestContext context(*model_, *backend_, 128);
    GenerateOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = 24;
    std::vector<int32_t> tokens;
    const auto stats =
        generate(*model_, *backend_, context.sequence(), golden.ids, options, [&](int32_t t) {
          tokens.push_back(t);
          return true;
        });
    ASSERT_TRUE(stats.ok()) << stats.error().message;
    EXPECT_EQ(tokens, golden.greedy);
  }
}

TEST_P(GoldenModels, greedy_tokens_by_prefill_are_identical) {
  const int64_t vocab = model_->config().vocab_size;
  for (const Golden& golden : goldens_) {
    std::vector<int32_t> tokens = golden.ids;
    for (const int32_t expected : golden.greedy) {
      const auto logits = testing::logits_of(*model_, *backend_, tokens);
      const auto last = logits.end() - vocab;
      const auto best = static_cast<int32_t>(std::max_element(last, logits.end()) - last);
      ASSERT_EQ(best, expected) << "after " << tokens.size() << " tokens";
      tokens.push_back(best);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllCheckpoints, GoldenModels,
                         ::testing::ValuesIn(testing::goldens(testing::kEveryWay)), NamedByValue());

/// They are there for how files are read; that all ways give the same is shown by those above.
class ToolGoldens : public GoldenModels {};

TEST_P(ToolGoldens, prefill_gives_the_reference_logits) {
  expect_reference_logits();
}

INSTANTIATE_TEST_SUITE_P(RealTools, ToolGoldens,
                         ::testing::ValuesIn(testing::goldens(testing::kTool)), NamedByValue());

/// Software that rounds products of codes and scales to f16 has other weights than the file.
class F16Goldens : public GoldenModels {};

TEST_P(F16Goldens, weights_in_f16_give_the_reference_logits) {
  const TempDir folder;
  ThreadPool pool(2);
  const auto report = convert_model(testing::golden_folder(GetParam()), folder / "f16",
                                    {.format = "f16", .allow_lossy = true}, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_NO_FATAL_FAILURE(load(folder / "f16"));
  expect_reference_logits();
}

TEST_P(F16Goldens, weights_of_the_file_are_as_near_as_f16) {
  for (const Golden& golden : goldens_) {
    const double difference =
        worst_difference(testing::logits_of(*model_, *backend_, golden.ids), golden.logits);
    EXPECT_LE(difference, testing::golden_tolerance(model_->config(), golden.logits, {0x1p-11}));
    EXPECT_GT(difference, tolerance(golden.logits)) << "nothing was rounded";
  }
}

INSTANTIATE_TEST_SUITE_P(RealTools, F16Goldens,
                         ::testing::ValuesIn(testing::goldens(testing::kReferenceInF16)),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
