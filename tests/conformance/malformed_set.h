#pragma once
// The conformance set for readers of safetensors files: every way to be malformed that is known
// from the format's rules, the audit of 2023 and the bugs of other readers, in 62 classes
// (conformance/safetensors/README.md lists them), and files that must load.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace subbyte::conformance {

inline constexpr int kControl = 0;          // the class of files that must load
inline constexpr int kNumFileClasses = 55;  // 1 to 55 are about one file
inline constexpr int kNumClasses = 62;      // 56 to 58 about the file system, 59 to 62 the index

/// Files smaller than this are published in conformance/safetensors/files.
inline constexpr std::size_t kPublishedBytes = 64 * 1024;

struct FileCase {
  std::string name;  // "n_23_same_range" must be refused, "y_00_empty_header" must load
  int number = kControl;
  std::string bytes;
  std::string_view code;  // empty: loads
};

/// A model directory: `files` and symbolic `links` below a root; the model is root/model.
struct DirectoryCase {
  std::string name;
  int number = kControl;
  std::vector<std::pair<std::string, std::string>> files;  // path, bytes
  std::vector<std::pair<std::string, std::string>> links;  // path, target
  std::string_view code;

  bool published() const;  // small, without links
};

/// Every case in which one file is wrong, or right; each below 3 MB.
std::vector<FileCase> file_cases();

/// Every case in which an index is wrong, or right.
std::vector<DirectoryCase> directory_cases();

/// conformance/safetensors/manifest.json: what is published and what a reader should make of it.
std::string manifest(const std::vector<FileCase>& files,
                     const std::vector<DirectoryCase>& directories);

/// The files of the manifest, by their paths below conformance/safetensors.
std::vector<std::pair<std::string, std::string>> published_files(
    const std::vector<FileCase>& files, const std::vector<DirectoryCase>& directories);

}  // namespace subbyte::conformance
