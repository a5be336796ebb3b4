#include "parallel/process_backend.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>

#include "base/thread_pool.h"
#include "exchange/exchange.h"

namespace subbyte {
namespace {

/// Memory that is counted while it is there.
class CountedMemory : public KvMemory {
 public:
  explicit CountedMemory(int& count) : count_(count) { ++count_; }
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;
  ~CountedMemory() override { --count_; }
  void copy_page(int32_t, int32_t, int64_t) override {}

 private:
  int& count_;
};

/// A machine that only makes caches.
class CacheMachine : public Backend {
 public:
  explicit CacheMachine(int& count) : count_(count) {}

  std::string description() const override { return "caches"; }
  int64_t prompt_chunk() const override { return 1; }
  double measure_read_bandwidth(const Weight&) override { return 0; }
  Executor& host() override { return host_; }
  using Backend::upload;
  Result<Weight> upload_joined(std::vector<Matrix>, std::vector<float>) override { return none(); }
  Result<Experts> upload(ExpertMatrices) override { return none(); }
  Result<Vector> upload(std::vector<float>) override { return none(); }
  Status check_cache(const CacheLayout&, Element) const override { return {}; }
  Result<KvPool> make_kv_pool(const CacheLayout& layout, Element type,
                              const CacheSize& size) override {
    std::vector<KvGroup> groups;
    for (const CacheGroup& group : layout.groups) {
      groups.emplace_back(group, cache_units(group, size), std::make_unique<CountedMemory>(count_));
    }
    return KvPool(layout, type, size, std::move(groups));
  }
  Result<std::unique_ptr<CompiledStep>> compile(StepPlan plan) override {
    return std::make_unique<CompiledStep>(std::move(plan));
  }
  void submit(const CompiledStep&, const Batch&) override {}
  Status wait(Logits&) override { return {}; }

 private:
  static Error none() { return {"linear.unsupported", "caches alone"}; }

  int& count_;
  ThreadPool host_{1};
};

StepPlan plan_with_a_cache() {
  StepPlan plan;
  plan.cache.groups = {{.layers = 1, .kv_heads = 1, .head_dim = 1}};
  return plan;
}

TEST(ProcessBackend, ends_caches_of_other_processes_with_those_of_the_first_one) {
  auto exchanges = make_thread_exchanges(2);
  int here = 0;
  int there = 0;
  std::thread other([&] {
    ProcessBackend second(std::make_unique<CacheMachine>(there), std::move(exchanges[1]),
                          ProcessBackend::Reads::kAtOnce);
    const auto step = second.compile(plan_with_a_cache());
    ASSERT_TRUE(step.ok());
    EXPECT_TRUE(second.follow().ok());
    EXPECT_EQ(there, 2);  // the one that stayed and the last
  });
  {
    ProcessBackend first(std::make_unique<CacheMachine>(here), std::move(exchanges[0]),
                         ProcessBackend::Reads::kAtOnce);
    const StepPlan plan = plan_with_a_cache();
    const auto step = first.compile(plan);
    ASSERT_TRUE(step.ok());
    auto stays = first.make_kv_pool(plan.cache, Element::kF16, {.positions = 64});
    ASSERT_TRUE(stays.ok());
    for (int i = 0; i < 5; ++i) {
      const auto ends = first.make_kv_pool(plan.cache, Element::kF16, {.positions = 64});
      ASSERT_TRUE(ends.ok());
      EXPECT_EQ(here, 2);
      ends->groups().front().memory().copy_page(0, 0, 1);  // no step comes after it
    }
    Sequence sequence(*stays, 16);
    ASSERT_TRUE(sequence.reserve(1).ok());
    const std::vector<int32_t> tokens = {1};
    const Part part = {&sequence, tokens, 1};
    first.submit(**step, {{&part, 1}});
    Logits logits;
    EXPECT_TRUE(first.wait(logits).ok());
  }
  other.join();
  EXPECT_EQ(here, 0);
  EXPECT_EQ(there, 0);
}

}  // namespace
}  // namespace subbyte
