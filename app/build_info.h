#pragma once
// What this program was built from and with.

#include <string>

namespace subbyte::app {

/// The lines of --version.
std::string build_info();

}  // namespace subbyte::app
