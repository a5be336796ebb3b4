// Writes the set of model directories: write_metadata_set [--manifest] DIRECTORY
// With --manifest only manifest.json, as it is kept in conformance/metadata.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "conformance/metadata_set.h"

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  using namespace subbyte::conformance;
  const bool manifest_only = argc == 3 && std::string_view(argv[1]) == "--manifest";
  if (argv[argc - 1][0] == '-' || (argc != 2 && !manifest_only)) {  // no folder of that name
    std::fprintf(stderr, "usage: write_metadata_set [--manifest] DIRECTORY\n");
    return 2;
  }
  const fs::path root = argv[argc - 1];
  fs::remove_all(root / "directories");
  for (const auto& [path, content] : metadata_files(metadata_cases())) {
    if (manifest_only && path != "manifest.json") continue;
    fs::create_directories((root / path).parent_path());
    std::ofstream stream(root / path, std::ios::binary);
    stream.write(content.data(), static_cast<std::streamsize>(content.size()));
    if (!stream.flush()) {
      std::fprintf(stderr, "write_metadata_set: cannot write %s\n", (root / path).c_str());
      return 1;
    }
  }
  return 0;
}
