#pragma once
// The version of the library that a program has linked, for its own --version and its bug reports.

#if __cplusplus < 202002L
#error "the headers of subbyte want C++20: -std=c++20, or target_compile_features(... cxx_std_20)"
#endif

#include <string_view>

// Public names are subbyte::X. They lie in an inline namespace, so that a program and a library of
// different major versions do not link. The library's own files use them by the same names.
#define SUBBYTE_BEGIN_NAMESPACE \
  namespace subbyte {           \
  inline namespace v0 {
#define SUBBYTE_END_NAMESPACE \
  }                           \
  }

SUBBYTE_BEGIN_NAMESPACE

/// The version, such as "0.1.0", by the rules of SemVer.
std::string_view version();

/// The commit that the library was built from, such as "bc93776d1f0a", with "-dirty" where files
/// differed from it when the build was configured; "unknown" outside of a checkout.
std::string_view commit();

SUBBYTE_END_NAMESPACE
