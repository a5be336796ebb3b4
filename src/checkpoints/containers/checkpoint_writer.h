#pragma once
// The files of a checkpoint that is written. What is to be written is a list of steps, each with
// some tensors and a function that makes their bytes. A container lays the tensors of all steps out
// in files, and write_checkpoint() fills these:
//
//   steps -> lay_out_shards(), lay_out_orin(), lay_out_gguf() -> WeightFiles -> write_checkpoint()

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/leftover.h"
#include "checkpoints/containers/safetensors.h"

namespace subbyte {

using ByteProgress = std::function<void(uint64_t done, uint64_t total)>;

/// Takes the next bytes of tensor `index` of the step that is made.
using PutBytes = std::function<Status(std::size_t index, std::span<const std::byte> bytes)>;

/// Tensors that are made together, such as those of one linear layer. A file has all of them.
struct WriteStep {
  std::vector<TensorDeclaration> tensors;
  /// Puts all bytes of `tensors`, in any order and in as many pieces as it likes.
  std::function<Status(const PutBytes& put)> make;
  /// Tensors that make() reads: their files must be unchanged before it, and get their pages back.
  std::vector<const FileTensor*> sources = {};
  /// A line of metadata for the file that has the tensors, unless the key is empty.
  std::pair<std::string, std::string> metadata = {};
};

/// The tensor itself, or where its rows or columns lie in another order a copy of its numbers in
/// its own.
FileTensor in_order(const FileTensor& tensor);

/// Keeps a tensor as it is.
WriteStep keep(const FileTensor& tensor);

/// A file of weights: `head`, then the data of `tensors`, whose offsets count from there.
struct WeightFile {
  std::string name;
  std::string head;
  std::vector<TensorEntry> tensors;  // in the order of the file
  std::size_t begin = 0;             // the steps [begin, end) make them
  std::size_t end = 0;
  uint64_t padding = 0;  // zeros after the last tensor

  uint64_t data_bytes() const { return (tensors.empty() ? 0 : tensors.back().end) + padding; }
};

struct TextFile {
  std::string name;
  std::string text;
};

/// The files that a container makes of steps.
struct WeightFiles {
  std::vector<WeightFile> files;
  std::vector<TextFile> texts = {};  // beside them
};

/// "STEM.safetensors", or shards of at most `shard_bytes` (a larger step has one of its own) with
/// an index; steps are in the order of the model. Codes: those of lay_out_safetensors().
Result<WeightFiles> lay_out_shards(std::span<const WriteStep> steps, uint64_t shard_bytes,
                                   std::string_view stem = "model");

/// Makes one step after the other, and writes its bytes where they belong: nothing but what is
/// being put is in memory, and the system reads what the next step needs meanwhile. Files that are
/// there already (OutputDirectory::resume) are kept when head and length are those that they would
/// get, else made anew. Codes: file.no_space before any is written, safetensors.incomplete for a
/// step that puts more or fewer bytes than it has declared, those of OutputFile, of
/// MappedFile::verify_unchanged() and of the steps.
Status write_checkpoint(const std::filesystem::path& directory, const WeightFiles& weights,
                        std::span<const WriteStep> steps, const ByteProgress& progress = nullptr);

/// Bytes of all tensors.
uint64_t count_bytes(std::span<const WriteStep> steps);

/// Files that say how weights are stored, config.json first.
inline constexpr std::string_view kConfigFiles[] = {"config.json", "quantize_config.json",
                                                    "quant_config.json", "hf_quant_config.json"};

/// Writes a text file into a directory. Codes: those of OutputFile.
Status write_text(const std::filesystem::path& path, std::string_view text);

/// Copies what stands beside the weights of a model: tokenizer, chat template, generation_config,
/// README, licence and the like, not kConfigFiles; `notice` hears of what is not copied. Codes:
/// those of open_model_file (at most 256 MiB each) and of OutputFile, file.changed, and those of
/// file_error() where the directory cannot be read.
Status copy_side_files(const std::filesystem::path& from, const std::filesystem::path& to,
                       const Notice& notice = nullptr);

}  // namespace subbyte
