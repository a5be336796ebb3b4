// Golden models on several ranks of tensor parallelism beside one: of every family and format of
// weights, whatever of a model is divided and whatever each rank has as a whole.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoints/containers/tensor_source.h"
#include "engine/generate.h"
#include "models/model.h"
#include "support/goldens.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr double kBound = 2e-3;  // of the largest logit
constexpr int kTokens = 12;      // that are chosen

/// Folders of all models that there are references of.
std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  for (const testing::Golden& golden : testing::kGoldenModels) {
    if ((golden.uses & testing::kRefused) == 0)
      found.push_back(testing::golden_folder(golden.name));
  }
  for (const char* const name : testing::kGgufGoldens) {
    found.push_back(fs::path(kTestData) / "gguf" / name);
  }
  return found;
}

std::vector<int32_t> prompt_of(const fs::path& folder) {
  const auto source = TensorSource::open(folder / "reference.safetensors");
  if (!source.ok()) return {};
  const FileTensor& tensor = *source->find("prompt2.ids");
  std::vector<int32_t> ids(tensor.bytes.size() / sizeof(int32_t));
  std::memcpy(ids.data(), tensor.bytes.data(), tensor.bytes.size());
  return ids;
}

struct Answer {
  std::vector<float> logits;    // of the prompt
  std::vector<int32_t> tokens;  // after it
};

/// A model on so many ranks.
class OnRanks {
 public:
  OnRanks(const fs::path& folder, int ranks) {
    const char* const isa = std::getenv("SUBBYTE_ISA");
    auto backend = make_backend({.device = "cpu",
                                 .num_threads = ranks,
                                 .isa = isa == nullptr ? "" : isa,
                                 .tensor_parallel_size = ranks});
    if (!backend.ok()) {
      fail(backend.error());
      return;
    }
    backend_ = std::move(backend).value();
    const fs::path file = folder / "model.gguf";
    auto model = load_model(fs::exists(file) ? file : folder, *backend_);
    if (model.ok()) {
      model_ = std::move(model).value();
    } else {
      fail(model.error());
    }
  }

  const std::string& error() const { return error_; }

  Answer answer(const std::vector<int32_t>& prompt) {
    Answer answer = {testing::logits_of(*model_, *backend_, prompt), {}};
    testing::TestContext context(*model_, *backend_, std::ssize(prompt) + kTokens);
    GenerateOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = kTokens;
    options.stop_tokens = {};
    const auto stats =
        generate(*model_, *backend_, context.sequence(), prompt, options, [&](int32_t token) {
          answer.tokens.push_back(token);
          return true;
        });
    EXPECT_TRUE(stats.ok()) << stats.error().message;
    return answer;
  }

 private:
  void fail(const Error& error) { error_ = std::string(error.code) + ": " + error.message; }

  std::string error_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

/// The largest difference over the largest logit.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double one = std::abs(double{a[i]} - b[i]);
    most = one <= most ? most : one;  // NaN becomes the most
    largest = std::max(largest, std::abs(double{a[i]}));
  }
  return a.size() == b.size() ? most / largest : 1;
}

class RanksOfGoldens : public ::testing::TestWithParam<int> {};

TEST_P(RanksOfGoldens, answer_as_one_does) {
  int answered = 0;
  int rounded = 0;  // other bits: sums of several ranks
  for (const fs::path& folder : folders()) {
    SCOPED_TRACE(folder.filename().string());
    const std::vector<int32_t> prompt = prompt_of(folder);
    if (prompt.empty()) continue;
    OnRanks one(folder, 1);
    OnRanks several(folder, GetParam());
    ASSERT_EQ(one.error(), "");
    EXPECT_EQ(several.error(), "");
    if (!several.error().empty()) continue;
    const Answer expected = one.answer(prompt);
    const Answer found = several.answer(prompt);
    EXPECT_LE(difference(expected.logits, found.logits), kBound);
    EXPECT_EQ(expected.tokens, found.tokens);
    ++answered;
    if (expected.logits != found.logits) ++rounded;
    EXPECT_EQ(several.answer(prompt).logits, found.logits) << "not the same bits again";
  }
  EXPECT_GT(answered, 150);
  EXPECT_GT(rounded, answered / 2) << "of " << answered;
}

INSTANTIATE_TEST_SUITE_P(Sizes, RanksOfGoldens, ::testing::Values(2, 3, 4));

}  // namespace
}  // namespace subbyte
