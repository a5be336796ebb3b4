#pragma once
// Queries, keys and values of attention in shared memory, in the 16-bit numbers that mma reads.
//
//   queries   [rows]
//   tile      keys [kKeys], values [kKeys]      in rows of tile_stride(), of values a part
//
// A cache of 16 bits is copied into tiles, a stage each, by cp.async. Codes of e4m3 are copied into
// stages of their own, and unpacked into the one tile when they have arrived. Values become the
// numbers that they were rounded from, but for codes: exact, as values were numbers of this type.
// Keys were normalised and turned in float32 and may be larger: their codes become numbers, and the
// powers of two that are their scales factors of the scores. As f16 a code is 2^-8 times its
// element.

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/common/matrix_tiles.cuh"
#include "kernels/kv_e4m3.h"

namespace subbyte::cuda {

/// Values of a head of keys of the cache that a CTA has.
__host__ __device__ constexpr int values_beside(int head_dim) {
  return head_dim / value_parts(head_dim);
}

/// What a warp has of a tile: its own rows and all keys, or all rows and every fourth 16 keys.
template <bool kIsSplit, int kMaxDim, int kMaxValue = values_beside(kMaxDim)>
struct AttentionTile {
  static constexpr int kRows = kIsSplit ? kSplitRows : kPromptRows;
  static constexpr int kKeys = kIsSplit || kMaxValue <= 128 ? 64 : 32;  // in one page
  static constexpr int kKeysOfWarp = kIsSplit ? kKeys / kAttentionWarps : kKeys;
  static constexpr int kStages = !kIsSplit ? 2 : kMaxDim <= 128 ? 3 : kMaxDim <= 256 ? 2 : 1;
  static constexpr int kParts = value_parts(kMaxDim);  // of values, each of a CTA
};

/// A cache of the numbers of mma.
template <class Number_>
struct NumberCache {
  using Number = Number_;
  static constexpr bool kHasScales = false;
  static constexpr bool kIsExpanded = false;
};

/// Keys and values that were made of latents.
template <class Number_>
struct MadeKeys {
  using Number = Number_;
  static constexpr bool kHasScales = false;
  static constexpr bool kIsExpanded = true;
};

/// A cache in e4m3, of whose codes mma reads numbers.
template <class Number_>
struct E4m3Cache {
  using Number = Number_;
  static constexpr bool kHasScales = true;
  static constexpr bool kIsExpanded = false;
};

/// Bytes of a stage of e4m3: codes of keys and values, then their scales.
__host__ __device__ constexpr int e4m3_stage_bytes(int keys, int head_dim, int values) {
  return keys * (head_dim + values + 2);
}

template <class Cache, bool kIsSplit, int kMaxDim, int kMaxValue = values_beside(kMaxDim)>
__host__ __device__ constexpr int attention_shared_bytes(int head_dim, int values) {
  using Tile = AttentionTile<kIsSplit, kMaxDim, kMaxValue>;
  const int row = tile_stride(head_dim) * 2;
  const int tile = Tile::kKeys * (row + tile_stride(values) * 2);
  if (!Cache::kHasScales) return Tile::kRows * row + Tile::kStages * tile;
  return Tile::kRows * row + tile +
         Tile::kStages * e4m3_stage_bytes(Tile::kKeys, head_dim, values) + Tile::kKeys * 4;
}

/// Begins to copy the queries of a task, or rounds them where activations have another type; rows
/// that do not exist are zero.
template <class Number, int kRows, int kThreads = kAttentionThreads>
__device__ void copy_queries(uint32_t to, const AttentionCall& a, const AttentionTask& task,
                             int head_dim) {
  const int eights = head_dim / 8;
  for (int i = threadIdx.x; i < kRows * eights; i += kThreads) {
    const AttentionRow row(a, task, i / eights);
    const int col = i % eights * 8;
    const int64_t at = row.exists ? row.token * a.qkv_stride + row.head * a.q_step() + col : 0;
    const uint32_t address = to + (i / eights * tile_stride(head_dim) + col) * 2;
    if ((a.element == Element::kF16) == Number::kIsF16) {
      cp_async_zfill<16>(address, static_cast<const uint16_t*>(a.qkv) + at, row.exists);
      continue;
    }
    float values[8] = {};
    if (row.exists) load_8(a.element, a.qkv, at, values);
    uint32_t pairs[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) pairs[j] = Number::pack_x2(values[2 * j], values[2 * j + 1]);
    st_shared_x4(address, pairs);
  }
}

/// Two codes of e4m3, in the upper bytes of the halves of `high`, times a factor that turns what
/// e4m3::f16_bits() gives of them into what is wanted.
template <class Number>
__device__ __forceinline__ uint32_t unpack_e4m3(uint32_t high, float factor) {
  const uint32_t f16 = (high & 0x80008000) | ((high & 0x7F007F00) >> 1);
  return Number::pack_x2(factor * gpu::F16::to_float(static_cast<uint16_t>(f16)),
                         factor * gpu::F16::to_float(static_cast<uint16_t>(f16 >> 16)));
}

/// The same by the factor 1, which f16 has no need to apply.
template <class Number>
__device__ __forceinline__ uint32_t unpack_e4m3(uint32_t high) {
  if constexpr (!Number::kIsF16) return unpack_e4m3<Number>(high, 1);
  return (high & 0x80008000) | ((high & 0x7F007F00) >> 1);
}

/// Keys and values on their way to shared memory, tile after tile.
template <class Cache, bool kIsSplit, int kMaxDim, int kMaxValue>
class KeyTiles {
 public:
  using Tile = AttentionTile<kIsSplit, kMaxDim, kMaxValue>;
  static constexpr int kKeys = Tile::kKeys;
  static constexpr int kStages = Tile::kStages;

  /// `shared` is where the tiles begin; `values` of a row are this CTA's.
  __device__ KeyTiles(const AttentionCall& a, const AttentionTask& task, int head_dim, int values,
                      uint32_t shared)
      : a_(a),
        task_(task),
        head_dim_(head_dim),
        values_(values),
        first_value_(static_cast<int>(blockIdx.z) * values_),
        tile_(shared),
        stages_(Cache::kHasScales ? shared + tile_bytes() : shared),
        first_(AttentionRow(a, task, 0).first),
        next_(task.begin),
        arrived_(task.begin) {}

  /// A group of copies, empty after the last tile.
  __device__ void copy_next() {
    if (next_ < task_.end) {
      if constexpr (Cache::kHasScales) {
        copy_codes(stages_ + to_ * stage_bytes());
      } else if constexpr (Cache::kIsExpanded) {
        copy_expanded(stages_ + to_ * stage_bytes());
      } else {
        copy_numbers(stages_ + to_ * stage_bytes());
      }
    }
    cp_async_commit();
    next_ += kKeys;
    to_ = to_ + 1 == kStages ? 0 : to_ + 1;
  }

  /// Where the next tile has its keys, once it has arrived; the values are value_offset() after it.
  __device__ uint32_t arrived() {
    cp_async_wait<kStages - 1>();
    __syncthreads();
    const uint32_t stage = stages_ + from_ * stage_bytes();
    from_ = from_ + 1 == kStages ? 0 : from_ + 1;
    if constexpr (Cache::kHasScales) {
      unpack(stage);
      __syncthreads();
      return tile_;
    } else {
      return stage;
    }
  }

  __device__ int value_offset() const { return kKeys * tile_stride(head_dim_) * 2; }

  /// What turns scores of the numbers of a key of the tile into those of its elements.
  __device__ float key_factor(int key) const {
    float factor;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(factor) : "r"(factors() + 4 * key) : "memory");
    return factor;
  }

 private:
  __device__ int tile_bytes() const { return value_offset() + kKeys * tile_stride(values_) * 2; }
  __device__ int stage_bytes() const {
    return Cache::kHasScales ? e4m3_stage_bytes(kKeys, head_dim_, values_) : tile_bytes();
  }
  __device__ int codes_bytes() const { return kKeys * (head_dim_ + values_); }

  __device__ const std::byte* run() const {
    const int page = a_.pages[task_.pages_begin + next_ / kPagePositions];
    return a_.cache.pages + page * a_.cache.page_bytes + a_.cache.layer_begin +
           2 * static_cast<int>(blockIdx.y) * a_.cache.run_bytes;
  }
  /// Keys before the window and outside of the task are zero, whatever the cache holds.
  __device__ bool is_there(int key) const { return key >= first_ && key < task_.end; }

  __device__ void copy_numbers(uint32_t to) {
    const std::byte* const keys = run() + int64_t{next_ % kPagePositions} * head_dim_ * 2;
    const int eights = head_dim_ / 8;
    const int stride = tile_stride(head_dim_);
    for (int i = threadIdx.x; i < kKeys * eights; i += kAttentionThreads) {
      const bool there = is_there(next_ + i / eights);
      const uint32_t at = to + (i / eights * stride + i % eights * 8) * 2;
      cp_async_zfill<16>(at, keys + i * 16, there);
      if constexpr (Tile::kParts > 1) continue;
      cp_async_zfill<16>(at + kKeys * stride * 2, keys + a_.cache.run_bytes + i * 16, there);
    }
    if constexpr (Tile::kParts > 1) copy_values(to + value_offset(), keys + a_.cache.run_bytes);
  }

  /// Of the first numbers of keys, of their others, and of values.
  __device__ void copy_expanded(uint32_t to) {
    const ExpandedKeys& e = a_.expanded;
    const int key_stride = tile_stride(head_dim_);
    const int head = static_cast<int>(blockIdx.y);
    copy_rows(to, key_stride, e.keys, a_.kv_heads, head, e.key_dim);
    copy_rows(to + e.key_dim * 2, key_stride, e.turned, 1, 0, head_dim_ - e.key_dim);
    copy_rows(to + value_offset(), tile_stride(values_), e.values, a_.kv_heads, head, values_);
  }

  /// Of the next kKeys positions, of [positions][heads][cols].
  __device__ void copy_rows(uint32_t to, int stride, const void* from, int heads, int head,
                            int cols) {
    const int64_t first = int64_t{task_.pages_begin} * kPagePositions + next_;
    const int eights = cols / 8;
    for (int i = threadIdx.x; i < kKeys * eights; i += kAttentionThreads) {
      const int row = i / eights;
      const int col = i % eights * 8;
      const int64_t at = ((first + row) * heads + head) * cols + col;
      cp_async_zfill<16>(to + (row * stride + col) * 2, static_cast<const uint16_t*>(from) + at,
                         is_there(next_ + row));
    }
  }

  __device__ void copy_values(uint32_t to, const std::byte* from) {
    const int eights = values_ / 8;
    for (int i = threadIdx.x; i < kKeys * eights; i += kAttentionThreads) {
      const int row = i / eights;
      const int col = i % eights * 8;
      cp_async_zfill<16>(to + (row * tile_stride(values_) + col) * 2,
                         from + (int64_t{row} * head_dim_ + first_value_ + col) * 2,
                         is_there(next_ + row));
    }
  }

  __device__ void copy_codes(uint32_t to) {
    const int first_position = next_ % kPagePositions;
    const std::byte* const keys = run();
    const int64_t codes = int64_t{first_position} * head_dim_;
    const int64_t scales = int64_t{kPagePositions} * head_dim_ + first_position;
    const int sixteens = head_dim_ / 16;
    for (int i = threadIdx.x; i < kKeys * sixteens; i += kAttentionThreads) {
      const bool there = is_there(next_ + i / sixteens);
      const std::byte* const from = keys + codes + i * 16;
      cp_async_zfill<16>(to + i * 16, from, there);
    }
    const int of_values = values_ / 16;
    for (int i = threadIdx.x; i < kKeys * of_values; i += kAttentionThreads) {
      const int row = i / of_values;
      const std::byte* const from = keys + a_.cache.run_bytes + codes + int64_t{row} * head_dim_ +
                                    first_value_ + i % of_values * 16;
      cp_async_zfill<16>(to + kKeys * head_dim_ + i * 16, from, is_there(next_ + row));
    }
    for (int i = threadIdx.x; i < 2 * kKeys / 16; i += kAttentionThreads) {
      const int is_value = i / (kKeys / 16);
      const std::byte* const from =
          keys + is_value * a_.cache.run_bytes + scales + i % (kKeys / 16) * 16;
      cp_async_zfill<16>(to + codes_bytes() + i * 16, from, true);
    }
  }

  __device__ uint32_t factors() const { return stages_ + kStages * stage_bytes(); }

  /// The factor of a key, or of a value (from kKeys on). Scales of keys that are not there may be
  /// anything.
  __device__ float factor_of(uint32_t stage, int i) const {
    const uint32_t scale = ld_shared_u8(stage + codes_bytes() + i);
    return is_there(arrived_ + i % kKeys) ? __uint_as_float(e4m3::factor_bits(scale)) : 1.0f;
  }

  __device__ void unpack(uint32_t stage) {
    using Number = typename Cache::Number;
    const int eights = head_dim_ / 8;
    for (int i = threadIdx.x; i < codes_bytes() / 8; i += kAttentionThreads) {
      const bool is_key = i < kKeys * eights;
      const int of_row = is_key ? eights : values_ / 8;
      const int from = is_key ? i : i - kKeys * eights;
      const int row = from / of_row + (is_key ? 0 : kKeys);
      const uint32_t at = is_key
                              ? tile_ + (row * tile_stride(head_dim_) + from % of_row * 8) * 2
                              : tile_ + value_offset() +
                                    ((row - kKeys) * tile_stride(values_) + from % of_row * 8) * 2;
      uint32_t codes[2], numbers[4];
      ld_shared<2>(codes, stage + 8 * i);
      const float factor = row < kKeys ? 1 : factor_of(stage, row);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t high = __byte_perm(codes[j / 2], 0, j % 2 == 0 ? 0x1404 : 0x3424);
        numbers[j] = row < kKeys ? unpack_e4m3<Number>(high) : unpack_e4m3<Number>(high, factor);
      }
      st_shared_x4(at, numbers);
    }
    for (int key = threadIdx.x; key < kKeys; key += kAttentionThreads) {
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(factors() + 4 * key), "f"(factor_of(stage, key))
                   : "memory");
    }
    arrived_ += kKeys;
  }

  const AttentionCall& a_;
  const AttentionTask& task_;
  int head_dim_;
  int values_;       // of a row
  int first_value_;  // of a head
  uint32_t tile_;    // of e4m3
  uint32_t stages_;  // those of numbers are tiles
  int first_;        // key that the task sees
  int next_;         // key
  int arrived_;      // key
  int to_ = 0;
  int from_ = 0;
};

}  // namespace subbyte::cuda
