#pragma once
// The formats of weights that the benchmarks of products know by name.

#include <string>
#include <vector>

#include "formats/weight_format.h"

namespace subbyte::bench {

struct NamedFormat {
  std::string name;
  WeightFormat format;
  bool rounds_inputs = false;  // to E4M3, which is a part of the time: W8A8
};

inline const std::vector<NamedFormat> kFormats = {
    {"int4", {Format::kU4, Format::kF16, Zero::kU8, 128}},
    {"mxfp4", {Format::kE2M1, Format::kE8M0, Zero::kNone, 32}},
    {"nvfp4", {Format::kE2M1, Format::kE4M3, Zero::kNone, 16}},
    {"fp8", {Format::kE4M3, Format::kF32, Zero::kNone, 128}},
    {"w8a8", {Format::kE4M3, Format::kF32, Zero::kNone, 128}, true},
    {"nf4", {Format::kNF4, Format::kF32, Zero::kNone, 64}},
    {"u5", {Format::kU5, Format::kF16, Zero::kU8, 32}},
    {"kbit2", {Format::kNFL2, Format::kE4M4, Zero::kNone, 32}},
    {"kbit3", {Format::kNFL3, Format::kE4M4, Zero::kNone, 32}},
    {"kbit4", {Format::kNFL4, Format::kE4M4, Zero::kNone, 32}},
    {"kbit5", {Format::kNFL5, Format::kE4M4, Zero::kNone, 32}},
    {"vq2", {Format::kVQ2, Format::kE4M4, Zero::kNone, 32, 256}},
    {"vq4", {Format::kVQ4, Format::kE4M4, Zero::kNone, 32, 256}},
    {"q2_k", {Format::kU2, Format::kU4, Zero::kOffsetU4, 16}},
    {"q3_k", {Format::kI3, Format::kI6, Zero::kNone, 16}},
    {"q4_k", {Format::kU4, Format::kU6, Zero::kOffsetU6, 32}},
    {"q5_k", {Format::kU5, Format::kU6, Zero::kOffsetU6, 32}},
    {"q6_k", {Format::kI6, Format::kI8, Zero::kNone, 16}},
    {"q8_0", {Format::kI8, Format::kF16, Zero::kNone, 32}},
    {"iq4_xs", {Format::kIQ4, Format::kI6, Zero::kNone, 32}},
};

}  // namespace subbyte::bench
