#pragma once
// The small files beside the weights of a model, in JSON: config.json, generation_config.json, what
// belongs to the tokenizer. Each is opened when it is first asked for, and once, whoever asks. A
// container that holds the same in another form puts it in under the names of the files.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "json/strict_json.h"

namespace subbyte {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kGenerationFile = "generation_config.json";

struct SideFile {
  json::Value value;
  std::string where;  // "MODEL/config.json", or whose words, for messages

  /// A view of `value`; code json.type when it is no object.
  Result<json::Object> object() const { return json::Object::of(value, where); }
};

/// Copies share what was read. Threads may use them at the same time.
class SideFiles {
 public:
  static constexpr uint64_t kMaxBytes = 16 << 20;  // of one

  /// No files.
  SideFiles();
  /// Those in a directory; "" is the working one, as in the names of files.
  SideFiles(std::filesystem::path directory);  // NOLINT: a directory stands for its files

  /// Gives a file this content, or this error, whatever lies in the directory.
  void put(std::string_view name, Result<SideFile> file);

  /// The same of a file that is not small, such as tokenizer.json, as a text that is made each time
  /// that it is asked for.
  using MakeText = std::function<Result<std::string>()>;
  void put_text(std::string_view name, MakeText make);
  /// nullopt where none was put in. Codes: those of what was.
  Result<std::optional<std::string>> text(std::string_view name) const;

  /// Where files lie that are not read through this; empty where they have no directory.
  const std::filesystem::path& directory() const;
  /// Says whether a file is there, be it a link that leads nowhere.
  bool has(std::string_view name) const;
  /// Reads a file of at most kMaxBytes. Codes: those of json::parse_file, file.not_found
  /// without any.
  Result<SideFile> read(std::string_view name) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace subbyte
