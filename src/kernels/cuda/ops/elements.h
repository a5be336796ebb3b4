#pragma once
// Types of the numbers that the operations between products read and write, and where the keys and
// values of a layer lie. Shared by host and device.

#include <cstddef>
#include <cstdint>

#include "kernels/gpu/packed_weights.h"

struct CUstream_st;  // cudaStream_t, without the toolkit's headers

namespace subbyte::cuda {

using Stream = CUstream_st*;

/// In the order of KvType. kE4M3 is of keys and values alone, with scales (kernels/kv_e4m3.h).
enum class Element : uint8_t { kF32, kF16, kBF16, kE4M3 };

SUBBYTE_DEVICE constexpr int element_bytes(Element element) {
  return element == Element::kF32 ? 4 : element == Element::kE4M3 ? 1 : 2;
}

constexpr Element element_of(gpu::Number number) {
  return number == gpu::Number::kF16 ? Element::kF16 : Element::kBF16;
}

inline constexpr int kPagePositions = 128;

/// Where the token of a row is: its position, the page of the cache that holds it, and where the
/// pages of its sequence begin in the page table.
struct RowPlace {
  int32_t position;
  int32_t page;
  int32_t pages_begin;
};

/// Keys and values of one layer (ops/kv_pool.h has the layout of a page). The keys of head h of
/// page p begin at pages + p * page_bytes + layer_begin + 2 * h * run_bytes, [positions][head_dim]
/// and the scales of e4m3 [positions], and its values run_bytes after that.
struct KvLayer {
  std::byte* pages;
  int64_t page_bytes;
  int64_t layer_begin;
  int64_t run_bytes;
  Element element;
};

}  // namespace subbyte::cuda
