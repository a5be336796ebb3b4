#pragma once
// What the processor and the operating system offer, asked once.

#include <cstdint>
#include <string>

namespace subbyte {

enum CpuFeature : uint32_t {
  kCpuAvx2 = 1u << 0,          // AVX2, FMA and F16C
  kCpuAvx512 = 1u << 1,        // AVX-512 F, BW, VL, DQ
  kCpuAvx512Vnni = 1u << 2,    // AVX-512 VNNI and VBMI
  kCpuAvx512Bf16 = 1u << 3,    // AVX-512 BF16
  kCpuFastBf16Dots = 1u << 4,  // BF16's dot products take as long as an FMA, not four times
  kCpuAmx = 1u << 5,           // AMX with BF16 and INT8 tiles, after the system has granted them
};

/// Bits of CpuFeature, with the state of the vector registers enabled by the system.
uint32_t cpu_features();

/// Bytes of all last-level caches of the machine together, as /sys/devices/system/cpu lists them;
/// 0 when it does not. (sysconf() multiplies by the dies of the whole package on some processors
/// of which a virtual machine has one.)
uint64_t last_level_cache_bytes();

/// The name of the processor, "unknown processor" where the system does not say.
std::string processor_name();

}  // namespace subbyte
