#include "conformance/malformed_set.h"

#include "conformance/case_list.h"

namespace subbyte::conformance {
namespace {

/// One line of the manifest. No text here needs escaping.
std::string line(std::string_view kind, const std::string& path, int number,
                 std::string_view code) {
  std::string text = "{\"";
  text.append(kind).append("\": \"").append(path).append("\", \"class\": ");
  text.append(std::to_string(number)).append(", \"expect\": ");
  if (code.empty()) return text + "\"load\"}";
  return text.append("\"refuse\", \"code\": \"").append(code).append("\"}");
}

std::string file_path(const FileCase& file) {
  return "files/" + file.name + ".safetensors";
}

}  // namespace

std::vector<FileCase> file_cases() {
  CaseList list;
  add_controls(list);
  add_framing(list);
  add_header_text(list);
  add_names(list);
  add_entries(list);
  add_offsets(list);
  return list.take();
}

std::string manifest(const std::vector<FileCase>& files,
                     const std::vector<DirectoryCase>& directories) {
  std::string text = "[\n";
  const auto add = [&](const std::string& one) {
    if (text.size() > 2) text += ",\n";
    text += one;
  };
  for (const FileCase& file : files) {
    if (file.bytes.size() < kPublishedBytes) {
      add(line("file", file_path(file), file.number, file.code));
    }
  }
  for (const DirectoryCase& directory : directories) {
    if (directory.published()) {
      add(line("directory", "directories/" + directory.name + "/model", directory.number,
               directory.code));
    }
  }
  return text + "\n]\n";
}

std::vector<std::pair<std::string, std::string>> published_files(
    const std::vector<FileCase>& files, const std::vector<DirectoryCase>& directories) {
  std::vector<std::pair<std::string, std::string>> published;
  for (const FileCase& file : files) {
    if (file.bytes.size() < kPublishedBytes) published.emplace_back(file_path(file), file.bytes);
  }
  for (const DirectoryCase& directory : directories) {
    if (!directory.published()) continue;
    for (const auto& [path, bytes] : directory.files) {
      published.emplace_back("directories/" + directory.name + "/" + path, bytes);
    }
  }
  published.emplace_back("manifest.json", manifest(files, directories));
  return published;
}

}  // namespace subbyte::conformance
