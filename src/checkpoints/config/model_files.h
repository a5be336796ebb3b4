#pragma once
// The small files of a model, and what each means here (model_files.def).

#include <filesystem>

#include "base/status.h"
#include "json/side_files.h"

namespace subbyte {

/// Those of a directory, of a model file of OrinMLLM, or what the metadata of a GGUF file say.
/// config.json is in the words of transformers, whatever says it: the header of a model file, and
/// OpenAI's own config.json, name no type of model, and get as their model_type the container,
/// "ak42", "ak47", "ak48" or "openai".
/// Of a lone safetensors file it is the error model.not_found.
class ModelFiles : public SideFiles {
 public:
  ModelFiles(const std::filesystem::path& model);  // NOLINT: a model stands for its files

  /// The model as it was named: a directory or a file.
  const std::filesystem::path& path() const { return path_; }
  /// Codes: json.*, file.*, orin.*, model.not_found.
  Result<SideFile> config() const { return read(kConfigFile); }
  /// Files that say how weights are stored: those of the directory that has these. Beside a model
  /// file nothing says it.
  const SideFiles& beside_weights() const { return beside_weights_; }

  /// Code of the config of a GGUF file until who knows families puts it in (models/gguf_model.h).
  static constexpr const char* kUnreadConfig = "gguf.config";

 private:
  void put_gguf_files();

  std::filesystem::path path_;
  SideFiles beside_weights_;
};

/// Says whether a file is a whole model: one of OrinMLLM, or GGUF.
bool is_model_file(const std::filesystem::path& path);

/// Where the other files of a model lie, such as tokenizer.json: in the directory, or beside the
/// file; those of a GGUF file are inside of it. OpenAI's own directory has none; published, it lies
/// in the one that has them.
std::filesystem::path model_directory(const std::filesystem::path& model);

/// Says whether the config.json of a directory is that of OpenAI's own files of gpt-oss.
bool is_openai_directory(const SideFiles& directory);

/// Refuses files that would change the model for the reference and are not computed. Code
/// model.adapter.
Status check_model_files(const std::filesystem::path& directory);

/// Says what to do where a model has no tokenizer.json. Code tokenizer.missing.
Status check_tokenizer_file(const SideFiles& files);

}  // namespace subbyte
