// Prefixes that are known (ops/prefix_cache.h), on a GPU: they change no bit.

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "engine/scheduler.h"
#include "model_on_gpu.h"

namespace subbyte {
namespace {

using namespace testing;  // of tests/gpu/model_on_gpu.h

using Answers = std::map<std::pair<RequestId, int64_t>, std::vector<double>>;

std::vector<int32_t> joined(std::vector<int32_t> a, std::span<const int32_t> b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Texts that begin alike, at several places within pages and between them.
std::vector<ScheduledRequest> branching_requests(const LoadedModel& on) {
  std::vector<std::vector<int32_t>> texts = {random_tokens(on, 430, 70)};
  std::vector<ScheduledRequest> requests;
  for (uint64_t i = 0; i < 24; ++i) {
    const std::vector<int32_t>& from = texts[i / 3];
    const auto common = static_cast<std::ptrdiff_t>(from.size() * (1 + i % 4) / 4);
    ScheduledRequest request;
    request.prompt = joined({from.begin(), from.begin() + common},
                            random_tokens(on, 3 + 17 * static_cast<int64_t>(i % 5), 71 + i));
    request.boundary = std::ssize(request.prompt) - 2;
    request.options.max_tokens = 20;
    request.options.sampling = {.temperature = 1.2, .top_k = 0, .top_p = 1, .min_p = 0, .seed = i};
    request.num_top_logprobs = 0;
    request.num_samples = i % 6 == 5 ? 2 : 1;
    texts.push_back(request.prompt);
    requests.push_back(std::move(request));
  }
  return requests;
}

/// Tokens and log probabilities, some requests at a time.
Answers answers(const LoadedModel& on, int64_t pages, bool shares_prefixes) {
  const CacheSize size = {.positions = pages * kPagePositions,
                          .sequences = 4,
                          .step_tokens = 100,
                          .keeps_prefixes = true,
                          .checkpoints = pages < 100 ? 3 : 200};
  auto pool = value_of(on.model->make_kv_pool(*on.backend, Element::kF16, size));
  Scheduler scheduler(*on.model, *on.backend, pool,
                      {.max_sequences = 4, .step_tokens = 100, .shares_prefixes = shares_prefixes});
  Answers all;
  const std::vector<ScheduledRequest> requests = branching_requests(on);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(scheduler.add(requests[i]).ok());
    const int steps = i + 1 == requests.size() ? 1 << 20 : 7;  // until all have ended
    for (int step = 0; step < steps && !scheduler.idle(); ++step) {
      const auto events = scheduler.step();
      EXPECT_TRUE(events.ok());
      if (!events.ok()) return all;
      for (const SampleEvent& event : *events) {
        EXPECT_FALSE(event.error);
        std::vector<double>& answer = all[{event.request, event.sample}];
        if (event.token) answer.push_back(*event.token);
        if (event.logprobs) answer.push_back(event.logprobs->chosen.logprob);
      }
    }
  }
  if (shares_prefixes) {
    EXPECT_GT(scheduler.num_cached_tokens(), 0);
  }
  EXPECT_EQ(scheduler.prefix_counts().evicted_pages > 0, shares_prefixes && pages < 100);
  return all;
}

TEST(GpuPrefixes, change_no_bit_of_answers) {
  for (const char* name : {"qwen3-awq", "llama3-bf16", "qwen3_5-bf16", "gpt-oss-mxfp4"}) {
    DeviceOptions options = gpu();
    options.batch_invariant = true;
    const LoadedModel on = load(golden(name), options);
    const Answers expected = answers(on, 400, false);
    EXPECT_EQ(expected.size(), 28u);
    EXPECT_EQ(answers(on, 400, true), expected) << name;
    EXPECT_EQ(answers(on, 16, true), expected) << name << ", in a cache that is too small";
  }
}

}  // namespace
}  // namespace subbyte
