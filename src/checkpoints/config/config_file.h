#pragma once
// What a model says of itself: config.json of a directory, or what the header of a model file of
// OrinMLLM or OpenAI's config.json say, in the words of transformers' config.json. These two name
// no type of model: their model_type is the container, "ak42", "ak47", "ak48" or "openai".

#include <filesystem>
#include <string>

#include "base/status.h"
#include "json/strict_json.h"

namespace subbyte {

inline constexpr uint64_t kMaxConfigBytes = 16 << 20;

struct ConfigFile {
  json::Value value;
  std::string where;  // "MODEL/config.json" or the file, and whose words, for messages

  /// A view of `value`; code json.type when it is no object.
  Result<json::Object> object() const { return json::Object::of(value, where); }
};

/// `model` is a directory, or a file that is_orin_model() knows. Codes: json.*, file.*, orin.*.
Result<ConfigFile> read_config_file(const std::filesystem::path& model);

/// Says whether the config.json of a directory is that of OpenAI's own files of gpt-oss.
bool is_openai_directory(const std::filesystem::path& directory);

/// Where the other files of a model lie, such as tokenizer.json: in the directory, or beside the
/// file. OpenAI's own directory has none; published, it lies in the one that has them.
std::filesystem::path model_directory(const std::filesystem::path& model);

}  // namespace subbyte
