#pragma once
// The conformance set for loaders of quantized models: whole model directories in which one fact
// about the weights or about the architecture is wrong, in the classes 63 to 71
// (conformance/metadata/README.md lists them), and directories that must load.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/tiny_models.h"

namespace subbyte::conformance {

inline constexpr int kFirstMetadataClass = 63;
inline constexpr int kLastMetadataClass = 71;

struct MetadataCase {
  std::string name;  // "n_63_gptq_bits_0" must be refused, "y_00_awq" must load
  int number = 0;    // the class, 0 for those that must load
  std::vector<std::pair<std::string, std::string>> files;  // name, content
  std::string_view code;                                   // empty: loads
  std::vector<std::string> mentions;                       // what the message must contain
};

std::vector<MetadataCase> metadata_cases();

/// The set as files, by path: directories/<name>/<file> and manifest.json. Only the manifest is
/// kept in conformance/metadata: the directories are 4 MB and come out of write_metadata_set.
std::vector<std::pair<std::string, std::string>> metadata_files(
    const std::vector<MetadataCase>& cases);

/// Collects cases; all that follow a section() are of its class.
class MetadataList {
 public:
  void section(int number) { number_ = number; }
  void add(std::string_view name, std::string_view code, const TinyModel& model,
           std::vector<std::string> mentions = {}) {
    add_files(name, code, model.files(), std::move(mentions));
  }
  void add_files(std::string_view name, std::string_view code,
                 std::vector<std::pair<std::string, std::string>> files,
                 std::vector<std::string> mentions = {});
  std::vector<MetadataCase> take() { return std::move(cases_); }

 private:
  std::vector<MetadataCase> cases_;
  int number_ = 0;
};

void add_metadata_controls(MetadataList& list);  // metadata_controls.cc
void add_gptq_metadata(MetadataList& list);      // metadata_gptq.cc, classes 63 to 66
void add_other_metadata(MetadataList& list);     // metadata_formats.cc, classes 67 to 70
void add_config_metadata(MetadataList& list);    // metadata_config.cc, class 71

}  // namespace subbyte::conformance
