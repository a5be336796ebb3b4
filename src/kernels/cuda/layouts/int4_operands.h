#pragma once
// The operands of aten's int4 products in device memory, from and to canonical codes, scales and
// zero points there. foreign_layouts/int4pack.h draws them; its functions are the twins of these on
// the host.

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

/// Where the code of an output and an input lies.
enum class Int4Order : uint8_t {
  kRows,  // canonical, and XPU's
  kHalves64,
  kHalves32,
  kPairs32,
  kPairs16,
  kTiles2,  // CUDA's, by inner_k_tiles
  kTiles4,
  kTiles8,
};

/// Codes of u4 and i4. The shape has been checked as for the functions of the host.
struct Int4Codes {
  Int4Order order = Int4Order::kRows;
  int64_t rows = 0;
  int64_t cols = 0;
};

/// rows * cols / 2 bytes to canonical codes and back, at multiples of 4 bytes. Code cuda.launch,
/// here and below.
SUBBYTE_BY_NVCC Status unpack_int4(std::byte* codes, const std::byte* from, const Int4Codes& shape,
                                   Stream stream);
SUBBYTE_BY_NVCC Status pack_int4(std::byte* to, const std::byte* codes, const Int4Codes& shape,
                                 Stream stream);

/// Scales and zero points of a group as tensors [groups][rows], which may alternate.
struct Int4Groups {
  void* scales = nullptr;
  void* zeros = nullptr;  // offsets (8 - zero) s of the scales' type, or zero points of a byte
  Element type = Element::kF16;
  bool has_offsets = true;
  int step = 1;  // elements from one group to the next: 2 where scales and offsets alternate
  int64_t rows = 0;
  int64_t groups = 0;
};

/// Canonical scales of `type`, and zero points or offsets, [rows][groups].
struct CanonicalGroups {
  std::byte* scales = nullptr;
  std::byte* zeros = nullptr;    // bytes; nullptr: none are wanted, or all are 8
  std::byte* offsets = nullptr;  // 16 bits; nullptr likewise
  Element type = Element::kF16;  // of the scales
};

/// A group that a function refuses; index -1: none. `is_zero`: for its zero point, else as a number
/// is beyond its type.
struct Int4Fault {
  int64_t index = -1;  // [rows][groups]
  bool is_zero = false;
};

/// To canonical form. With offsets the zero point from 0 to 16 is the one that makes z of s; the
/// fault is the first group without. `memory` has 8 bytes. The stream is waited for, as below.
SUBBYTE_BY_NVCC Result<Int4Fault> unpack_groups(const CanonicalGroups& to, const Int4Groups& from,
                                                std::byte* memory, Stream stream);
/// From canonical form, scales rounded to the type and z made of them. Zero points are at most
/// `max_zero`.
SUBBYTE_BY_NVCC Result<Int4Fault> pack_groups(const Int4Groups& to, const CanonicalGroups& from,
                                              int max_zero, std::byte* memory, Stream stream);

}  // namespace subbyte::cuda
