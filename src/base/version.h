#pragma once
// The version of the library that a program has linked, for its own --version and its bug reports.

#include <string_view>

namespace subbyte {

/// The version, such as "0.1.0".
std::string_view library_version();

/// The commit that the library was built from, such as "bc93776d1f0a", with "-dirty" where files
/// differed from it when the build was configured; "unknown" outside of a checkout.
std::string_view library_commit();

}  // namespace subbyte
