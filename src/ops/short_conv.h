#pragma once
// A convolution of a few taps over the tokens, between two gates, as LFM2 has it.

#include <array>
#include <cstdint>
#include <string>

#include "ops/cache_layout.h"
#include "ops/operand.h"

namespace subbyte {

/// y = c * (bias + sum over the taps of filter * u), where bcx has b, c and x of a token, u is
/// b * x, and taps before the last are of the tokens before it, or 0. Of a sequence u of its last
/// tokens is kept: [taps - 1][channels].
struct ShortConvOp {
  ValueId y = kNoValue;
  ValueId bcx = kNoValue;
  int64_t channels = 0;
  int64_t taps = 0;
  bool has_bias = false;
  Vector filters = {};  // [taps][channels], the last tap is that of the token itself
  Vector bias = {};     // [channels]
  CacheSlot cache = {};

  CacheGroup kept() const { return {.state_size = (taps - 1) * channels}; }
  std::string text() const { return "short convolution, " + std::to_string(taps) + " taps"; }
  auto inputs() { return std::array{MixerInput{"in_proj", 3 * channels, &bcx}}; }
  static auto numbers(auto& op) {
    return std::array{
        MixerNumbers{"conv", TensorRole::kFilters, &op.filters, op.channels, op.taps},
        MixerNumbers{"conv.bias", TensorRole::kVector, &op.bias, op.has_bias ? op.channels : 0}};
  }
  auto sizes() const { return std::array{MixerSize{"shortconv.l_cache", taps}}; }
  Operands operands() const {
    Operands all = {reads(bcx, 3 * channels), writes(y, channels)};
    add_numbers(all, *this);
    return all;
  }
};

}  // namespace subbyte
