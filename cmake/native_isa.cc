// The name of the best tier of CPU kernels for the machine that compiles, for SUBBYTE_ISAS=native.
#include <cstdio>

#include "base/cpu_features.h"

namespace subbyte {

const char* native_isa() {
  const uint32_t features = cpu_features();
  if (features & kCpuAmx) return "amx";
  if ((features & kCpuAvx512Bf16) && (features & kCpuFastBf16Dots)) return "avx512bf16";
  if (features & kCpuAvx512Vnni) return "avx512vnni";
  if (features & kCpuAvx512) return "avx512";
  return features & kCpuAvx2 ? "avx2" : "scalar";
}

}  // namespace subbyte

int main() {
  std::puts(subbyte::native_isa());
}
