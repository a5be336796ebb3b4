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
  testing::expect_sums_however_tokens_are_cut(*model_);
}

TEST_F(RunningSums, go_on_from_where_a_step_was_taken_back_to) {
  testing::expect_sums_after_a_step_is_taken_back(*model_);
}

TEST_F(RunningSums, of_shared_prefixes_go_on_apart) {
  testing::expect_sums_of_shared_prefixes(*model_);
}

}  // namespace
}  // namespace subbyte
