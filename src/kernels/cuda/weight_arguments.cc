#include "kernels/cuda/weight_arguments.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/gpu/decoders.h"

namespace subbyte::cuda {
namespace {

/// A power of two that brings the products of scales and raw codes just below 2^15, those of E4M3
/// to 57344 at most, so that f16 holds them with all they can be rounded to. Within what a float
/// can be divided by. Floats have scales of 1.
float scale_factor_of(const PackedFormat& format, Number number) {
  if (number != Number::kF16 || format.largest_scale == 0) return 1;
  if (format.decoder == DecoderKind::kFloats) return 1;
  // Integers are less than 2^bits, E4M3 at most 1.75 times that, and the others not above 1.
  const bool is_large =
      format.decoder == DecoderKind::kIntegers || format.decoder == DecoderKind::kE4M3;
  const int headroom = is_large ? 14 - format.bits : 14;
  return std::ldexp(1.0f, std::clamp(headroom - std::ilogb(format.largest_scale), -120, 120));
}

/// ceil(2^32 / tiles): t * that / 2^32, cut, is t / tiles for t * tiles < 2^32 (check_shape).
uint32_t blocks_per_tile(int64_t tiles) {
  return tiles == 1 ? 0 : static_cast<uint32_t>(((uint64_t{1} << 32) + tiles - 1) / tiles);
}

ZeroKind zero_kind_of(Zero zero) {
  if (!is_offset(zero)) return ZeroKind::kInteger;
  return zero == Zero::kF16 ? ZeroKind::kF16 : ZeroKind::kBF16;
}

double gain_of(DecoderKind decoder, Number number) {
  if (decoder != DecoderKind::kE2M1) return 1;
  return number == Number::kF16 ? E2M1<F16>::kGain : E2M1<BF16>::kGain;
}

}  // namespace

WeightArguments weight_arguments(const std::byte* packed, const PackedFormat& format,
                                 double tensor_scale, Number number) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(packed);
  WeightArguments weights{};
  weights.codes = bytes;
  weights.scales = bytes + format.scales_begin;
  if (format.zero_bytes != 0) weights.zeros = bytes + format.zeros_begin;
  if (format.decoder == DecoderKind::kVectors) {
    weights.vectors = reinterpret_cast<const float*>(bytes + format.vectors_begin);
  }
  if (format.gather_begin < format.vectors_begin) {
    weights.gather = reinterpret_cast<const uint32_t*>(bytes + format.gather_begin);
  }
  weights.bits = format.bits;
  weights.rows = static_cast<int32_t>(format.rows);
  weights.cols = static_cast<int32_t>(format.cols);
  weights.strips = static_cast<int32_t>(format.strips);
  weights.tiles = static_cast<int32_t>(format.tiles);
  weights.blocks = static_cast<int32_t>(format.blocks);
  weights.blocks_per_tile = blocks_per_tile(format.tiles_per_block);
  weights.tiles_per_block = static_cast<int32_t>(format.tiles_per_block);
  weights.zero = format.zero;
  weights.zero_bytes = format.zero_bytes;
  weights.zero_kind = zero_kind_of(format.source.zero);
  weights.gain = static_cast<float>(tensor_scale * gain_of(format.decoder, number));
  weights.up_gain = weights.gain;
  weights.scale_factor = scale_factor_of(format, number);
  weights.scale = scale_rule(format.scale_kind);
  if (in_superblocks(format)) weights.superblock = superblock_of(format);
  weights.row_order = format.row_order;
  if (format.decoder == DecoderKind::kCodebook) {
    const std::array<uint16_t, 32> values = codebook_of(format, number);
    std::copy(values.begin(), values.end(), weights.codebook);
  }
  return weights;
}

}  // namespace subbyte::cuda
