#pragma once
// What a CTA attends to at a time inside a step (attention.cuh): a token, a head of keys and a
// split of its keys, with its queries and the token's own key and value.

#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/step/clock.cuh"
#include "kernels/cuda/step/exchange.cuh"
#include "kernels/cuda/step/heads.cuh"
#include "kernels/cuda/step/key_splits.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

/// kIsLong: of heads of more than kStepHeadDim elements.
template <class Number, bool kIsLong, class Clock>
class StepAttentionItem {
 public:
  __device__ StepAttentionItem(const StepProgram& p, const StepAttention& a, uint8_t* shared,
                               Clock& clock)
      : p_(p),
        a_(a),
        clock_(clock),
        places_(reinterpret_cast<const RowPlace*>(shared + p.shared.places)),
        scratch_(shared + p.shared.x),
        warp_(static_cast<int>(threadIdx.x) / kLanes),
        lane_(static_cast<int>(threadIdx.x) % kLanes),
        q_per_kv_(a.heads / a.kv_heads) {}

 protected:
  // --- warps

  static constexpr int kRuns = kIsLong ? kLongHeadRuns : kStepWarps;  // of keys, at the same time
  static constexpr int kRunWarps = kStepWarps / kRuns;
  static constexpr int kHead = kIsLong ? kStepGatedHeadDim : kStepHeadDim;  // at most
  static constexpr int kPart = kHead / kRunWarps;                           // elements of a warp
  static constexpr int kPairs = kHead / 2 / kLanes;

  __device__ int run_of_warp() const { return warp_ / kRunWarps; }
  /// This warp's first element of a head.
  __device__ int part() const { return warp_ % kRunWarps * kPart; }

  // --- items

  /// The token, head and split of item_, which counts from the first item of token_ on.
  __device__ bool find_item() {
    for (; token_ < p_.m; ++token_) {
      const KeySplits splits(places_[token_].position, a_.window, p_.max_splits, p_.m);
      const int items = a_.kv_heads * splits.count;
      if (item_ < items) {
        split_ = item_ / a_.kv_heads;
        kv_head_ = item_ - split_ * a_.kv_heads;
        splits_ = splits.count;
        first_ = splits.first;
        last_ = splits.last;
        begin_ = splits.begin + split_ * splits.keys;
        end_ = min(begin_ + splits.keys, last_ + 1);
        first_key_ = begin_ + run_of_warp() * kRunKeys;
        return true;
      }
      item_ -= items;
    }
    return false;
  }

  __device__ void next_item() {
    item_ += static_cast<int>(gridDim.x);
    find_item();
  }

  // --- queries, and the new key and value

  // Scratch: [kStepHeads] queries, the token's own key and value, each of query_stride().
  __device__ uint16_t* queries() const { return reinterpret_cast<uint16_t*>(scratch_); }
  __device__ int query_stride() const { return a_.head_dim + 8; }
  __device__ uint16_t* new_key() const { return queries() + kStepHeads * query_stride(); }

  /// Numbers from a head of queries to the next.
  __device__ int query_numbers() const {
    return (kIsLong && a_.is_gated != 0 ? 2 : 1) * a_.head_dim;
  }
  /// Of a row of qkv.
  __device__ int first_key_element() const { return a_.heads * query_numbers(); }

  /// A warp for each head of queries; where the item has the token's own key, one for that and one
  /// for the value.
  __device__ void prepare() const {
    static_assert(kStepHeads + 2 <= kStepWarps);
    const int heads = q_per_kv_ + (split_ == splits_ - 1 ? 2 : 0);
    if (warp_ < heads) prepare_head(warp_ - q_per_kv_, warp_);
  }

  /// `other`: 0 the key, 1 the value, which go to the cache, too.
  __device__ void prepare_head(int other, int query) const {
    const HeadPairs pairs = {a_.head_dim / 2, a_.turning / 2};
    const Element type = Number::kIsF16 ? Element::kF16 : Element::kBF16;
    const int element = other < 0
                            ? (kv_head_ * q_per_kv_ + query) * query_numbers()
                            : first_key_element() + (other * a_.kv_heads + kv_head_) * a_.head_dim;
    const float* const norm = other < 0 ? a_.q_norm : a_.k_norm;
    // What depends on no other CTA, before what does, where there are registers for all.
    HeadOfLaneOf<kPairs> weights = {};
    HeadOfLaneOf<kPairs> angles = {};
    const auto load_weights = [&] {
      if (norm != nullptr) weights = load_head<kPairs>(Element::kF32, norm, 0, pairs);
    };
    const auto find_angles = [&] { angles = load_angles<kPairs>(a_.cos, a_.sin, token_, pairs); };
    if (!kIsLong && other < 1) load_weights(), find_angles();
    auto x = wait_for_head<Number, kPairs>(a_.qkv, token_ * a_.qkv.stride + element, pairs);
    clock_.at(StepPhase::kThere);
    if (other < 1) {
      if (kIsLong) load_weights();
      if (norm != nullptr) normalise_head(x, weights, pairs.half, a_.eps);
      if (kIsLong) find_angles();
      turn(x, angles);
    }
    const int place = other < 0 ? query : kStepHeads + other;
    store_head(type, queries(), place * query_stride(), pairs, x);
    if (other < 0) return;
    const auto [position, page, pages] = places_[token_];
    store_head(type, run_of(page) + other * a_.cache.run_bytes,
               int64_t{position % kPagePositions} * a_.head_dim, pairs, x);
  }

  /// Keys of this head in a page; values follow.
  __device__ std::byte* run_of(int page) const {
    return a_.cache.pages + page * a_.cache.page_bytes + a_.cache.layer_begin +
           2 * kv_head_ * a_.cache.run_bytes;
  }

  /// Of query g; whatever is there for queries that do not exist.
  __device__ uint4 query(int block) const {
    const int element = part() + block * 32 + lane_ % 4 * 8;
    if (element >= a_.head_dim) return {};
    return *reinterpret_cast<const uint4*>(queries() + lane_ / 4 * query_stride() + element);
  }

  const StepProgram& p_;
  const StepAttention& a_;
  Clock& clock_;
  const RowPlace* const places_;
  uint8_t* const scratch_;
  const int warp_;
  const int lane_;
  const int q_per_kv_;
  // The item.
  int item_ = 0;
  int token_ = 0;
  int kv_head_ = 0;
  int split_ = 0, splits_ = 0;
  int first_ = 0, last_ = 0;  // keys that the token sees
  int begin_ = 0, end_ = 0;   // keys of the split
  int first_key_ = 0;         // of this warp
};

}  // namespace subbyte::cuda
