// Single tokens of a batch as one kernel: queries and keys are turned, and the cache is written, as
// run_rotate() does it; what is attended to agrees with the textbook formula.

#include "kernels/cuda/attention/attend_batch.h"

#include <gtest/gtest.h>

#include "attention_problem.h"

namespace subbyte::testing {
namespace {

constexpr int kMultiprocessors = 132;

class BatchProblem {
 public:
  BatchProblem(const AttentionProblem& problem, bool has_norms, int64_t split_ctas = kSplitCtas)
      : problem_(problem),
        cache_(problem, 40),
        tokens_(std::ssize(problem.parts)),
        qkv_(rounded(normals(tokens_ * stride(), 1, 41), problem.element)),
        cos_(normals(tokens_ * problem.dim / 2, 1, 42), Element::kF32),
        sin_(normals(tokens_ * problem.dim / 2, 1, 43), Element::kF32),
        norms_(normals(2 * problem.dim, 1, 44), Element::kF32),
        sink_values_(normals(problem.heads, 2, 45)),
        sinks_(sink_values_, Element::kF32),
        table_(as_bytes(cache_.table())),
        has_norms_(has_norms),
        tasks_(cuda::attention_tasks(
            parts_of(problem, cache_),
            {problem.heads / problem.kv_heads, problem.kv_heads, problem.window}, split_ctas)) {
    cuda::round_up_tasks(tasks_);
    for (std::size_t p = 0; p < problem.parts.size(); ++p) {
      const int64_t position = problem.parts[p].position;
      places_.push_back(
          {static_cast<int32_t>(position), cache_.page(p, position), cache_.pages_begin(p)});
    }
  }

  void expect_right() {
    const std::vector<float> turned = rotate();
    const auto [y, bytes] = attend();
    EXPECT_EQ(bytes, cache_.bytes()) << "the cache";
    std::vector<double> expected;
    std::vector<double> bounds;
    for (std::size_t p = 0; p < problem_.parts.size(); ++p) {
      for (int64_t head = 0; head < problem_.heads; ++head) {
        const float* const q = &turned[static_cast<int64_t>(p) * stride() + head * problem_.dim];
        const RowResult row = expect_row(problem_, cache_, p, 0, head, q,
                                         problem_.has_sinks ? sink_values_.data() : nullptr);
        expected.insert(expected.end(), row.values.begin(), row.values.end());
        bounds.insert(bounds.end(), row.bounds.begin(), row.bounds.end());
      }
    }
    expect_within(y, expected, bounds,
                  std::to_string(problem_.heads) + "/" + std::to_string(problem_.kv_heads) +
                      " heads of " + std::to_string(problem_.dim) + ", " + std::to_string(tokens_) +
                      " tokens, window " + std::to_string(problem_.window));
    EXPECT_EQ(attend().first, y) << "another run";
  }

 private:
  int64_t stride() const { return (problem_.heads + 2 * problem_.kv_heads) * problem_.dim; }

  cuda::RotateCall rotate_call(const DeviceNumbers& qkv, const DeviceBytes& cache,
                               const DeviceBytes& places) const {
    cuda::RotateCall call;
    call.qkv = qkv.data();
    call.element = problem_.element;
    call.num_rows = tokens_;
    call.heads = static_cast<int32_t>(problem_.heads);
    call.kv_heads = static_cast<int32_t>(problem_.kv_heads);
    call.head_dim = static_cast<int32_t>(problem_.dim);
    if (has_norms_) {
      call.q_norm = norms_.data<float>();
      call.k_norm = norms_.data<float>() + problem_.dim;
    }
    call.eps = 1e-6f;
    call.cos = cos_.data<float>();
    call.sin = sin_.data<float>();
    call.turning = static_cast<int32_t>(problem_.dim);
    call.places = reinterpret_cast<const cuda::RowPlace*>(places.data());
    call.cache = cache_.layer(cache.data());
    return call;
  }

  /// Leaves the own keys and values in the cache; the queries.
  std::vector<float> rotate() {
    const DeviceNumbers qkv(qkv_, problem_.element);
    const DeviceBytes cache(cache_.bytes());
    const DeviceBytes places(as_bytes(places_));
    before_ = cache_.bytes();
    cuda::run_rotate(rotate_call(qkv, cache, places), nullptr);
    expect_ran();
    cache_.take(cache.read());
    return qkv.read();
  }

  std::pair<std::vector<float>, std::vector<std::byte>> attend() const {
    const DeviceNumbers qkv(qkv_, problem_.element);
    const DeviceBytes cache(before_);
    const DeviceBytes places(as_bytes(places_));
    const DeviceNumbers y(tokens_ * problem_.heads * problem_.dim, problem_.element);
    const DeviceNumbers partials(
        tasks_.num_partials * cuda::attention_partial_floats(problem_.kv_heads, problem_.dim),
        Element::kF32);
    const DeviceBytes split(as_bytes(tasks_.split));
    const DeviceBytes merge(as_bytes(tasks_.merge));
    const cuda::RotateCall rotate = rotate_call(qkv, cache, places);
    cuda::AttentionCall call;
    call.qkv = qkv.data();
    call.y = y.data();
    call.element = problem_.element;
    call.qkv_stride = stride();
    call.heads = rotate.heads;
    call.kv_heads = rotate.kv_heads;
    call.head_dim = rotate.head_dim;
    call.window = static_cast<int32_t>(problem_.window);
    call.scale = 1 / std::sqrt(static_cast<float>(problem_.dim));
    if (problem_.has_sinks) call.sinks = sinks_.data<float>();
    call.pages = reinterpret_cast<const int32_t*>(table_.data());
    call.cache = rotate.cache;
    call.partials = partials.data<float>();
    call.split = reinterpret_cast<const cuda::AttentionTask*>(split.data());
    call.merge = reinterpret_cast<const cuda::MergeTask*>(merge.data());
    call.slices = tasks_.slices;
    EXPECT_TRUE(cuda::serves_batch(rotate, call));
    cuda::run_batch_attention(rotate, call, kMultiprocessors, nullptr);
    expect_ran();
    partials.read();  // for its canaries
    return {y.read(), cache.read()};
  }

  AttentionProblem problem_;
  Cache cache_;
  std::vector<std::byte> before_;
  int64_t tokens_;
  std::vector<float> qkv_;
  DeviceNumbers cos_, sin_, norms_;
  std::vector<float> sink_values_;
  DeviceNumbers sinks_;
  DeviceBytes table_;
  bool has_norms_;
  cuda::AttentionTasks tasks_;
  std::vector<cuda::RowPlace> places_;
};

/// Positions around borders of runs and pages, the first one, and long ones.
std::vector<PartSize> positions(int64_t count) {
  constexpr int64_t kPositions[] = {0, 1, 15, 16, 17, 127, 128, 700, 63, 255, 300, 1100};
  std::vector<PartSize> parts;
  for (int64_t i = 0; i < count; ++i) parts.push_back({1, kPositions[i % std::size(kPositions)]});
  return parts;
}

TEST(GpuAttendBatch, agrees_with_the_formula) {
  for (const Element element : kHalves) {
    for (const int64_t dim : {64, 128}) {
      // CTAs of 16, 8 and 4 warps.
      for (const int64_t count : {12, 50, 100}) {
        BatchProblem({8, 4, dim, element, element, 0, false, positions(count)}, true)
            .expect_right();
      }
      BatchProblem({8, 1, dim, element, element, 0, true, positions(13)}, true).expect_right();
      BatchProblem({3, 3, dim, element, element, 0, false, positions(13)}, false).expect_right();
    }
  }
}

TEST(GpuAttendBatch, windows) {
  for (const int64_t window : {1, 40, 130, 100000}) {
    BatchProblem({6, 2, 64, Element::kF16, Element::kF16, window, true, positions(30)}, true)
        .expect_right();
    BatchProblem({6, 2, 128, Element::kBF16, Element::kBF16, window, false, positions(80)}, true)
        .expect_right();
  }
}

TEST(GpuAttendBatch, long_sequences_in_splits) {
  AttentionProblem problem = {8, 2, 128, Element::kF16, Element::kF16, 0, true, positions(9)};
  problem.parts.push_back({1, 4999});
  problem.parts.push_back({1, 9000});
  BatchProblem(problem, true).expect_right();
  BatchProblem(problem, true, 10).expect_right();
}

TEST(GpuAttendBatch, serves_no_other_attention) {
  cuda::RotateCall turns;
  turns.kv_heads = 2;
  turns.head_dim = turns.turning = 128;
  turns.cache.element = Element::kF16;
  cuda::AttentionCall usual;
  usual.heads = 16;
  usual.kv_heads = 2;
  usual.head_dim = 128;
  usual.cache.element = Element::kF16;
  EXPECT_FALSE(cuda::serves_batch(turns, usual)) << "nothing turns";
  alignas(16) const float angles[4] = {};
  turns.cos = turns.sin = angles;
  EXPECT_TRUE(cuda::serves_batch(turns, usual));
  cuda::AttentionCall attention = usual;
  attention.heads = 18;
  EXPECT_FALSE(cuda::serves_batch(turns, attention)) << "nine heads of queries for one of keys";
  attention = usual;
  attention.head_dim = 96;
  EXPECT_FALSE(cuda::serves_batch(turns, attention));
  attention = usual;
  attention.cache.element = Element::kE4M3;
  EXPECT_FALSE(cuda::serves_batch(turns, attention)) << "a cache of another type";
  attention = usual;
  attention.cap = 30;
  EXPECT_FALSE(cuda::serves_batch(turns, attention));
  cuda::RotateCall rotate = turns;
  rotate.turning = 64;
  EXPECT_FALSE(cuda::serves_batch(rotate, usual)) << "half of a head turns";
  rotate = turns;
  rotate.norms_after_turn = true;
  EXPECT_FALSE(cuda::serves_batch(rotate, usual));
}

}  // namespace
}  // namespace subbyte::testing
