#pragma once
// Arguments that the kbit and vector operators of bitsandbytes' branch share (bitsandbytes/kbit.h,
// vq.h).

#include <algorithm>
#include <string>

#include "bitsandbytes/kbit.h"
#include "bitsandbytes/vq.h"
#include "device/kbit.h"
#include "torch_operators/gpu.h"
#include "torch_operators/kept.h"
#include "torch_operators/operators.h"

namespace subbyte::torch_operators {

namespace bnb = subbyte::bitsandbytes;

/// Bits of codes, a small number whatever the caller says.
inline int bits_of(int64_t k) {
  return static_cast<int>(std::clamp<int64_t>(k, -1, 64));
}

inline Status check_bits(int64_t k) {
  return k >= 2 && k <= 5 ? Status() : refuse("k", "2 to 5", std::to_string(k));
}
inline Status check_p(int64_t p) {
  return p == 2 || p == 4 ? Status() : refuse("p", "2 or 4", std::to_string(p));
}

/// Words of a block: bits of kbit, and as many of vectors as their bytes take.
inline int planes_of(int64_t k, bool vectors) {
  return vectors ? static_cast<int>(8 / k) : bits_of(k);
}

/// E4M4 bytes, f16 or f32.
inline Result<Format> scale_type(const Tensor& absmax) {
  SUBBYTE_CHECK(check_dtype(absmax, {numbers().u8, numbers().f16, numbers().f32}));
  return absmax.dtype() == numbers().u8 ? Format::kE4M4 : absmax.format();
}

inline Status check_sizes_of(int64_t k_dim, int64_t n) {
  constexpr int64_t kMost = int64_t{1} << 24;
  if (k_dim >= 1 && n >= 1 && k_dim <= kMost && n <= kMost) return {};
  return refuse("K_dim and N", "1 to 2^24", std::to_string(k_dim) + " and " + std::to_string(n));
}

/// Blocks in the memory of a GPU, with a copy of their codebook on the host, which is kept, so that
/// later calls wait for nothing.
struct BlocksThere {
  device::KbitBlocks blocks;
  std::shared_ptr<const Matrix> codebook;
};

/// `k` is p of vectors; a codebook is not needed to repack. The types have been checked.
inline Result<BlocksThere> blocks_there(const Tensor& packed, const Tensor& absmax,
                                        const Tensor* codebook, Format scale, int64_t k,
                                        bool vectors) {
  BlocksThere there;
  there.blocks.buffers.packed = packed.data<uint32_t>();
  there.blocks.buffers.absmax = absmax.data();
  there.blocks.buffers.packed_words = packed.count();
  there.blocks.buffers.absmax_elements = absmax.count();
  there.blocks.buffers.scale = scale;
  there.blocks.buffers.k = planes_of(k, vectors);
  there.blocks.p = vectors ? bits_of(k) : 0;
  if (codebook == nullptr) return there;
  SUBBYTE_TRY(there.codebook, keep_on_host(*codebook, "codebook on the host"));
  const std::span<const std::byte> bytes = there.codebook->view.codes;
  if (vectors) {
    there.blocks.vectors = {reinterpret_cast<const uint16_t*>(bytes.data()), bytes.size() / 2};
  } else {
    there.blocks.codebook = {reinterpret_cast<const float*>(bytes.data()), bytes.size() / 4};
  }
  return there;
}

/// packed, absmax and a codebook in the order of `codebook_first`, which operators differ in.
struct Codes {
  Codes(Arguments& arguments, bool codebook_first)
      : packed(arguments.packed_tensor("packed")),
        second(arguments.packed_tensor(codebook_first ? "codebook" : "absmax")),
        third(arguments.packed_tensor(codebook_first ? "absmax" : "codebook")),
        codebook(codebook_first ? second : third),
        absmax(codebook_first ? third : second) {}

  Result<bnb::KbitCodes> kbit(int64_t k) const {
    SUBBYTE_CHECK(check_bits(k));
    SUBBYTE_CHECK(check_dtype(packed, {numbers().i32}));
    SUBBYTE_CHECK(check_dtype(codebook, {numbers().f32}));
    SUBBYTE_TRY(const Format scale, scale_type(absmax));
    return bnb::KbitCodes{packed.host().span<const uint32_t>(), absmax.host().span(),
                          codebook.host().span<const float>(), bits_of(k), scale};
  }
  Result<bnb::VqCodes> vq(int64_t p) const {
    SUBBYTE_CHECK(check_p(p));
    SUBBYTE_CHECK(check_dtype(packed, {numbers().i32}));
    SUBBYTE_CHECK(check_dtype(codebook, {numbers().f16}));
    SUBBYTE_TRY(const Format scale, scale_type(absmax));
    return bnb::VqCodes{packed.host().span<const uint32_t>(), absmax.host().span(),
                        codebook.host().span<const uint16_t>(), static_cast<int>(p), scale};
  }
  /// The same for functions of a GPU; `k` is p of vectors.
  Result<BlocksThere> blocks(int64_t k, bool vectors) const {
    SUBBYTE_CHECK(vectors ? check_p(k) : check_bits(k));
    SUBBYTE_CHECK(check_dtype(packed, {numbers().i32}));
    SUBBYTE_CHECK(check_dtype(codebook, {vectors ? numbers().f16 : numbers().f32}));
    SUBBYTE_CHECK(check_device(absmax, packed));
    SUBBYTE_TRY(const Format scale, scale_type(absmax));
    return blocks_there(packed, absmax, &codebook, scale, k, vectors);
  }

  Tensor packed;
  Tensor second;
  Tensor third;
  const Tensor& codebook;
  const Tensor& absmax;
};

}  // namespace subbyte::torch_operators
