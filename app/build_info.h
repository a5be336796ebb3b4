#pragma once
// What this program was built from and with: known when it is configured.

namespace subbyte::app {

extern const char* const kBuildInfo;  // lines for --version
extern const char* const kCommit;

}  // namespace subbyte::app
