// The name of the best tier of CPU kernels for the machine that compiles, for SUBBYTE_ISAS=native.
#include <cstdio>

#include "base/cpu_features.h"

namespace subbyte {

const char* native_isa() {
  const auto has = [](uint32_t features) { return (cpu_features() & features) == features; };
  constexpr uint32_t kVnni = kCpuAvx512 | kCpuAvx512Vnni;
  if (has(kVnni | kCpuAvx512Bf16 | kCpuAmx)) return "amx";
  if (has(kVnni | kCpuAvx512Bf16 | kCpuFastBf16Dots)) return "avx512bf16";
  if (has(kVnni)) return "avx512vnni";
  if (has(kCpuAvx512)) return "avx512";
  return has(kCpuAvx2) ? "avx2" : "scalar";
}

}  // namespace subbyte

int main() {
  std::puts(subbyte::native_isa());
}
