// Tokens chosen on the GPU: those of the scalar choice, of the same logits.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "kernels/cuda/sampling/sample.h"
#include "ops/part_choice.h"
#include "ops/token_choice.h"
#include "ops_gpu.h"

namespace subbyte::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Rows of logits, and a choice of each.
struct Problem {
  int64_t vocabulary = 0;
  std::vector<float> logits = {};
  std::vector<TokenChoice> choices = {};
  std::vector<std::vector<int32_t>> histories = {};  // of the choices
  std::vector<std::vector<LogitBias>> biases = {};   // likewise

  /// With its history and its biases.
  TokenChoice choice(std::size_t i) const {
    TokenChoice choice = choices[i];
    choice.history = histories[i];
    choice.biases = biases[i];
    return choice;
  }

  std::span<const float> row(std::size_t i) const {
    return std::span(logits).subspan(i * vocabulary, vocabulary);
  }
};

/// The problem in device memory. Choice i is of the last row but i, to tell rows from choices.
class OnDevice {
 public:
  explicit OnDevice(const Problem& problem)
      : logits_(as_bytes(reversed(problem))),
        choices_(as_bytes(rows_of(problem))),
        tokens_of_rows_(as_bytes(tokens_of(problem))),
        tokens_(problem.choices.size() * sizeof(int32_t)) {
    call_.logits = reinterpret_cast<const float*>(logits_.data());
    call_.vocabulary = problem.vocabulary;
    call_.choices = reinterpret_cast<const cuda::ChoiceRow*>(choices_.data());
    call_.tokens_of_rows = reinterpret_cast<const int32_t*>(tokens_of_rows_.data());
    call_.num_choices = std::ssize(problem.choices);
    for (const cuda::ChoiceRow& row : rows_of(problem)) {
      call_.has_changes = call_.has_changes || row.has_changes();
    }
    for (const TokenChoice& choice : problem.choices) {
      const bool has_top_k = choice.top_k > 0 && choice.top_k < problem.vocabulary;
      if (choice.temperature != 0 && !has_top_k) call_.has_all_tokens = true;
    }
    scratch_.emplace(static_cast<std::size_t>(cuda::sample_scratch_bytes(call_)));
    call_.scratch = scratch_->data();
    call_.tokens = reinterpret_cast<int32_t*>(tokens_.data());
  }

  const cuda::SampleCall& call() const { return call_; }

  std::vector<int32_t> tokens() const {
    EXPECT_TRUE(tokens_.canaries_are_whole());
    EXPECT_TRUE(scratch_->canaries_are_whole());
    std::vector<int32_t> tokens(tokens_.size() / sizeof(int32_t));
    std::memcpy(tokens.data(), tokens_.read().data(), tokens_.size());
    return tokens;
  }

  /// The choices of another problem of the same size, in the same memory.
  void change_choices(const Problem& problem) const {
    const std::vector<cuda::ChoiceRow> rows = rows_of(problem);
    expect_ok(cudaMemcpy(choices_.data(), rows.data(), choices_.size(), cudaMemcpyHostToDevice));
    expect_ok(cudaStreamSynchronize(nullptr));  // a small copy may return before it is done
  }

 private:
  static std::vector<float> reversed(const Problem& problem) {
    std::vector<float> logits;
    for (std::size_t i = problem.choices.size(); i-- > 0;) {
      logits.insert(logits.end(), problem.row(i).begin(), problem.row(i).end());
    }
    return logits;
  }
  static std::vector<cuda::ChoiceRow> rows_of(const Problem& problem) {
    std::vector<cuda::ChoiceRow> rows;
    int64_t begin = 0;
    for (std::size_t i = 0; i < problem.choices.size(); ++i) {
      const TokenChoice choice = problem.choice(i);
      cuda::ChoiceRow& row = rows.emplace_back();
      row.temperature = choice.temperature;
      row.top_p = choice.top_p;
      row.min_p = choice.min_p;
      row.repetition_penalty = choice.repetition_penalty;
      row.frequency_penalty = choice.frequency_penalty;
      row.presence_penalty = choice.presence_penalty;
      row.uniform = choice.uniform;
      row.top_k = choice.top_k;
      row.row = static_cast<int64_t>(problem.choices.size() - 1 - i);
      row.history_begin = begin;
      row.history_size = std::ssize(choice.penalized());
      row.num_generated = choice.counts_generated() ? choice.num_generated : 0;
      row.biases_begin = begin + row.history_size;
      row.num_biases = std::ssize(choice.biases);
      begin = row.biases_begin + 2 * row.num_biases;
    }
    return rows;
  }
  static std::vector<int32_t> tokens_of(const Problem& problem) {
    std::vector<int32_t> all;
    for (std::size_t i = 0; i < problem.choices.size(); ++i) {
      const TokenChoice choice = problem.choice(i);
      const std::span<const int32_t> history = choice.penalized();
      all.insert(all.end(), history.begin(), history.end());
      for (const LogitBias& bias : choice.biases) {
        all.push_back(bias.token);
        all.push_back(std::bit_cast<int32_t>(bias.bias));
      }
    }
    if (all.empty()) all.push_back(0);  // memory of some size
    return all;
  }

  DeviceBytes logits_;
  DeviceBytes choices_;
  DeviceBytes tokens_of_rows_;
  DeviceBytes tokens_;
  std::optional<DeviceBytes> scratch_;
  cuda::SampleCall call_;
};

std::vector<int32_t> chosen_on_host(const Problem& problem) {
  TokenChooser chooser;
  std::vector<int32_t> tokens;
  for (std::size_t i = 0; i < problem.choices.size(); ++i) {
    const Result<int32_t> token = chooser.choose(problem.row(i), problem.choice(i));
    tokens.push_back(token.ok() ? *token : kNoToken);
  }
  return tokens;
}

std::string describe(const Problem& problem) {
  std::string text = std::to_string(problem.vocabulary) + " tokens:";
  for (const TokenChoice& choice : problem.choices) {
    for (const double value :
         {choice.temperature, static_cast<double>(choice.top_k), choice.top_p, choice.min_p,
          choice.repetition_penalty, choice.frequency_penalty, choice.presence_penalty,
          static_cast<double>(choice.num_generated), choice.uniform}) {
      text += " " + std::to_string(value);
    }
    text += ";";
  }
  return text;
}

void expect_same_tokens(const Problem& problem) {
  const OnDevice device(problem);
  cuda::run_sample(device.call(), nullptr);
  expect_ran();
  ASSERT_EQ(device.tokens(), chosen_on_host(problem)) << describe(problem);
}

template <class T, std::size_t kSize>
T one_of(Random& random, const T (&values)[kSize]) {
  return values[random.below(kSize)];
}

enum class Kind { kReal, kPeaked, kLevels, kEqual, kExcluded, kFlat, kSmall, kLarge };
constexpr uint64_t kNumKinds = 8;

void append_logits(Problem& problem, Kind kind, Random& random) {
  const std::size_t begin = problem.logits.size();
  for (int64_t i = 0; i < problem.vocabulary; ++i) {
    float logit = 0;
    switch (kind) {
      case Kind::kReal:
        logit = static_cast<float>(3 * random.normal());
        break;
      case Kind::kPeaked:
        logit = static_cast<float>(2 * random.normal() + (random.below(3000) == 0 ? 14 : 0));
        break;
      case Kind::kLevels:
        logit = static_cast<float>(random.below(5)) - 2;
        break;
      case Kind::kExcluded:
        logit = random.below(9) == 0 ? static_cast<float>(random.normal()) : -kInfinity;
        break;
      case Kind::kFlat:
        logit = 1 + static_cast<float>(random.below(4)) * FLT_EPSILON;
        break;
      case Kind::kSmall:
        logit = static_cast<float>(static_cast<int>(random.below(5)) - 2) * 0x1p-149f;
        if (random.below(2) == 0) logit = -logit;  // both zeros
        break;
      case Kind::kLarge:
        logit = static_cast<float>(random.normal()) * 1e38f;
        break;
      default:
        logit = 2;
    }
    problem.logits.push_back(std::clamp(logit, -kInfinity, FLT_MAX));
  }
  problem.logits[begin + random.below(problem.vocabulary)] = 1;  // one is finite
}

/// None, or of some tokens, the best one and one beyond the vocabulary among them.
std::vector<LogitBias> some_biases(int64_t vocabulary, int32_t best, Random& random) {
  std::vector<LogitBias> biases;
  if (random.below(2) == 0) return biases;
  std::set<int32_t> tokens = {best, static_cast<int32_t>(vocabulary) + 3};
  for (uint64_t i = random.below(40); i > 0; --i) {
    tokens.insert(static_cast<int32_t>(random.below(vocabulary)));
  }
  for (const int32_t token : tokens) {
    const auto drawn = static_cast<float>(8 * random.normal());
    biases.push_back({token, one_of(random, {-kInfinity, -100.0f, 0.0f, 100.0f, drawn, drawn})});
  }
  return biases;
}

void append_choice(Problem& problem, Random& random) {
  TokenChoice choice;
  choice.temperature = one_of(random, {0.0, 0.01, 0.6, 0.8, 1.0, 1.7, 100.0});
  choice.top_k = one_of<int64_t>(random, {0, 0, 1, 3, 40, 200, 1000, 1024, 1025, 5000, 1'000'000});
  choice.top_p = one_of(random, {1.0, 1.0, 0.95, 0.95, 0.999999, 0.5, 1e-6});
  choice.min_p = one_of(random, {0.0, 0.0, 0.05, 0.5, 1.0, 1e-11});
  choice.repetition_penalty = one_of(random, {1.0, 1.0, 1.1, 0.5, 100.0});
  choice.frequency_penalty = one_of(random, {0.0, 0.0, 0.7, -2.0});
  choice.presence_penalty = one_of(random, {0.0, 0.0, 1.3, -2.0});
  choice.uniform = one_of(random, {0.0, 1 - 0x1p-53, random.uniform(), random.uniform()});
  problem.choices.push_back(choice);
  std::vector<int32_t> history = {-1, static_cast<int32_t>(problem.vocabulary)};
  for (uint64_t i = random.below(300); i > 0; --i) {
    history.push_back(static_cast<int32_t>(random.below(problem.vocabulary)));
  }
  const std::span<const float> row = problem.row(problem.choices.size() - 1);
  history.push_back(static_cast<int32_t>(std::ranges::max_element(row) - row.begin()));
  problem.choices.back().num_generated = static_cast<int64_t>(random.below(history.size() + 1));
  problem.histories.push_back(history);
  problem.biases.push_back(some_biases(problem.vocabulary, history.back(), random));
}

void expect_same_tokens_of_random_problems(int64_t vocabulary, int count) {
  Random random(vocabulary);
  for (int i = 0; i < count; ++i) {
    Problem problem = {.vocabulary = vocabulary};
    for (uint64_t rows = 1 + random.below(8); rows > 0; --rows) {
      append_logits(problem, static_cast<Kind>(random.below(kNumKinds)), random);
      append_choice(problem, random);
    }
    ASSERT_NO_FATAL_FAILURE(expect_same_tokens(problem));
  }
}

TEST(GpuSample, takes_the_tokens_of_the_scalar_choice) {
  for (const int64_t vocabulary : {1, 2, 31, 127, 128, 129, 1000, 1024, 1025, 5003}) {
    expect_same_tokens_of_random_problems(vocabulary, 100);
  }
  expect_same_tokens_of_random_problems(32'001, 60);
  expect_same_tokens_of_random_problems(151'936, 40);
  expect_same_tokens_of_random_problems(262'145 + 1024, 6);  // more chunks than a CTA has threads
}

/// The tokens from `first` to `end` of all rows, with the choices.
Problem part_of(const Problem& problem, int64_t first, int64_t end) {
  Problem part = problem;
  part.vocabulary = end - first;
  part.logits.clear();
  for (std::size_t i = 0; i < problem.choices.size(); ++i) {
    const auto row = problem.row(i).subspan(first, end - first);
    part.logits.insert(part.logits.end(), row.begin(), row.end());
  }
  return part;
}

/// The same choices of so many logits, which have changed already.
Problem among(const Problem& problem, int64_t vocabulary) {
  Problem all = {.vocabulary = vocabulary};
  all.logits.resize(problem.choices.size() * vocabulary);
  for (TokenChoice choice : problem.choices) {
    choice.repetition_penalty = 1;
    choice.frequency_penalty = choice.presence_penalty = 0;
    choice.num_generated = 0;
    all.choices.push_back(choice);
    all.histories.emplace_back();
    all.biases.emplace_back();
  }
  return all;
}

/// As ranks choose that have these parts of the vocabulary.
void expect_same_tokens_of_parts(const Problem& problem, const std::vector<int64_t>& borders) {
  const auto parts = std::ssize(borders) - 1;
  int64_t count = 0;
  for (const TokenChoice& choice : problem.choices) {
    count = std::max(count, candidates_of_part(choice));
  }
  const int64_t row = parts * count;
  const auto rows = std::ssize(problem.choices);
  const DeviceBytes numbers(static_cast<std::size_t>(2 * rows * row) * sizeof(float));
  auto* const logits = reinterpret_cast<float*>(numbers.data());
  const OnDevice all(among(problem, row));
  for (int64_t i = 0; i < parts; ++i) {
    const OnDevice part(part_of(problem, borders[i], borders[i + 1]));
    cuda::CandidatesCall call = {part.call(), count, nullptr, nullptr, -row};
    call.of.first_token = borders[i];
    call.logits = logits + (rows - 1) * row + i * count;  // choices are of rows from the last on
    call.tokens = call.logits + rows * row;
    cuda::run_candidates(call, nullptr);
    expect_ran();
  }
  cuda::SampleCall call = all.call();
  call.logits = logits;
  call.names = logits + rows * row;
  cuda::run_sample(call, nullptr);
  expect_ran();
  // Each choice has the tokens of its own row.
  ASSERT_EQ(all.tokens(), chosen_on_host(problem)) << describe(problem);
}

TEST(GpuSample, takes_the_tokens_of_all_logits_among_candidates_of_parts) {
  Random random(8);
  for (int i = 0; i < 150; ++i) {
    const int64_t vocabulary = one_of<int64_t>(random, {64, 1000, 5003, 32'000});
    Problem problem = {.vocabulary = vocabulary};
    for (uint64_t rows = 1 + random.below(6); rows > 0; --rows) {
      append_logits(problem, static_cast<Kind>(random.below(kNumKinds)), random);
      append_choice(problem, random);
      problem.choices.back().top_k = one_of<int64_t>(random, {1, 3, 40, 200, 1000, 1024});
    }
    if (i % 10 == 0) problem.logits[random.below(problem.logits.size())] = kInfinity;
    if (i % 10 == 5) problem.logits[random.below(problem.logits.size())] = NAN;
    const int64_t third = vocabulary / 3;
    ASSERT_NO_FATAL_FAILURE(expect_same_tokens_of_parts(problem, {0, vocabulary / 2, vocabulary}));
    ASSERT_NO_FATAL_FAILURE(
        expect_same_tokens_of_parts(problem, {0, third, 2 * third, vocabulary}));
  }
}

TEST(GpuSample, draws_every_token_of_the_sorted_candidates) {
  Random random(3);
  for (const int64_t top_k : {40, 0}) {
    for (int i = 0; i < 100; ++i) {
      Problem problem = {.vocabulary = 20'000};
      for (int row = 0; row < 4; ++row) {
        append_logits(problem, Kind::kPeaked, random);
        problem.choices.push_back(
            {.temperature = 0.8, .top_k = top_k, .top_p = 0.95, .uniform = random.uniform()});
        problem.histories.emplace_back();
        problem.biases.emplace_back();
      }
      ASSERT_NO_FATAL_FAILURE(expect_same_tokens(problem));
    }
  }
}

TEST(GpuSample, refuses_the_rows_whose_logits_are_not_finite) {
  Random random(4);
  for (const int64_t vocabulary : {300, 5000}) {
    for (const double temperature : {0.0, 1.0}) {
      Problem problem = {.vocabulary = vocabulary};
      for (int row = 0; row < 6; ++row) {
        append_logits(problem, Kind::kReal, random);
        problem.choices.push_back({.temperature = temperature, .repetition_penalty = 1.5});
        problem.histories.push_back({5, 17});
        problem.biases.emplace_back();
      }
      float* const logits = problem.logits.data();
      logits[vocabulary - 1] = kInfinity;
      logits[1 * vocabulary + 17] = std::nanf("");
      logits[3 * vocabulary + 131] = -std::nanf("");
      std::fill_n(logits + 4 * vocabulary, vocabulary, -kInfinity);
      const std::vector<int32_t> tokens = chosen_on_host(problem);
      EXPECT_EQ(std::ranges::count(tokens, kNoToken), 4);
      ASSERT_NO_FATAL_FAILURE(expect_same_tokens(problem));
    }
  }
}

TEST(GpuSample, is_captured_once_and_run_with_other_choices) {
  Random random(5);
  Problem problem = {.vocabulary = 3001};
  for (int row = 0; row < 3; ++row) {
    append_logits(problem, Kind::kReal, random);
    problem.choices.push_back({.temperature = 0.9});  // as has_all_tokens
    problem.histories.emplace_back();
    problem.biases.emplace_back();
  }
  OnDevice device(problem);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runnable = nullptr;
  expect_ok(cudaStreamCreate(&stream));
  expect_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cuda::run_sample(device.call(), stream);
  expect_ok(cudaStreamEndCapture(stream, &graph));
  expect_ok(cudaGraphInstantiate(&runnable, graph, 0));
  for (int i = 0; i < 30; ++i) {
    for (TokenChoice& choice : problem.choices) {
      choice.top_k = one_of<int64_t>(random, {0, 40});
      choice.uniform = random.uniform();
    }
    device.change_choices(problem);
    expect_ok(cudaGraphLaunch(runnable, stream));
    expect_ran();
    EXPECT_EQ(device.tokens(), chosen_on_host(problem)) << describe(problem);
  }
  cudaGraphExecDestroy(runnable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace subbyte::testing
