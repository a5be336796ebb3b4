#include "bench/peaks.h"

#include <vector>

#include "base/cpu_features.h"
#include "base/random.h"
#include "bench/timing.h"

namespace subbyte::bench {
namespace {

constexpr int64_t kRepeats = 400000;

// Twelve independent sums in every loop: enough to hide the latencies. The instructions are spelled
// out, so that nothing is moved, merged or left away.
#define SUBBYTE_TWELVE(instruction, operands, prefix)                                         \
  instruction " " operands prefix "0\n\t" instruction " " operands prefix "1\n\t" instruction \
              " " operands prefix "2\n\t" instruction " " operands prefix "3\n\t" instruction \
              " " operands prefix "4\n\t" instruction " " operands prefix "5\n\t" instruction \
              " " operands prefix "6\n\t" instruction " " operands prefix "7\n\t" instruction \
              " " operands prefix "8\n\t" instruction " " operands prefix "9\n\t" instruction \
              " " operands prefix "10\n\t" instruction " " operands prefix "11\n\t"

[[gnu::target("avx2,fma")]] void fma_256(const uint8_t* data) {
  asm volatile("vmovups (%0), %%ymm14\n\tvmovups 32(%0), %%ymm15" : : "r"(data) : "memory");
  for (int64_t i = 0; i < kRepeats; ++i) {
    asm volatile(SUBBYTE_TWELVE("vfmadd231ps", "%%ymm14, %%ymm15, ", "%%ymm") : : : "memory");
  }
  asm volatile("vzeroupper");
}

[[gnu::target("avx512f")]] void fma_512(const uint8_t* data) {
  asm volatile("vmovups (%0), %%zmm14\n\tvmovups 64(%0), %%zmm15" : : "r"(data) : "memory");
  for (int64_t i = 0; i < kRepeats; ++i) {
    asm volatile(SUBBYTE_TWELVE("vfmadd231ps", "%%zmm14, %%zmm15, ", "%%zmm") : : : "memory");
  }
  asm volatile("vzeroupper");
}

[[gnu::target("avx512f")]] void bf16_512(const uint8_t* data) {
  asm volatile("vmovups (%0), %%zmm14\n\tvmovups 64(%0), %%zmm15" : : "r"(data) : "memory");
  for (int64_t i = 0; i < kRepeats; ++i) {
    asm volatile(SUBBYTE_TWELVE("vdpbf16ps", "%%zmm14, %%zmm15, ", "%%zmm") : : : "memory");
  }
  asm volatile("vzeroupper");
}

[[gnu::target("avx512f")]] void vnni_512(const uint8_t* data) {
  asm volatile("vmovups (%0), %%zmm14\n\tvmovups 64(%0), %%zmm15" : : "r"(data) : "memory");
  for (int64_t i = 0; i < kRepeats; ++i) {
    asm volatile(SUBBYTE_TWELVE("vpdpbusd", "%%zmm14, %%zmm15, ", "%%zmm") : : : "memory");
  }
  asm volatile("vzeroupper");
}

struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Two tiles by two, loaded from the first-level cache for every four products, as a kernel does.
#define SUBBYTE_TILE_LOOP(product)                                                        \
  const TileConfig config;                                                                \
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");                                \
  for (int64_t i = 0; i < kRepeats / 16; ++i) {                                           \
    asm volatile("tileloadd (%0,%1,1), %%tmm4\n\ttileloadd (%2,%1,1), %%tmm6\n\t" product \
                 " %%tmm6, %%tmm4, %%tmm0\n\ttileloadd (%3,%1,1), %%tmm7\n\t" product     \
                 " %%tmm7, %%tmm4, %%tmm1\n\ttileloadd (%4,%1,1), %%tmm5\n\t" product     \
                 " %%tmm6, %%tmm5, %%tmm2\n\t" product " %%tmm7, %%tmm5, %%tmm3"          \
                 :                                                                        \
                 : "r"(data), "r"(int64_t{64}), "r"(data + 1024), "r"(data + 2048),       \
                   "r"(data + 3072)                                                       \
                 : "memory");                                                             \
  }                                                                                       \
  asm volatile("tilerelease")

void amx_bf16(const uint8_t* data) {
  SUBBYTE_TILE_LOOP("tdpbf16ps");
}

void amx_int8(const uint8_t* data) {
  SUBBYTE_TILE_LOOP("tdpbusd");
}

struct Loop {
  const char* name;
  uint32_t features;
  void (*run)(const uint8_t* data);
  double operations;  // of one call
};

}  // namespace

std::vector<Peak> measure_peaks(Executor& executor) {
  constexpr double kVectors = 2.0 * 12 * kRepeats;
  constexpr double kTiles = 2.0 * 4 * 16 * 16 * (kRepeats / 16);
  const Loop loops[] = {{"float FMA, 256 bits", kCpuAvx2, &fma_256, 8 * kVectors},
                        {"float FMA, 512 bits", kCpuAvx512, &fma_512, 16 * kVectors},
                        {"bf16 dot, 512 bits", kCpuAvx512Bf16, &bf16_512, 32 * kVectors},
                        {"int8 dot (VNNI), 512 bits", kCpuAvx512Vnni, &vnni_512, 64 * kVectors},
                        {"AMX bf16", kCpuAmx, &amx_bf16, 32 * kTiles},
                        {"AMX int8", kCpuAmx, &amx_int8, 64 * kTiles}};
  alignas(64) uint8_t data[4096];
  Random random(1);
  // bf16 and floats between 1 and 2; any bytes as integers.
  for (int i = 0; i < 4096; i += 2) {
    data[i] = static_cast<uint8_t>(random.below(256));
    data[i + 1] = 0x3F;
    if (random.below(2) == 0) data[i] |= 0x80;
  }
  std::vector<Peak> peaks;
  for (const Loop& loop : loops) {
    if ((cpu_features() & loop.features) == 0) continue;
    std::vector<double> rates;
    for (int i = 0; i < 9; ++i) {
      const double start = now();
      executor.parallel_for(executor.size(), 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) loop.run(data);
      });
      rates.push_back(loop.operations * executor.size() / (now() - start));
    }
    peaks.push_back({loop.name, median(rates)});
  }
  return peaks;
}

}  // namespace subbyte::bench
