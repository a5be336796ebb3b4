#include "kernels/cuda/group_gemm/groups.h"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>

#include "kernels/cuda/common/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kMaxCtas = 1 << 16;
constexpr int kAtomRows = 128;   // of the swizzled scales
constexpr int kAtomWords = 128;  // of 4 scales
constexpr int kPerThread = 16;   // elements of a

struct Rows {
  int first;
  int count;
};

__device__ Rows rows_of(const int32_t* m_indptr, int64_t group, int64_t m) {
  const int rows = static_cast<int>(m);
  const int first = min(max(m_indptr[group], 0), rows);
  const int end = min(max(m_indptr[group + 1], first), rows);
  return {first, end - first};
}

/// The sum over the threads up to this one, and over all.
__device__ int2 sums_of_cta(int value) {
  __shared__ int of_warp[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int before = __shfl_up_sync(~0u, value, distance);
    if (lane >= distance) value += before;
  }
  if (lane == 31) of_warp[warp] = value;
  __syncthreads();
  int all = 0;
  for (int i = 0; i < kWarps; ++i) {
    if (i == warp) value += all;
    all += of_warp[i];
  }
  __syncthreads();
  return {value, all};
}

/// One CTA.
__global__ void __launch_bounds__(kThreads) group_tiles(GroupTilesCall a) {
  begin_operation();
  const int most = static_cast<int>(a.num_tiles);
  int used = 0;
  for (int64_t begin = 0; begin < a.groups; begin += kThreads) {
    const int64_t group = begin + threadIdx.x;
    const Rows rows = group < a.groups ? rows_of(a.m_indptr, group, a.m) : Rows{0, 0};
    const int count = (rows.count + a.tile_tokens - 1) / a.tile_tokens;
    const int2 sums = sums_of_cta(count);
    for (int i = 0; i < count; ++i) {
      const int at = used + sums.x - count + i;
      const int done = i * a.tile_tokens;
      if (at >= most) break;
      a.tiles[at] = {static_cast<int32_t>(group), rows.first + done,
                     min(a.tile_tokens, rows.count - done)};
    }
    used += sums.y;
  }
  for (int i = used + static_cast<int>(threadIdx.x); i < most; i += kThreads)
    a.tiles[i] = {0, 0, 0};
}

/// The last group that begins at or before the row.
__device__ int64_t group_of(const GroupRowsCall& a, int64_t row) {
  int64_t low = 0;
  int64_t high = a.groups - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (a.m_indptr[middle] <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// Of 4 scales, from the first of the atoms.
__device__ int64_t swizzled_word(int64_t row, int64_t word, int64_t words) {
  const int64_t in_atom = row % 32 * 4 + row % kAtomRows / 32;
  return (row / kAtomRows * words + word) * kAtomWords + in_atom;
}

__device__ float scale_of(uint8_t code) {
  if (code == 255) return __int_as_float(0x7fc00000);
  return __int_as_float(code == 0 ? 0x00400000 : int{code} << 23);
}

template <__nv_fp8_interpretation_t kType>
__device__ uint32_t scaled_pair(uint32_t codes, float scale) {
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), kType);
  const float2 pair = __half22float2(__half2(halves));
  const __nv_bfloat162 scaled = __floats2bfloat162_rn(pair.x * scale, pair.y * scale);
  return *reinterpret_cast<const uint32_t*>(&scaled);
}

template <__nv_fp8_interpretation_t kType>
__global__ void __launch_bounds__(kThreads) group_rows(GroupRowsCall a) {
  begin_operation();
  const int64_t words = a.k / 128;
  for (int64_t row = blockIdx.x; row < a.m; row += gridDim.x) {
    const int64_t group = group_of(a, row);
    // What a wrong m_indptr says may be outside of the scales.
    const int64_t begin = rows_of(a.m_indptr, group, a.m).first;
    const int64_t scale_row = (begin + 127 * group) / kAtomRows * kAtomRows + max(row - begin, 0l);
    const auto* const scales = static_cast<const uint8_t*>(a.scales);
    const auto* const from = static_cast<const uint4*>(a.a) + row * a.k / kPerThread;
    auto* const to = static_cast<uint4*>(a.to) + row * a.k / kPerThread * 2;
    for (int i = static_cast<int>(threadIdx.x); i < a.k / kPerThread; i += kThreads) {
      const int block = i / 2;
      const float scale =
          scale_of(scales[swizzled_word(scale_row, block / 4, words) * 4 + block % 4]);
      const uint4 codes = from[i];
      const auto pairs = [&](uint32_t low, uint32_t high) {
        return uint4{scaled_pair<kType>(low & 0xffff, scale), scaled_pair<kType>(low >> 16, scale),
                     scaled_pair<kType>(high & 0xffff, scale),
                     scaled_pair<kType>(high >> 16, scale)};
      };
      to[2 * i] = pairs(codes.x, codes.y);
      to[2 * i + 1] = pairs(codes.z, codes.w);
    }
  }
}

__global__ void __launch_bounds__(kThreads) plain_scales(PlainScalesCall a) {
  begin_operation();
  const int64_t words = a.k / 128;
  const int64_t of_group = a.rows * words;
  const int64_t padded = (a.rows + kAtomRows - 1) / kAtomRows * kAtomRows * words;
  const auto* const from = static_cast<const uint32_t*>(a.from);
  auto* const to = static_cast<uint32_t*>(a.to);
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.groups * of_group;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t group = i / of_group;
    const int64_t row = i % of_group / words;
    to[i] = from[group * padded + swizzled_word(row, i % words, words)];
  }
}

__global__ void __launch_bounds__(kThreads) fill(float* to, int64_t count, float value) {
  begin_operation();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) to[i] = value;
}

Grid grid_of(int64_t ctas) {
  return {dim3(static_cast<unsigned>(std::clamp<int64_t>(ctas, 1, kMaxCtas))), kThreads};
}

}  // namespace

void run_group_tiles(const GroupTilesCall& call, Stream stream) {
  launch(group_tiles, grid_of(1), stream, call);
}

void run_group_rows(const GroupRowsCall& call, Stream stream) {
  const auto kernel = call.type == Format::kE4M3 ? group_rows<__NV_E4M3> : group_rows<__NV_E5M2>;
  launch(kernel, grid_of(call.m), stream, call);
}

void run_plain_scales(const PlainScalesCall& call, Stream stream) {
  const int64_t words = call.groups * call.rows * (call.k / 128);
  launch(plain_scales, grid_of((words + kThreads - 1) / kThreads), stream, call);
}

void run_fill(float* to, int64_t count, float value, Stream stream) {
  launch(fill, {dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads)), kThreads}, stream,
         to, count, value);
}

}  // namespace subbyte::cuda
