#pragma once
// The tensors of a model by name, from one safetensors file, from shards, or from a model file of
// OrinMLLM. Those of a directory with OpenAI's names have the names of Hugging Face
// (checkpoints/containers/openai_names.h).

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/containers/gguf_parts.h"
#include "checkpoints/containers/openai_names.h"

namespace subbyte {

class TensorSource {
 public:
  /// Opens `path`: a .safetensors file, a model file of OrinMLLM
  /// (checkpoints/containers/orin_model.h, codes orin.*), or a directory with
  /// model.safetensors.index.json or model.safetensors. Every shard named in the index is opened
  /// and must hold exactly the tensors that the index says; shard names must be plain file names
  /// inside the directory, and are opened as all files of a model (base/model_file.h). The codes of
  /// the index begin with "index." and are listed in docs/safetensors.md. With `problems`, what is
  /// wrong with single shards, and where index and shards disagree, is added there and the rest is
  /// opened; of a tensor in two shards the first counts. Besides, the codes of
  /// with_hugging_face_names() and without_unsloth_names(), and model.two_checkpoints for shards
  /// beside a whole file.
  static Result<TensorSource> open(const std::filesystem::path& path,
                                   std::vector<Error>* problems = nullptr);
  /// The same of a directory that `subbyte pack` wrote, whose files are called "packed" for
  /// "model"; under the names that they have there.
  static Result<TensorSource> open_packed(const std::filesystem::path& directory);
  /// The same of a model in GGUF (checkpoints/containers/gguf_parts.h), under the names that it
  /// has there.
  static Result<TensorSource> open_gguf(const GgufModel& model);
  /// -exp(w) of tensors that a container has in this form, by their names.
  using Rates = std::map<std::string, std::vector<float>, std::less<>>;
  /// The same files with other tensors: parts of these, by other names.
  TensorSource with(TensorMap tensors, Rates rates = {}) const;
  /// No tensors at all.
  static TensorSource empty() { return {}; }

  /// nullptr when there is no such tensor.
  const FileTensor* find(std::string_view name) const;

  /// -exp(w) of a tensor as the container has it, whose logarithm is rounded; empty: it has w.
  std::span<const float> rates(std::string_view name) const;

  /// All tensors by name.
  const TensorMap& tensors() const { return tensors_; }
  const std::vector<std::filesystem::path>& files() const { return files_; }
  /// The metadata in the header of each of files(); empty for files that are no safetensors.
  const std::vector<std::map<std::string, std::string>>& metadata() const { return metadata_; }
  /// MappedFile::verify_unchanged() of every file that holds a tensor.
  Status verify_unchanged() const;
  uint64_t total_bytes() const { return total_bytes_; }  // of the tensors, without headers
  /// Number that the index states for total_bytes(); nullopt without an index, or when it states
  /// none.
  std::optional<uint64_t> stated_bytes() const { return stated_bytes_; }

  /// Tensors in memory, whose bytes must outlive this; by their names.
  static TensorSource of(TensorMap tensors);

 private:
  TensorSource() = default;
  static Result<TensorSource> open_files(const std::filesystem::path& path,
                                         std::vector<Error>* problems);
  static Result<TensorSource> open_directory(const std::filesystem::path& directory,
                                             std::string_view stem, std::vector<Error>* problems);
  void add(const SafetensorsFile& file);
  Result<TensorSource> counted() &&;
  /// To the names of transformers, where other software has its own.
  Status rename_tensors();

  TensorMap tensors_;
  Rates rates_;
  uint64_t total_bytes_ = 0;  // loading asks for every module, of which there may be many
  std::vector<std::filesystem::path> files_;
  std::vector<std::map<std::string, std::string>> metadata_;
  std::optional<uint64_t> stated_bytes_;
};

}  // namespace subbyte
