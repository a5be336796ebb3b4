#include "kernels/cuda/attention/latent.h"

#include "kernels/cuda/attention/attention_merge.cuh"
#include "kernels/cuda/attention/attention_tiles.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;
constexpr int kKeys = 32;  // of a tile, in one page
constexpr int kStages = 2;
constexpr int kRuns = kMaxLatentValue / 16 / kWarps;  // of 16 numbers of values, of a warp
constexpr int kScoreStride = kKeys + 4;
constexpr int kWeightStride = kKeys + 8;  // ldmatrix: an odd number of 16 bytes

/// How a CTA with kRowTiles times 16 rows shares its work.
template <int kRowTiles>
struct Shares {
  static constexpr int kRows = 16 * kRowTiles;
  /// Warps that add up the numbers of the same scores.
  static constexpr int kDimParts = kWarps / (2 * kRowTiles);
  static constexpr int kLanesOfRow = kThreads / kRows;
  static constexpr int kKeysOfLane = kKeys / kLanesOfRow;
};

/// Where things lie in shared memory.
template <class Cache, int kRowTiles>
struct Places {
  using Own = Shares<kRowTiles>;
  int queries = 0;  // [kRows]
  int tiles;        // kStages of them, or one and stages of codes
  int codes;
  int scores;   // [kDimParts][kRows][kScoreStride] floats
  int weights;  // [kRows][kWeightStride]
  int rows;     // [3][kRows] floats: how much is left of what was added, largest scores, sums
  int bytes;

  __host__ __device__ static int tile_bytes(int head_dim) {
    return kKeys * tile_stride(head_dim) * 2;
  }
  __host__ __device__ static int code_bytes(int head_dim) { return kKeys * (head_dim + 1); }
  __host__ __device__ explicit Places(int head_dim) {
    tiles = Own::kRows * tile_stride(head_dim) * 2;
    codes = tiles + tile_bytes(head_dim);
    scores = Cache::kHasScales ? codes + kStages * code_bytes(head_dim)
                               : tiles + kStages * tile_bytes(head_dim);
    weights = scores + Own::kDimParts * Own::kRows * kScoreStride * 4;
    rows = weights + Own::kRows * kWeightStride * 2;
    bytes = rows + 3 * Own::kRows * 4;
  }
};

/// Keys on their way to shared memory, tile after tile.
template <class Cache, int kRowTiles>
class LatentTiles {
 public:
  __device__ LatentTiles(const AttentionCall& a, const AttentionTask& task, uint32_t shared)
      : a_(a),
        task_(task),
        places_(a.head_dim),
        shared_(shared),
        first_(AttentionRow(a, task, 0).first),
        next_(task.begin),
        arrived_(task.begin) {}

  /// A group of copies, empty after the last tile.
  __device__ void copy_next() {
    if (next_ < task_.end) {
      if constexpr (Cache::kHasScales) {
        copy_codes(shared_ + places_.codes + to_ * places_.code_bytes(a_.head_dim));
      } else {
        copy_numbers(shared_ + places_.tiles + to_ * places_.tile_bytes(a_.head_dim));
      }
    }
    cp_async_commit();
    next_ += kKeys;
    to_ = (to_ + 1) % kStages;
  }

  /// Where the next tile lies, once it has arrived.
  __device__ uint32_t arrived() {
    cp_async_wait<kStages - 1>();
    __syncthreads();
    const int from = from_;
    from_ = (from_ + 1) % kStages;
    if constexpr (Cache::kHasScales) {
      unpack(shared_ + places_.codes + from * places_.code_bytes(a_.head_dim));
      __syncthreads();
      return shared_ + places_.tiles;
    } else {
      return shared_ + places_.tiles + from * places_.tile_bytes(a_.head_dim);
    }
  }

 private:
  __device__ const std::byte* run(int position) const {
    const int page = a_.pages[task_.pages_begin + position / kPagePositions];
    return a_.cache.pages + page * a_.cache.page_bytes + a_.cache.layer_begin;
  }
  /// Of a key that was selected; of one that is not there any.
  __device__ int position_of(int key) const {
    if (!is_there(key)) return 0;
    return static_cast<int>(a_.selected[int64_t{task_.first_token} * a_.top + key]);
  }
  /// Others are zero, whatever the cache holds.
  __device__ bool is_there(int key) const { return key >= first_ && key < task_.end; }

  __device__ void copy_numbers(uint32_t to) {
    const bool selects = a_.selected != nullptr;
    const std::byte* const keys =
        selects ? nullptr : run(next_) + int64_t{next_ % kPagePositions} * a_.head_dim * 2;
    const int eights = a_.head_dim / 8;
    const int stride = tile_stride(a_.head_dim);
    for (int i = threadIdx.x; i < kKeys * eights; i += kThreads) {
      const int row = i / eights;
      const uint32_t at = to + (row * stride + i % eights * 8) * 2;
      const std::byte* from = keys + i * 16;
      if (selects) {
        const int position = position_of(next_ + row);
        from = run(position) + (int64_t{position % kPagePositions} * eights + i % eights) * 16;
      }
      cp_async_zfill<16>(at, from, is_there(next_ + row));
    }
  }

  /// The same of keys that were selected: each has its scale where it lies.
  __device__ void copy_selected_codes(uint32_t to) {
    const int sixteens = a_.head_dim / 16;
    for (int i = threadIdx.x; i < kKeys * sixteens; i += kThreads) {
      const int position = position_of(next_ + i / sixteens);
      const std::byte* const codes =
          run(position) + int64_t{position % kPagePositions} * a_.head_dim;
      cp_async_zfill<16>(to + i * 16, codes + i % sixteens * 16, is_there(next_ + i / sixteens));
    }
    for (int row = threadIdx.x; row < kKeys; row += kThreads) {
      const int position = position_of(next_ + row);
      const auto scale = static_cast<uint32_t>(
          run(position)[int64_t{kPagePositions} * a_.head_dim + position % kPagePositions]);
      asm volatile("st.shared.u8 [%0], %1;" ::"r"(to + kKeys * a_.head_dim + row), "r"(scale)
                   : "memory");
    }
  }

  __device__ void copy_codes(uint32_t to) {
    if (a_.selected != nullptr) return copy_selected_codes(to);
    const int first_position = next_ % kPagePositions;
    const std::byte* const codes = run(next_) + int64_t{first_position} * a_.head_dim;
    const std::byte* const scales =
        run(next_) + int64_t{kPagePositions} * a_.head_dim + first_position;
    const int sixteens = a_.head_dim / 16;
    for (int i = threadIdx.x; i < kKeys * sixteens; i += kThreads) {
      cp_async_zfill<16>(to + i * 16, codes + i * 16, is_there(next_ + i / sixteens));
    }
    if (threadIdx.x < kKeys / 16) {
      const int at = static_cast<int>(threadIdx.x) * 16;
      cp_async_zfill<16>(to + kKeys * a_.head_dim + at, scales + at, true);
    }
  }

  /// Codes become the numbers that they were rounded from. Scales of keys that are not there may
  /// be anything.
  __device__ void unpack(uint32_t stage) {
    using Number = typename Cache::Number;
    const int stride = tile_stride(a_.head_dim);
    const int eights = a_.head_dim / 8;
    for (int i = threadIdx.x; i < kKeys * eights; i += kThreads) {
      const int row = i / eights;
      uint32_t codes[2], numbers[4];
      ld_shared<2>(codes, stage + 8 * i);
      const uint32_t scale = ld_shared_u8(stage + kKeys * a_.head_dim + row);
      const float factor =
          is_there(arrived_ + row) ? __uint_as_float(e4m3::factor_bits(scale)) : 1.0f;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t high = __byte_perm(codes[j / 2], 0, j % 2 == 0 ? 0x1404 : 0x3424);
        numbers[j] = unpack_e4m3<Number>(high, factor);
      }
      st_shared_x4(shared_ + places_.tiles + (row * stride + i % eights * 8) * 2, numbers);
    }
    arrived_ += kKeys;
  }

  const AttentionCall& a_;
  const AttentionTask& task_;
  Places<Cache, kRowTiles> places_;
  uint32_t shared_;
  int first_;    // key that the task sees
  int next_;     // key
  int arrived_;  // key
  int to_ = 0;
  int from_ = 0;
};

/// This warp's part of the scores of a tile, into shared memory.
template <class Number, int kRowTiles>
__device__ void add_scores(float* scores, uint32_t queries, uint32_t keys, int head_dim) {
  using Own = Shares<kRowTiles>;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int first_key = warp % 2 * 16;
  const int first_row = warp / 2 % kRowTiles * 16;
  const int part = warp / (2 * kRowTiles);
  const int stride = tile_stride(head_dim);
  const uint32_t a_at = tile_16x16(queries + first_row * stride * 2, stride, 0, 0);
  const uint32_t b_at = tile_16x16(keys + first_key * stride * 2, stride, 0, 0);
  const int steps = head_dim / 16;
  float sums[2][4] = {};
#pragma unroll 3
  for (int d = part * steps / Own::kDimParts; d < (part + 1) * steps / Own::kDimParts; ++d) {
    uint32_t a[4], b[4];
    ldmatrix_x4(a, a_at + 16 * d * 2);
    ldmatrix_x4(b, b_at + 16 * d * 2);
    mma_16x16<Number>(sums[0], sums[1], a, b);
  }
  float* const to =
      scores + (part * Own::kRows + first_row + lane / 4) * kScoreStride + first_key + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    *reinterpret_cast<float2*>(to + 8 * j) = {sums[j][0], sums[j][1]};
    *reinterpret_cast<float2*>(to + 8 * kScoreStride + 8 * j) = {sums[j][2], sums[j][3]};
  }
}

/// The running softmax of a row, which some neighbouring lanes have together.
template <class Number, int kRowTiles>
class RowSoftmax {
 public:
  using Own = Shares<kRowTiles>;

  __device__ RowSoftmax(const AttentionCall& a, const AttentionTask& task)
      : index_(static_cast<int>(threadIdx.x) / Own::kLanesOfRow),
        lane_(static_cast<int>(threadIdx.x) % Own::kLanesOfRow),
        row_(a, task, index_) {}

  /// Scores of the keys from `key` on become weights; `left` of the row is what remains of sums
  /// that were added before.
  __device__ void update(const AttentionCall& a, const float* scores, uint16_t* weights,
                         float* left, int key) {
    float own[Own::kKeysOfLane];
    float most = largest_;
#pragma unroll
    for (int i = 0; i < Own::kKeysOfLane; ++i) {
      const int at = lane_ + i * Own::kLanesOfRow;
      float score = 0;
#pragma unroll
      for (int part = 0; part < Own::kDimParts; ++part) {
        score += scores[(part * Own::kRows + index_) * kScoreStride + at];
      }
      score *= a.scale;
      if (a.cap > 0) score = a.cap * tanhf(score / a.cap);
      const bool is_seen = key + at >= row_.first && key + at <= row_.last;
      own[i] = is_seen ? score * kLog2E : -INFINITY;
      most = fmaxf(most, own[i]);
    }
#pragma unroll
    for (int distance = Own::kLanesOfRow / 2; distance > 0; distance /= 2) {
      most = fmaxf(most, __shfl_xor_sync(~0u, most, distance));
    }
    const float base = most == -INFINITY ? 0 : most;
    const float shrink = exp2f(largest_ - base);
    largest_ = most;
    sum_ *= shrink;
#pragma unroll
    for (int i = 0; i < Own::kKeysOfLane; ++i) {
      const float weight = exp2f(own[i] - base);
      sum_ += weight;
      weights[index_ * kWeightStride + lane_ + i * Own::kLanesOfRow] =
          static_cast<uint16_t>(Number::pack_x2(weight, 0));
    }
    if (lane_ == 0) left[index_] = shrink;
  }

  __device__ void finish(float* largest, float* sums) {
#pragma unroll
    for (int distance = Own::kLanesOfRow / 2; distance > 0; distance /= 2) {
      sum_ += __shfl_xor_sync(~0u, sum_, distance);
    }
    if (lane_ != 0) return;
    largest[index_] = largest_;
    sums[index_] = sum_;
  }

 private:
  int index_;
  int lane_;
  AttentionRow row_;
  float largest_ = -INFINITY;
  float sum_ = 0;  // of this lane's keys, until finish()
};

/// What a warp has of the weighted values: of all rows the runs of 16 numbers warp, warp + 8, ...
template <class Number, int kRowTiles>
class LatentSums {
 public:
  __device__ explicit LatentSums(int value_dim) : runs_(value_dim / 16) {}

  __device__ void add(uint32_t weights, const float* left, uint32_t values, int head_dim) {
    scale(left);
    const int stride = tile_stride(head_dim);
    const uint32_t b_at = tile_16x16(values, stride, 0, 0);
    const uint32_t a_at = tile_16x16(weights, kWeightStride, 0, 0);
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        ldmatrix_x4(a[i], a_at + (16 * i * kWeightStride + 16 * j) * 2);
      }
#pragma unroll
      for (int n = 0; n < kRuns; ++n) {
        if (run(n) >= runs_) break;
        uint32_t b[4];
        ldmatrix_x4_trans(b, b_at + (16 * j * stride + 16 * run(n)) * 2);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          mma_16x16_trans<Number>(sums_[i][n][0], sums_[i][n][1], a[i], b);
        }
      }
    }
  }

  /// Calls store(row, number, two sums) for each two that this lane has.
  template <class Store>
  __device__ void each(const Store& store) const {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int n = 0; n < kRuns; ++n) {
        if (run(n) >= runs_) break;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int number = 16 * run(n) + 8 * half + lane % 4 * 2;
          const float(&sums)[4] = sums_[i][n][half];
          store(16 * i + lane / 4, number, sums[0], sums[1]);
          store(16 * i + lane / 4 + 8, number, sums[2], sums[3]);
        }
      }
    }
  }

 private:
  __device__ static int run(int n) {
    return static_cast<int>(threadIdx.x) / kLanes + kWarps * n;
  }

  __device__ void scale(const float* left) {
    const int g = static_cast<int>(threadIdx.x) % kLanes / 4;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const float low = left[16 * i + g];
      const float high = left[16 * i + g + 8];
#pragma unroll
      for (int n = 0; n < kRuns; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          sums_[i][n][half][0] *= low;
          sums_[i][n][half][1] *= low;
          sums_[i][n][half][2] *= high;
          sums_[i][n][half][3] *= high;
        }
      }
    }
  }

  int runs_;
  float sums_[kRowTiles][kRuns][2][4] = {};
};

/// The results of a task, or its partial, which has 16 rows.
template <class Number, int kRowTiles>
__device__ void store_task(const AttentionCall& a, const AttentionTask& task,
                           const LatentSums<Number, kRowTiles>& sums, const float* largest,
                           const float* row_sums) {
  if (task.partial >= 0) {
    float* const to = partial_at(a, task.partial);
    const int rows = rows_of(a, task);
    sums.each([&](int r, int number, float x, float y) {
      if (r >= rows) return;
      to[r * a.values_in_keys + number] = x;
      to[r * a.values_in_keys + number + 1] = y;
    });
    if (static_cast<int>(threadIdx.x) < rows) {
      float* const end = to + kSplitRows * a.values_in_keys + threadIdx.x;
      end[0] = largest[threadIdx.x];
      end[kSplitRows] = row_sums[threadIdx.x];
    }
    return;
  }
  sums.each([&](int r, int number, float x, float y) {
    const AttentionRow row(a, task, r);
    if (!row.exists) return;
    const WithSink sink(a, row.head, largest[r]);
    const float shrink = exp2f(largest[r] - sink.largest);
    const float factor = shrink / (row_sums[r] * shrink + sink.weight);
    const int64_t at = (row.token * a.heads + row.head) * a.values_in_keys + number;
    store_element(a.element, a.y, at, x * factor);
    store_element(a.element, a.y, at + 1, y * factor);
  });
}

template <class Cache, int kRowTiles>
__global__ void __launch_bounds__(kThreads, kRowTiles == 1 ? 2 : 1)
    latent_attention(const __grid_constant__ AttentionCall a) {
  using Number = typename Cache::Number;
  using Own = Shares<kRowTiles>;
  begin_operation();
  extern __shared__ uint4 shared_memory[];
  const AttentionTask task = kRowTiles == 1 ? a.split[blockIdx.x] : a.prompt[blockIdx.x];
  if (task.num_tokens == 0) return;
  const Places<Cache, kRowTiles> places(a.head_dim);
  const uint32_t shared = shared_address(shared_memory);
  auto* const bytes = reinterpret_cast<std::byte*>(shared_memory);
  auto* const scores = reinterpret_cast<float*>(bytes + places.scores);
  auto* const weights = reinterpret_cast<uint16_t*>(bytes + places.weights);
  auto* const left = reinterpret_cast<float*>(bytes + places.rows);
  LatentTiles<Cache, kRowTiles> tiles(a, task, shared);
  copy_queries<Number, Own::kRows, kThreads>(shared + places.queries, a, task, a.head_dim);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) tiles.copy_next();
  RowSoftmax<Number, kRowTiles> softmax(a, task);
  LatentSums<Number, kRowTiles> sums(a.values_in_keys);
  for (int key = task.begin; key < task.end; key += kKeys) {
    tiles.copy_next();
    const uint32_t keys = tiles.arrived();
    add_scores<Number, kRowTiles>(scores, shared + places.queries, keys, a.head_dim);
    __syncthreads();
    softmax.update(a, scores, weights, left, key);
    __syncthreads();
    sums.add(shared + places.weights, left, keys, a.head_dim);
    __syncthreads();  // the next copy writes to what was read here
  }
  float* const largest = left + Own::kRows;
  float* const row_sums = largest + Own::kRows;
  softmax.finish(largest, row_sums);
  __syncthreads();
  store_task(a, task, sums, largest, row_sums);
}

template <class Cache, int kRowTiles>
void launch_latent(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  const int bytes = Places<Cache, kRowTiles>(call.head_dim).bytes;
  launch_large<latent_attention<Cache, kRowTiles>>(
      {dim3(static_cast<unsigned>(num_tasks)), kThreads, bytes}, stream, call);
}

template <class Cache>
void launch_kind(const AttentionCall& call, bool is_split, int64_t num_tasks, Stream stream) {
  if (is_split) {
    launch_latent<Cache, kSplitRows / 16>(call, num_tasks, stream);
  } else {
    launch_latent<Cache, kPromptRows / 16>(call, num_tasks, stream);
  }
}

}  // namespace

int latent_attention_shared_bytes(int head_dim) {
  return Places<NumberCache<gpu::F16>, kPromptRows / 16>(head_dim).bytes;
}

void run_latent_tasks(const AttentionCall& call, bool is_split, int64_t num_tasks, Stream stream) {
  if (num_tasks == 0) return;
  if (call.cache.element == Element::kF16) {
    launch_kind<NumberCache<gpu::F16>>(call, is_split, num_tasks, stream);
  } else if (call.cache.element == Element::kBF16) {
    launch_kind<NumberCache<gpu::BF16>>(call, is_split, num_tasks, stream);
  } else if (call.element == Element::kF16) {
    launch_kind<E4m3Cache<gpu::F16>>(call, is_split, num_tasks, stream);
  } else {
    launch_kind<E4m3Cache<gpu::BF16>>(call, is_split, num_tasks, stream);
  }
}

}  // namespace subbyte::cuda
