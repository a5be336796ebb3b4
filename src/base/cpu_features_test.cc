#include "base/cpu_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace subbyte {
namespace {

#if defined(__x86_64__)

/// The kernel's own view of the processor, from the first "flags" line.
std::string kernel_flags() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("flags", 0) == 0) return line + ' ';
  }
  return {};
}

TEST(CpuFeatures, agrees_with_the_operating_system) {
  const std::string flags = kernel_flags();
  ASSERT_FALSE(flags.empty());
  const auto has_all = [&](const std::string& names) {
    std::istringstream stream(names);
    for (std::string name; stream >> name;) {
      if (flags.find(' ' + name + ' ') == std::string::npos) return false;
    }
    return true;
  };
  EXPECT_EQ((cpu_features() & kCpuAvx2) != 0, has_all("avx2 fma f16c"));
  EXPECT_EQ((cpu_features() & kCpuAvx512) != 0,
            has_all("fma f16c avx512f avx512dq avx512bw avx512vl"));
}

#else

TEST(CpuFeatures, are_none_elsewhere) {
  EXPECT_EQ(cpu_features(), 0U);
}

#endif

TEST(LastLevelCache, is_zero_or_a_plausible_size) {
  const uint64_t bytes = last_level_cache_bytes();
  EXPECT_TRUE(bytes == 0 || (bytes >= 64 << 10 && bytes <= uint64_t{64} << 30)) << bytes;
}

}  // namespace
}  // namespace subbyte
