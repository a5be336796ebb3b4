#include "base/cpu_features.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace subbyte {
namespace {

#if defined(__x86_64__)

constexpr uint32_t kOsxsave = 1u << 27, kFma = 1u << 12, kF16c = 1u << 29;  // leaf 1, ECX
constexpr uint32_t kAvx2 = 1u << 5;                                         // leaf 7, EBX
constexpr uint32_t kAvx512F = 1u << 16, kAvx512Dq = 1u << 17;
constexpr uint32_t kAvx512Bw = 1u << 30, kAvx512Vl = 1u << 31;
constexpr uint32_t kAvx512Vbmi = 1u << 1, kAvx512Vnni = 1u << 11;                  // leaf 7, ECX
constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;  // leaf 7, EDX
constexpr uint32_t kAvx512Bf16 = 1u << 5;                                          // leaf 7.1, EAX
constexpr uint32_t kTileState = 0x60000;  // XCR0: tile configuration and data
constexpr uint32_t kYmmState = 0x06;      // XCR0: xmm and upper halves of ymm
constexpr uint32_t kZmmState = 0xE6;      // and mask registers, upper halves of zmm, zmm16-31

bool has_all(uint32_t word, uint32_t bits) {
  return (word & bits) == bits;
}

/// XCR0: which registers the operating system saves. Only when OSXSAVE is set.
uint32_t saved_state() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

/// Tiles are large, so Linux hands them out on request only, once for the whole process.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// Intel's take four times as long (seen on Emerald Rapids), AMD's do not (Zen 4).
bool has_fast_bf16_dots() {
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
  __get_cpuid(0, &eax, &ebx, &ecx, &edx);
  const bool intel =
      ebx == signature_INTEL_ebx && edx == signature_INTEL_edx && ecx == signature_INTEL_ecx;
  return !intel;
}

uint32_t detect() {
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return 0;
  if (!has_all(ecx, kOsxsave | kFma | kF16c)) return 0;
  const uint32_t state = saved_state();
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return 0;
  uint32_t features = 0;
  if (has_all(ebx, kAvx2) && has_all(state, kYmmState)) features |= kCpuAvx2;
  if (has_all(ebx, kAvx512F | kAvx512Dq | kAvx512Bw | kAvx512Vl) && has_all(state, kZmmState)) {
    features |= kCpuAvx512;
    if (has_all(ecx, kAvx512Vbmi | kAvx512Vnni)) features |= kCpuAvx512Vnni;
    const bool tiles = has_all(edx, kAmxBf16 | kAmxTile | kAmxInt8) && has_all(state, kTileState);
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && has_all(eax, kAvx512Bf16)) {
      features |= kCpuAvx512Bf16;
      if (has_fast_bf16_dots()) features |= kCpuFastBf16Dots;
    }
    if (tiles && may_use_tiles()) features |= kCpuAmx;
  }
  return features;
}

#else

/// Other processors have the portable kernels.
uint32_t detect() {
  return 0;
}

#endif

}  // namespace

uint32_t cpu_features() {
  static const uint32_t features = detect();
  return features;
}

uint64_t last_level_cache_bytes() {
  namespace fs = std::filesystem;
  // One entry for each cache, by its level and the processors that share it.
  std::map<int, std::map<std::string, uint64_t>> caches;
  std::error_code ignored;
  for (int cpu = 0;; ++cpu) {
    const fs::path folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache";
    if (!fs::exists(folder, ignored)) break;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      int level = 0;
      uint64_t kilobytes = 0;
      std::string shared_by;
      std::ifstream(entry.path() / "level") >> level;
      std::ifstream(entry.path() / "size") >> kilobytes;
      std::ifstream(entry.path() / "shared_cpu_list") >> shared_by;
      caches[level][shared_by] = kilobytes * 1024;
    }
  }
  uint64_t sum = 0;
  if (caches.empty()) return sum;
  for (const auto& [shared_by, bytes] : caches.rbegin()->second) sum += bytes;
  return sum;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace subbyte
