#include "engine/workload.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "engine/streams.h"
#include "ops/forwarding_backend.h"
#include "support/paths.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

/// Notes the tokens of each step.
class StepsSeen : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void submit(const CompiledStep& step, const Batch& batch) override {
    steps.push_back(batch.num_tokens());
    ForwardingBackend::submit(step, batch);
  }
  int64_t prompt_chunk() const override { return 16; }

  std::vector<int64_t> steps;
};

class WorkloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model =
        load_model(std::filesystem::path(SUBBYTE_TEST_DATA) / "goldens" / "qwen3-awq", backend_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
  }

  std::unique_ptr<Backend> machine_ = testing::make_test_backend(1);
  StepsSeen backend_{*machine_};
  std::unique_ptr<Model> model_;
};

TEST(Workload, names_are_those_of_llama_bench) {
  EXPECT_EQ(to_string(Workload{.prompt = 512}), "pp512");
  EXPECT_EQ(to_string(Workload{.generated = 128}), "tg128");
  EXPECT_EQ(to_string(Workload{.prompt = 512, .generated = 128}), "pp512+tg128");
  EXPECT_EQ(to_string(Workload{.depth = 4096, .prompt = 512}), "pp512 @ d4096");
  EXPECT_EQ(to_string(Workload{.depth = 512, .generated = 32, .streams = 16}), "tg32 x 16 @ d512");
}

/// As many steps, of as many tokens, as the name says, and the context once for all repetitions.
TEST_F(WorkloadTest, computes_what_its_name_says) {
  testing::TestContext context(*model_, backend_, 64);
  WorkloadRunner runner(*model_, backend_, context.sequence());
  const auto steps_of = [&](const Workload& workload) {
    backend_.steps.clear();
    const auto times = runner.run(workload);
    EXPECT_TRUE(times.ok()) << times.error().message;
    EXPECT_EQ(times->prompt_seconds > 0, workload.prompt > 0);
    EXPECT_EQ(times->generate_seconds > 0, workload.generated > 0);
    return backend_.steps;
  };
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(steps_of({.prompt = 20}), (Steps{16, 4}));
  EXPECT_EQ(steps_of({.generated = 3}), (Steps{1, 1, 1}));
  EXPECT_EQ(steps_of({.prompt = 5, .generated = 2}), (Steps{5, 1, 1}));
  EXPECT_EQ(steps_of({.depth = 33, .generated = 2}), (Steps{16, 16, 1, 1, 1}));
  EXPECT_EQ(steps_of({.depth = 33, .prompt = 7}), (Steps{7}));
  EXPECT_EQ(steps_of({.depth = 16, .prompt = 7}), (Steps{16, 7}));
  EXPECT_EQ(steps_of({.prompt = 64}), (Steps{16, 16, 16, 16}));
}

/// A step has a token of each, and the contexts stay from one round to the next.
TEST_F(WorkloadTest, streams_generate_together) {
  const Streams::Size size = {.count = 3, .context = 20, .steps = 5};
  auto pool = model_->make_kv_pool(backend_, Element::kF32, Streams::cache_size(size));
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  Streams streams(*model_, backend_, *pool, size);
  ASSERT_TRUE(streams.fill_contexts().ok());
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(backend_.steps, (Steps{16, 4, 16, 4, 16, 4}));
  for (int round = 0; round < 2; ++round) {
    backend_.steps.clear();
    int64_t done = 0;
    const auto seconds = streams.generate(5, [&] { ++done; });
    ASSERT_TRUE(seconds.ok()) << seconds.error().message;
    EXPECT_GT(*seconds, 0);
    EXPECT_EQ(done, 5);
    EXPECT_EQ(backend_.steps, (Steps{3, 3, 3, 3, 3}));
  }
}

TEST_F(WorkloadTest, refuses_what_has_no_room) {
  testing::TestContext context(*model_, backend_, 32);
  WorkloadRunner runner(*model_, backend_, context.sequence());
  EXPECT_EQ(runner.run({.prompt = 33}).error().code, "model.context_full");
  EXPECT_EQ(runner.run({.depth = 33, .prompt = 1}).error().code, "model.context_full");
  EXPECT_TRUE(runner.run({.depth = 30, .prompt = 2}).ok());
}

}  // namespace
}  // namespace subbyte
