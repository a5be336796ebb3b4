#pragma once
// What the processor and the operating system offer, asked once.

#include <cstdint>

namespace subbyte {

enum CpuFeature : uint32_t {
  kCpuAvx2 = 1u << 0,    // AVX2, FMA and F16C
  kCpuAvx512 = 1u << 1,  // AVX-512 F, BW, VL, DQ
};

/// Bits of CpuFeature, with the state of the vector registers enabled by the system.
uint32_t cpu_features();

}  // namespace subbyte
