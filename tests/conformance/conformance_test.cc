// Every case of the conformance set against the reader, and the published files against the
// generator.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoints/containers/safetensors.h"
#include "checkpoints/containers/safetensors_codes.h"
#include "checkpoints/containers/tensor_source.h"
#include "conformance/file_system_cases.h"
#include "conformance/malformed_set.h"
#include "conformance/oracle.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte::conformance {
namespace {

namespace fs = std::filesystem;

const fs::path kPublished = fs::path(kConformance) / "safetensors";

std::string read_text(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

template <typename T>
std::string_view code_of(const Result<T>& result) {
  return result.ok() ? std::string_view() : result.error().code;
}

/// What `make` puts into a fresh directory, opened as a model.
Result<TensorSource> open_directory(const DirectoryCase& directory, const TempDir& root) {
  fs::create_directory(root / "model");
  for (const auto& [path, bytes] : directory.files) root.write(path, bytes);
  for (const auto& [path, target] : directory.links) fs::create_symlink(target, root / path);
  return TensorSource::open(root / "model");
}

void expect_one_line(const Error& error, const std::string& where) {
  EXPECT_EQ(error.message.rfind(where, 0), 0u) << error.message;
  EXPECT_LT(error.message.size(), where.size() + 700) << error.message;
  for (const char c : error.message) {
    EXPECT_GE(static_cast<unsigned char>(c), 0x20) << error.message;
  }
}

TEST(Conformance, every_file_is_refused_with_its_own_code_or_loads) {
  for (const FileCase& file : file_cases()) {
    const auto header =
        read_safetensors_header(std::as_bytes(std::span(file.bytes)), file.bytes.size(), "f");
    EXPECT_EQ(code_of(header), file.code) << file.name << (header ? "" : header.error().message);
    if (!header.ok()) expect_one_line(header.error(), "f: ");
  }
}

TEST(Conformance, a_second_opinion_agrees_on_every_file) {
  for (const FileCase& file : file_cases()) {
    EXPECT_EQ(oracle_accepts(file.bytes), file.code.empty()) << file.name;
  }
}

TEST(Conformance, every_directory_is_refused_with_its_own_code_or_loads) {
  for (const DirectoryCase& directory : directory_cases()) {
    const TempDir root;
    const auto source = open_directory(directory, root);
    EXPECT_EQ(code_of(source), directory.code)
        << directory.name << (source.ok() ? "" : source.error().message);
    if (!source.ok()) expect_one_line(source.error(), root.path().native());
  }
}

TEST(Conformance, no_directory_leads_to_a_file_outside) {
  for (const DirectoryCase& directory : directory_cases()) {
    const TempDir root;
    const auto source = open_directory(directory, root);
    if (!source.ok()) continue;
    for (const fs::path& file : source->files()) {
      EXPECT_EQ(fs::canonical(file).parent_path(), fs::canonical(root / "model")) << directory.name;
    }
  }
}

TEST(Conformance, every_strange_file_of_the_file_system_is_refused) {
  for (const FileSystemCase& one : file_system_cases()) {
    const TempDir dir;
    EXPECT_EQ(one.run(dir), one.code) << one.name;
  }
}

TEST(Conformance, covers_every_class) {
  std::map<int, int> variants;
  for (const FileCase& file : file_cases()) ++variants[file.number];
  for (const DirectoryCase& directory : directory_cases()) ++variants[directory.number];
  for (const FileSystemCase& one : file_system_cases()) ++variants[one.number];
  EXPECT_EQ(variants[1], 1);  // there is but one file of 0 bytes
  for (int number = 2; number <= kNumClasses; ++number) {
    EXPECT_GE(variants[number], number == 57 ? 2 : 3) << number;
  }
  EXPECT_EQ(variants.rbegin()->first, kNumClasses);
}

TEST(Conformance, has_a_case_for_every_code) {
  std::set<std::string_view> produced;
  for (const FileCase& file : file_cases()) produced.insert(file.code);
  for (const DirectoryCase& directory : directory_cases()) produced.insert(directory.code);
  for (const std::string_view code : safetensors_codes::kAll) {
    EXPECT_TRUE(produced.contains(code)) << code;
  }
  for (const std::string_view code : index_codes::kAll) {
    EXPECT_TRUE(produced.contains(code)) << code;
  }
}

TEST(Conformance, names_and_files_are_unique) {
  std::set<std::string> names;
  std::map<std::string, std::string> first;
  for (const FileCase& file : file_cases()) {
    EXPECT_TRUE(names.insert(file.name).second) << file.name;
    const auto [same, added] = first.emplace(file.bytes, file.name);
    EXPECT_TRUE(added) << file.name << " is " << same->second;
  }
  for (const DirectoryCase& directory : directory_cases()) {
    EXPECT_TRUE(names.insert(directory.name).second) << directory.name;
  }
}

TEST(Conformance, published_files_are_those_of_the_generator) {
  std::set<fs::path> expected;
  std::size_t total = 0;
  for (const auto& [path, bytes] : published_files(file_cases(), directory_cases())) {
    expected.insert(kPublished / path);
    total += bytes.size();
    EXPECT_TRUE(fs::exists(kPublished / path) && read_text(kPublished / path) == bytes)
        << path << ": run write_conformance_set conformance/safetensors";
  }
  EXPECT_LT(total, 2u * 1024 * 1024);
  for (const auto& found : fs::recursive_directory_iterator(kPublished)) {
    if (!found.is_regular_file() || found.path().parent_path() == kPublished) continue;
    EXPECT_TRUE(expected.contains(found.path())) << found.path();
  }
}

TEST(Conformance, published_files_open_from_disk_as_the_manifest_says) {
  int refused = 0;
  for (const FileCase& file : file_cases()) {
    if (file.bytes.size() >= kPublishedBytes) continue;
    const auto opened = SafetensorsFile::open(kPublished / "files" / (file.name + ".safetensors"));
    EXPECT_EQ(code_of(opened), file.code) << file.name;
    refused += opened.ok() ? 0 : 1;
  }
  EXPECT_GE(refused, 230);
}

TEST(Conformance, the_documentation_has_a_rule_for_every_code_and_no_others) {
  // Rows read: |rule|`code`|
  std::set<std::string> rows;
  std::istringstream text(read_text(kPublished / "../../docs/safetensors.md"));
  for (std::string line; std::getline(text, line);) {
    const std::size_t begin = line.rfind("|`");
    if (!line.starts_with("|") || !line.ends_with("`|") || begin == std::string::npos) continue;
    const std::string code = line.substr(begin + 2, line.size() - begin - 4);
    EXPECT_TRUE(rows.insert(code).second) << code << " is there twice";
  }
  std::set<std::string> codes(safetensors_codes::kAll.begin(), safetensors_codes::kAll.end());
  codes.insert(index_codes::kAll.begin(), index_codes::kAll.end());
  EXPECT_EQ(rows, codes);
}

TEST(Conformance, the_readme_lists_every_class) {
  const std::string text = read_text(kPublished / "README.md");
  for (int number = 1; number <= kNumClasses; ++number) {
    EXPECT_NE(text.find("\n|" + std::to_string(number) + "|"), std::string::npos) << number;
  }
}

}  // namespace
}  // namespace subbyte::conformance
