// Tiers of CPU kernels on the machine that compiles, for SUBBYTE_ISAS=native and
// SUBBYTE_OTHER_ISAS_O0: a line with the best one, and one with those that it cannot run.
#include <cstdint>
#include <cstdio>

#include "base/cpu_features.h"

namespace subbyte {

struct Tier {
  const char* name;
  uint32_t required;
  uint32_t wanted;  // without these another tier is faster
};
constexpr uint32_t kVnni = kCpuAvx512 | kCpuAvx512Vnni;
constexpr Tier kTiers[] = {
    {"scalar", 0, 0},
    {"avx2", kCpuAvx2, 0},
    {"avx512", kCpuAvx512, 0},
    {"avx512vnni", kVnni, 0},
    {"avx512bf16", kVnni | kCpuAvx512Bf16, kCpuFastBf16Dots},
    {"amx", kVnni | kCpuAvx512Bf16 | kCpuAmx, 0},
};

bool has(uint32_t features) {
  return (cpu_features() & features) == features;
}

void print_tiers() {
  const char* best = "";
  for (const Tier& tier : kTiers) {
    if (has(tier.required | tier.wanted)) best = tier.name;
  }
  std::printf("best %s\nothers ", best);
  const char* separator = "";
  for (const Tier& tier : kTiers) {
    if (has(tier.required)) continue;
    std::printf("%s%s", separator, tier.name);
    separator = ";";
  }
  std::puts("");
}

}  // namespace subbyte

int main() {
  subbyte::print_tiers();
}
