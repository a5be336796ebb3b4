#pragma once
// Types of the operations between products, shared by host and device.

#include <cstdint>

#include "base/host_device.h"
#include "base/operands.h"
#include "kernels/gpu/number.h"

struct CUstream_st;  // cudaStream_t, without the toolkit's headers

namespace subbyte::cuda {

using Stream = CUstream_st*;

constexpr Element element_of(gpu::Number number) {
  return number == gpu::Number::kF16 ? Element::kF16 : Element::kBF16;
}

/// Where the token of a row is: its position, the page of the cache that holds it, and where the
/// pages of its sequence begin in the page table.
struct RowPlace {
  int32_t position;
  int32_t page;
  int32_t pages_begin;
};

/// The states of a part before and after its tokens.
struct StatePart {
  int32_t first_token = 0;
  int32_t num_tokens = 0;
  int32_t from = 0;  // the state before them; negative: none
  int32_t to = 0;    // the state after them
};

}  // namespace subbyte::cuda
