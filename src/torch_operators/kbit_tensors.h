#pragma once
// Arguments that the kbit and vector operators of bitsandbytes' branch share (codebook/kbit.h,
// vq.h).

#include <algorithm>
#include <string>

#include "codebook/kbit.h"
#include "codebook/vq.h"
#include "device/kbit.h"
#include "torch_operators/gpu.h"
#include "torch_operators/kept.h"
#include "torch_operators/operators.h"

namespace subbyte::torch_operators {

namespace bnb = subbyte::codebook;

/// Bits of codes, a small number whatever the caller says.
inline int bits_of(int64_t k) {
  return static_cast<int>(std::clamp<int64_t>(k, -1, 64));
}

/// Words of a block: bits of kbit, and as many of vectors as their bytes take.
inline int planes_of(int64_t k, bool vectors) {
  return vectors ? static_cast<int>(8 / k) : bits_of(k);
}

/// E4M4 bytes, f16 or f32.
inline Format scale_type(const Tensor& absmax) {
  return absmax.dtype() == numbers().u8 ? Format::kE4M4 : absmax.format();
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

/// packed, absmax and a codebook in the order of `codebook_first`, which operators differ in; the
/// call has been checked.
struct Codes {
  Codes(Call& call, bool codebook_first)
      : packed(call.tensor()),
        second(call.tensor()),
        third(call.tensor()),
        codebook(codebook_first ? second : third),
        absmax(codebook_first ? third : second) {}

  bnb::KbitCodes kbit(int64_t k) const {
    return {packed.host().span<const uint32_t>(), absmax.host().span(),
            codebook.host().span<const float>(), bits_of(k), scale_type(absmax)};
  }
  bnb::VqCodes vq(int64_t p) const {
    return {packed.host().span<const uint32_t>(), absmax.host().span(),
            codebook.host().span<const uint16_t>(), static_cast<int>(p), scale_type(absmax)};
  }
  /// The same for functions of a GPU; `k` is p of vectors.
  Result<BlocksThere> blocks(int64_t k, bool vectors) const {
    return blocks_there(packed, absmax, &codebook, scale_type(absmax), k, vectors);
  }

  Tensor packed;
  Tensor second;
  Tensor third;
  const Tensor& codebook;
  const Tensor& absmax;
};

// Parts of signatures: k of kbit or p of vectors, codes of both, and what they are in tiles.
#define SUBBYTE_KBIT "int k{2..5}"
#define SUBBYTE_VQ "int p{2|4}"
#define SUBBYTE_KBIT_SCALES "{u8|f16|f32}"

}  // namespace subbyte::torch_operators
