// States of sequences, by the simplest operation that keeps one: steps ahead taken back, prefixes
// shared, prompts in pieces.
#include <gtest/gtest.h>

#include "cpu_backend/cpu_backend.h"
#include "ops/recorder.h"
#include "support/running_sum_model.h"

namespace subbyte {
namespace {

class RunningSums : public ::testing::Test {
 protected:
  void SetUp() override {
    backend_ = std::move(make_cpu_backend({.num_threads = 1})).value();
    model_.emplace(*backend_);
  }

  std::unique_ptr<Backend> backend_;
  std::optional<testing::RunningSumModel> model_;
};

TEST_F(RunningSums, are_those_of_all_tokens_however_they_are_cut) {
  KvPool pool = model_->make_pool(8);
  for (const int64_t piece : {1, 3, 7, 20}) {
    Sequence sequence(pool, 100);
    const std::vector<int32_t> tokens = model_->tokens(20);
    std::vector<float> found;
    for (int64_t at = 0; at < 20; at += piece) {
      const auto part = std::span(tokens).subspan(at, std::min<int64_t>(piece, 20 - at));
      const std::vector<float> sums = model_->run(sequence, part);
      found.insert(found.end(), sums.begin(), sums.end());
    }
    ASSERT_EQ(std::ssize(found), 20 * testing::RunningSumModel::kSize);
    model_->expect_end(found, tokens);
  }
}

TEST_F(RunningSums, go_on_from_where_a_step_was_taken_back_to) {
  KvPool pool = model_->make_pool(8);
  Sequence sequence(pool, 100);
  const std::vector<int32_t> tokens = model_->tokens(9);
  model_->run(sequence, std::span(tokens).first(6));
  model_->submit(sequence, std::span(tokens).subspan(3, 1));  // ahead, in vain
  sequence.truncate(6);
  const std::vector<float> found = model_->run(sequence, std::span(tokens).subspan(6));
  model_->expect_end(found, tokens);
}

TEST_F(RunningSums, of_shared_prefixes_go_on_apart) {
  KvPool pool = model_->make_pool(8);
  Sequence first(pool, 100);
  const std::vector<int32_t> tokens = model_->tokens(12);
  model_->run(first, std::span(tokens).first(5));
  Sequence second = first.share(5);
  model_->run(first, std::vector<int32_t>{0, 0, 0});
  first.settle(8);
  const std::vector<float> found = model_->run(second, std::span(tokens).subspan(5));
  model_->expect_end(found, tokens);
}

}  // namespace
}  // namespace subbyte
