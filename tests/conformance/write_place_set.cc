// Writes the set of places: write_place_set [--manifest] DIRECTORY
// With --manifest only manifest.json, as it is kept in conformance/places.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "conformance/place_set.h"

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  using namespace subbyte::conformance;
  const bool manifest_only = argc == 3 && std::string_view(argv[1]) == "--manifest";
  if (argv[argc - 1][0] == '-' || (argc != 2 && !manifest_only)) {  // no folder of that name
    std::fprintf(stderr, "usage: write_place_set [--manifest] DIRECTORY\n");
    return 2;
  }
  const fs::path root = argv[argc - 1];
  fs::remove_all(root / "directories");
  fs::create_directories(root);
  const auto cases = place_cases();
  for (const PlaceCase& one : cases) {
    const subbyte::Status made =
        manifest_only ? subbyte::Status() : make_places(one, root / "directories" / one.name);
    if (made.ok()) continue;
    std::fprintf(stderr, "write_place_set: %s\n", made.error().message.c_str());
    return 1;
  }
  std::ofstream stream(root / "manifest.json", std::ios::binary);
  return stream << place_manifest(cases) && stream.flush() ? 0 : 1;
}
