// Writes the published set of model directories: write_metadata_set conformance/metadata

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "conformance/metadata_set.h"

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  using namespace subbyte::conformance;
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_metadata_set DIRECTORY\n");
    return 2;
  }
  const fs::path root = argv[1];
  fs::remove_all(root / "directories");
  for (const auto& [path, content] : published_metadata(metadata_cases())) {
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
