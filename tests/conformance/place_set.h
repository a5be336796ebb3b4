#pragma once
// The conformance set for programs that convert models: what a stranger, another user or a program
// that was killed can put where the files of a model, or the output, are looked for. Classes 72 to
// 78 (conformance/places/README.md lists them).

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace subbyte::conformance {

inline constexpr int kFirstPlaceClass = 72;
inline constexpr int kLastPlaceClass = 78;

/// One thing in the file system, below the root of a case. Folders above it are made.
struct Place {
  enum class Kind : uint8_t { kFile, kHole, kLink, kHardLink, kPipe, kDirectory, kModel };
  Kind kind = Kind::kFile;
  std::string path;
  std::string content = {};  // of a file; of a link, its target
  uint64_t bytes = 0;        // of a hole: a file of that size without blocks
};

struct PlaceCase {
  std::string name;  // "n_72_readme_above" must be refused, "y_00_blob" must be converted
  int number = 0;
  std::string model = "model";  // below the root; the output is root/out
  std::vector<Place> places;
  std::string_view code;            // empty: converted
  std::vector<std::string> stays;   // below the root, when the program is through
  std::vector<std::string> leaves;  // and what must not be there any more
};

std::vector<PlaceCase> place_cases();

/// Makes the case below `root`. Code file.io where the file system cannot hold it.
Status make_places(const PlaceCase& one, const std::filesystem::path& root);

/// manifest.json of the set.
std::string place_manifest(const std::vector<PlaceCase>& cases);

}  // namespace subbyte::conformance
