// Writes the published part of the conformance set: write_conformance_set conformance/safetensors

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "conformance/malformed_set.h"

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  using namespace subbyte::conformance;
  if (argc != 2 || argv[1][0] == '-') {
    std::fprintf(stderr, "usage: write_conformance_set DIRECTORY\n");
    return 2;
  }
  const fs::path root = argv[1];
  fs::remove_all(root / "files");
  fs::remove_all(root / "directories");
  for (const auto& [path, bytes] : published_files(file_cases(), directory_cases())) {
    fs::create_directories((root / path).parent_path());
    std::ofstream stream(root / path, std::ios::binary);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!stream.flush()) {
      std::fprintf(stderr, "write_conformance_set: cannot write %s\n", (root / path).c_str());
      return 1;
    }
  }
  return 0;
}
