#pragma once
// How weights are quantized on a GPU, to the bits of the quantizers of quantize/.

#include <array>
#include <cstdint>

#include "formats/mx_scale.h"
#include "formats/weight_format.h"

namespace subbyte {

enum class WeightRule : uint8_t { kMinMax, kSymmetric, kMxfp4, kNvfp4, kNf4, kNfl, kFp8 };

struct WeightRounding {
  WeightRule rule = WeightRule::kMinMax;
  WeightFormat format;                      // what the quantizer makes of the weights
  bool searches = false;                    // MXFP4 and NVFP4: of two scales the better one
  ScaleRule scale_rule = ScaleRule::kCeil;  // of MXFP4
  std::array<float, 31> thresholds = {};    // of nfl: those of CodebookEncoder
};

}  // namespace subbyte
