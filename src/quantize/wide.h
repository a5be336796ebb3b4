#pragma once
// Vectors by the extension that compilers have for these, for loops that are compiled several
// times: for every x86-64, and as functions for AVX2 and AVX-512, which are taken where the
// processor has them. Nothing is contracted, so all give the same bits.
//
// Only GCC can permute lanes by an index that is a variable; other compilers have the plain loops.

#include <cstdint>

#include "base/cpu_features.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SUBBYTE_WIDE 1
#define SUBBYTE_FOR_AVX2 [[gnu::target("avx2")]]
#define SUBBYTE_FOR_AVX512 [[gnu::target("avx2,avx512f,avx512bw,avx512vl,avx512dq")]]
#else
#define SUBBYTE_WIDE 0
#define SUBBYTE_FOR_AVX2
#define SUBBYTE_FOR_AVX512
#endif

namespace subbyte {

/// Says whether functions with SUBBYTE_FOR_AVX2 may be called.
inline bool may_use_avx2() {
  static const bool has = SUBBYTE_WIDE != 0 && (cpu_features() & kCpuAvx2) != 0;
  return has;
}

namespace wide {

template <auto kLoop, typename... Arguments>
SUBBYTE_FOR_AVX2 void for_avx2(const Arguments&... arguments) {
  kLoop(arguments...);
}
template <auto kLoop, typename... Arguments>
void plain(const Arguments&... arguments) {
  kLoop(arguments...);
}

}  // namespace wide

/// Calls kLoop(arguments...), a function that is always inlined, compiled for AVX2 where that may
/// be used.
template <auto kLoop, typename... Arguments>
void run_wide(const Arguments&... arguments) {
  (may_use_avx2() ? wide::for_avx2<kLoop, Arguments...>
                  : wide::plain<kLoop, Arguments...>)(arguments...);
}

/// And those with SUBBYTE_FOR_AVX512.
inline bool may_use_avx512() {
  static const bool has = SUBBYTE_WIDE != 0 && (cpu_features() & kCpuAvx512) != 0;
  return has;
}

}  // namespace subbyte
