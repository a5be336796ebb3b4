#include "conformance/metadata_set.h"

namespace subbyte::conformance {

void MetadataList::add_files(std::string_view name, std::string_view code,
                             std::vector<std::pair<std::string, std::string>> files,
                             std::vector<std::string> mentions) {
  std::string full = code.empty() ? "y_" : "n_";
  full += static_cast<char>('0' + number_ / 10);
  full += static_cast<char>('0' + number_ % 10);
  full.append("_").append(name);
  cases_.push_back({std::move(full), number_, std::move(files), code, std::move(mentions)});
}

std::vector<MetadataCase> metadata_cases() {
  MetadataList list;
  add_metadata_controls(list);
  add_gptq_metadata(list);
  add_other_metadata(list);
  add_config_metadata(list);
  return list.take();
}

std::vector<std::pair<std::string, std::string>> metadata_files(
    const std::vector<MetadataCase>& cases) {
  std::vector<std::pair<std::string, std::string>> published;
  std::string manifest = "[\n";
  for (const MetadataCase& one : cases) {
    const std::string directory = "directories/" + one.name;
    for (const auto& [name, content] : one.files) {
      published.emplace_back(directory + "/" + name, content);
    }
    if (manifest.size() > 2) manifest += ",\n";
    manifest += R"({"directory": ")" + directory + R"(", "class": )" + std::to_string(one.number) +
                R"(, "expect": )";
    manifest +=
        one.code.empty() ? R"("load"})" : R"("refuse", "code": ")" + std::string(one.code) + "\"}";
  }
  published.emplace_back("manifest.json", manifest + "\n]\n");
  return published;
}

}  // namespace subbyte::conformance
