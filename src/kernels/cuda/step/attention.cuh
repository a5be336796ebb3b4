#pragma once
// Attention of single tokens inside a step: queries stay in registers as operand B of the tensor
// cores, keys and values go from the cache straight to operand A (attention/key_run.cuh), so shared
// memory is left to the ring of weights. The queries of a head of keys are the eight columns; those
// that do not exist are never stored.
//
// Of heads of more than 128 elements four warps have a run of keys, a quarter of the elements each,
// of values 4 g .. + 3 and 32 + 4 g .. + 3 of that: each leaves its part of the scores for the
// others.
//
// An item is a token, a head of keys and a split of its keys. Its warps take runs of 16 keys in
// turns and add their partials in order; the CTA that is the last of a token and head adds the
// splits in order.

#include <type_traits>

#include "kernels/cuda/attention/key_run.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/experts/choose.cuh"
#include "kernels/cuda/step/attention_item.cuh"
#include "kernels/cuda/step/clock.cuh"
#include "kernels/cuda/step/exchange.cuh"
#include "kernels/cuda/step/key_splits.cuh"
#include "kernels/cuda/step/merge_parts.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

template <class Number, bool kIsLong, class Clock>
class StepAttend : StepAttentionItem<Number, kIsLong, Clock> {
  using Item = StepAttentionItem<Number, kIsLong, Clock>;
  using Item::a_, Item::p_, Item::clock_, Item::warp_, Item::lane_;
  using Item::begin_, Item::end_, Item::first_, Item::last_, Item::split_, Item::splits_;
  using Item::find_item, Item::next_item, Item::first_key_, Item::places_, Item::prepare;
  using Item::item_, Item::kv_head_, Item::token_;
  using Item::kPart, Item::kRuns, Item::kRunWarps;
  using Item::new_key, Item::q_per_kv_, Item::query, Item::query_numbers, Item::query_stride;
  using Item::part, Item::run_of, Item::run_of_warp;

 public:
  using Item::Item;

  /// All items of this CTA. Calls leave_last() after a barrier and before another one: then all
  /// threads have left the operation before this one.
  template <class LeaveLast>
  __device__ void run(const LeaveLast& leave_last) {
    item_ = static_cast<int>(blockIdx.x);
    if (!find_item()) {
      step_sync();
      leave_last();
      return step_sync();
    }
    bool is_first = true;
#pragma unroll 1
    do {
      if constexpr (!kIsLong) run_.clear_results();
      int key = first_key_;
      fetch(key);  // which depends on no other CTA
      prepare();
      clock_.at(StepPhase::kStaged);
      step_sync();
      clock_.at(StepPhase::kMultiplies);
      if (is_first) leave_last();
      is_first = false;
      if constexpr (kIsLong) run_.clear_results();  // where registers are few before
#pragma unroll 1
      while (key < end_) {
        if (last_ - key < kRunKeys) take_new_key(key);
        add_run(key);
        key += kRuns * kRunKeys;
        if (key < end_) fetch(key);
      }
      if (first_key_ < end_) store_partials();
      clock_.at(StepPhase::kMultiplied);
      step_sync();
      clock_.at(StepPhase::kAdds);
      finish();
      step_sync();  // before the scratch is used again
      clock_.at(StepPhase::kEnds);
      next_item();
    } while (token_ < p_.m);
  }

 private:
  using Run = KeyRun<Number, kPart, std::conditional_t<kIsLong, uint2, uint4>>;

  // --- a run of 16 keys

  /// Loads a run of keys and values but for the token's own. Rows after the last one are that one's
  /// again, whose weights are zero; where there is none, zeros, whatever memory holds.
  __device__ void fetch(int key) {
    if (key >= end_) return;
    const int page = __ldcg(p_.pages + places_[token_].pages_begin + key / kPagePositions);
    const std::byte* const keys = run_of(page) + int64_t{key % kPagePositions} * a_.head_dim * 2;
    const std::byte* const values = keys + a_.cache.run_bytes;
    const int last_row = last_ - 1 - key;
    if (last_row < 0) return clear_run();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::byte* const row = keys + min(Run::key(lane_, h), last_row) * a_.head_dim * 2;
#pragma unroll
      for (int b = 0; b < Run::kBlocks; ++b) load(run_.keys[b][h], row, element_of_key(b));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::byte* const row = values + min(Run::value(lane_, i), last_row) * a_.head_dim * 2;
#pragma unroll
      for (int h = 0; h < 2; ++h) load(run_.values[i][h], row, element_of_value(h));
    }
  }
  __device__ void clear_run() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int b = 0; b < Run::kBlocks; ++b) run_.keys[b][h] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) run_.values[i][h] = {};
    }
  }

  // This lane's first elements. Of those after the end of a head, which come from its begin, keys
  // meet queries that are zero, and the sums of values are never stored.
  __device__ int element_of_key(int block) const {
    return in_head(part() + Run::element_of_key(lane_, block));
  }
  __device__ int element_of_value(int half) const {
    return in_head(part() + Run::element_of_value(lane_, half));
  }
  __device__ int in_head(int element) const {
    return element < a_.head_dim ? element : 0;
  }

  template <class Words>
  static __device__ void load(Words& to, const std::byte* row, int element) {
    to = __ldcg(reinterpret_cast<const Words*>(row + element * 2));
  }

  /// The token's own key and value, which are in shared memory.
  __device__ void take_new_key(int key) {
    const int of_run = last_ - key;
    const uint32_t own = shared_address(new_key());
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int b = 0; b < Run::kBlocks; ++b) {
        take(of_run == Run::key(lane_, h), run_.keys[b][h], own + element_of_key(b) * 2);
      }
      const uint32_t value = own + (query_stride() + element_of_value(h)) * 2;
#pragma unroll
      for (int i = 0; i < 4; ++i) take(of_run == Run::value(lane_, i), run_.values[i][h], value);
    }
  }
  static __device__ void take(bool is_own, uint4& to, uint32_t from) {
    uint32_t words[4] = {to.x, to.y, to.z, to.w};
    ld_shared_x4_if(is_own, words, from);
    to = {words[0], words[1], words[2], words[3]};
  }
  static __device__ void take(bool is_own, uint2& to, uint32_t from) {
    uint32_t words[2];
    ld_shared<2>(words, from);
    if (is_own) to = {words[0], words[1]};
  }

  __device__ void add_run(int key) {
    float scores[4];
    run_.multiply_keys(scores, [&](int block) { return query(block); });
    if constexpr (kIsLong) add_parts(scores);
    update_softmax(scores, key);
    run_.add_values(scores);
  }

  /// All warps of the run add what they have of the scores, in the same order.
  __device__ void add_parts(float (&scores)[4]) const {
    auto* const parts = reinterpret_cast<float4*>(values_of(run_of_warp())) + lane_;
    parts[warp_ % kRunWarps * kLanes] = {scores[0], scores[1], scores[2], scores[3]};
    sync_run();
    float4 sum = parts[0];
#pragma unroll
    for (int i = 1; i < kRunWarps; ++i) {
      const float4 more = parts[i * kLanes];
      sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
    }
    scores[0] = sum.x, scores[1] = sum.y, scores[2] = sum.z, scores[3] = sum.w;
    sync_run();  // before they are written again, or values
  }
  __device__ void sync_run() const {
    constexpr int kFirst = 2;  // after those of all threads, and of step_sync()
    constexpr int kThreads = kRunWarps * kLanes;
    asm volatile("bar.sync %0, %1;" ::"r"(kFirst + run_of_warp()), "n"(kThreads) : "memory");
  }

  /// Scores turned into weights; what was added before is scaled.
  __device__ void update_softmax(float (&scores)[4], int key) {
    const float scale = a_.scale * kLog2E;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float most = run_.largest[c];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int at = key + Run::key(lane_, h);
        float& score = scores[2 * h + c];
        score = at >= first_ && at <= last_ ? score * scale : -INFINITY;
        most = fmaxf(most, score);
      }
#pragma unroll
      for (int distance = 4; distance < kLanes; distance *= 2) {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, distance));
      }
      const float base = most == -INFINITY ? 0 : most;
      const float shrink = exp2f(run_.largest[c] - base);
      run_.largest[c] = most;
      scores[c] = exp2f(scores[c] - base);
      scores[2 + c] = exp2f(scores[2 + c] - base);
      run_.sums[c] = run_.sums[c] * shrink + scores[c] + scores[2 + c];
      run_.scale_results(c, shrink);
    }
  }

  // --- sums over warps and splits

  // Scratch after those: [2][kStepWarps][kStepHeads] largest scores and sums of runs, then
  // [kRuns][q_per_kv][head_dim + 4] values, where parts of scores lie before.
  __device__ float* ends() const {
    return reinterpret_cast<float*>(new_key() + 2 * query_stride());
  }
  __device__ int value_stride() const {
    return a_.head_dim + 4;
  }
  __device__ float* values_of(int run) const {
    return ends() + 2 * kStepWarps * kStepHeads + run * q_per_kv_ * value_stride();
  }

  /// Leaves the partials of this warp, if it had keys.
  __device__ void store_partials() {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      run_.finish_sum(c);
      const int query = lane_ % 4 * 2 + c;
      if (lane_ < 4 && part() == 0) {
        ends()[run_of_warp() * kStepHeads + query] = run_.largest[c];
        ends()[(kStepWarps + run_of_warp()) * kStepHeads + query] = run_.sums[c];
      }
      if (query >= q_per_kv_) continue;
      float* const to = values_of(run_of_warp()) + query * value_stride();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int element = part() + Run::element_of_value(lane_, half);
        if (element < a_.head_dim) run_.store_results(to + element, half, c);
      }
    }
  }

  /// The result of the item, or, where the keys are split, its partial; the last CTA to leave one
  /// adds them.
  __device__ void finish() {
    const int size = step_partial_floats(q_per_kv_, a_.head_dim);
    const int64_t of_head = int64_t{token_} * a_.kv_heads + kv_head_;
    float* const partials = p_.partials + of_head * p_.max_splits * size;
    for_all_queries([&](int query, int first) {
      const MergedParts all = merge(query, first);
      if (splits_ == 1) return store(query, first, all);
      leave(partials + split_ * size + query * (a_.head_dim + 2), first, all);
    });
    if (splits_ == 1 || !is_last(p_.arrived_splits + of_head)) return;
    for_all_queries(
        [&](int query, int first) { store(query, first, merge_splits(partials, query, first)); });
  }

  /// A warp for 64 elements of a query, two in a lane.
  template <class Do>
  __device__ __forceinline__ void for_all_queries(const Do& act) const {
    const int shift = kIsLong ? 2 : a_.head_dim > 2 * kLanes ? 1 : 0;
    const int parts = 1 << shift;  // of a query
#pragma unroll 1
    for (int i = warp_; i < q_per_kv_ * parts; i += kStepWarps) {
      const int query = i >> shift;
      act(query, (i - query * parts) * 2 * kLanes + lane_);
    }
  }

  __device__ void leave(float* to, int first, const MergedParts& all) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (first + j * kLanes < a_.head_dim) to[first + j * kLanes] = all.values[j];
    }
    if (first == 0) to[a_.head_dim] = all.largest;
    if (first == 1) to[a_.head_dim + 1] = all.sum;
  }

  /// Over all warps in their order.
  __device__ MergedParts merge(int query, int first) const {
    const int warps = min(kRuns, (end_ - begin_ + kRunKeys - 1) / kRunKeys);
    const bool has_warp = lane_ < warps;
    const float own = has_warp ? ends()[lane_ * kStepHeads + query] : -INFINITY;
    const float own_sum = has_warp ? ends()[(kStepWarps + lane_) * kStepHeads + query] : 0;
    const float* const from = values_of(0) + query * value_stride();
    return merge_parts(a_.head_dim, warps, own, own_sum, from, q_per_kv_ * value_stride(), first,
                       [](const float* at) { return *at; });
  }

  /// Over all splits in their order: partials as leave() stores them.
  __device__ MergedParts merge_splits(const float* partials, int query, int first) const {
    static_assert(kMaxStepSplits <= kLanes);
    const auto load = [](const float* at) { return __ldcg(at); };
    const int size = step_partial_floats(q_per_kv_, a_.head_dim);
    const float* const from = partials + query * (a_.head_dim + 2);
    const float* const end = from + lane_ * size + a_.head_dim;
    const bool has_split = lane_ < splits_;
    const float own = has_split ? load(end) : -INFINITY;
    const float own_sum = has_split ? load(end + 1) : 0;
    return merge_parts(a_.head_dim, splits_, own, own_sum, from, size, first, load);
  }

  /// Whether all other splits of this token and head have left their partials.
  __device__ bool is_last(uint32_t* arrived) const {
    uint32_t* const before = reinterpret_cast<uint32_t*>(ends());  // which are done with
    step_sync();
    const uint32_t last = static_cast<uint32_t>(splits_) - 1;
    if (threadIdx.x == 0) *before = atom_acq_rel_inc(arrived, last);  // 0 for the next layer
    step_sync();
    return *before == last;
  }

  /// What the sums of values are multiplied by: with the sink, which takes part in the softmax.
  __device__ float softmax_factor(int query, float largest, float sum) const {
    if (a_.sinks == nullptr) return 1.0f / sum;
    const float sink = a_.sinks[kv_head_ * q_per_kv_ + query] * kLog2E;
    const float most = fmaxf(largest, sink);
    const float shrink = exp2f(largest - most);
    return shrink / (sum * shrink + exp2f(sink - most));
  }

  __device__ void store(int query, int first, const MergedParts& all) const {
    const float factor = softmax_factor(query, all.largest, all.sum);
    store(query, first, all.values[0] * factor * gate(query, first));
    store(query, first + kLanes, all.values[1] * factor * gate(query, first + kLanes));
  }
  __device__ float gate(int query, int element) const {
    if (!kIsLong || a_.is_gated == 0 || element >= a_.head_dim) return 1;
    const int64_t at = token_ * a_.qkv.stride + a_.head_dim + element +
                       (kv_head_ * q_per_kv_ + query) * query_numbers();
    const auto* const word = static_cast<const uint32_t*>(a_.qkv.data) + at;  // tagged
    uint32_t found;
    do {
      found = ld_relaxed(word);
    } while ((found & kTagMask) != a_.qkv.tag);
    return sigmoid(untagged(found));
  }
  __device__ void store(int query, int element, float value) const {
    if (element >= a_.head_dim) return;
    const int64_t at = (int64_t{kv_head_} * q_per_kv_ + query) * a_.head_dim + element;
    store_tagged(a_.result, token_, at, value);  // which others wait for
    store_number<Number>(a_.y, int64_t{token_} * a_.heads * a_.head_dim + at, value);
  }

  Run run_ = {};  // or the compiler keeps registers for it through all operations
};

}  // namespace subbyte::cuda
