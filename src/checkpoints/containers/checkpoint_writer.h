#pragma once
// The weights of a model directory: model.safetensors, or shards with an index.

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/leftover.h"
#include "checkpoints/containers/safetensors.h"

namespace subbyte {

using ByteProgress = std::function<void(uint64_t done, uint64_t total)>;

/// Tensors that are made together, such as those of one linear layer. A shard has all of them.
using TensorGroup = std::vector<SafetensorsWriter::Declaration>;

/// Takes the next bytes of tensor `index` of the group that is being written.
using PutBytes = std::function<Status(std::size_t index, std::span<const std::byte> bytes)>;

/// Puts all bytes of the tensors of one group, in any order and in as many pieces as it likes.
using WriteGroup = std::function<Status(std::size_t group, const PutBytes& put)>;

/// Names of the files of a checkpoint, and what their headers say besides.
struct CheckpointFiles {
  std::string stem = "model";                   // "model.safetensors"
  std::map<std::string, std::string> metadata;  // of every file, beside {"format": "pt"}
  /// Key and value for each group, which the file that has the group says, too; empty: none do. An
  /// empty key is left out.
  std::vector<std::pair<std::string, std::string>> group_metadata;
};

/// Cuts `groups`, which are in the order of the model, into shards of at most `shard_bytes` (a
/// larger group has a shard of its own) and asks for one group after the other. Nothing but what is
/// being put is in memory. One shard is model.safetensors, several have
/// model.safetensors.index.json. Shards that are there already (OutputDirectory::resume) are kept
/// when header and length are those that they would get, else made anew. Codes: file.no_space
/// before any of them is written, those of SafetensorsWriter and of `write`.
Status write_checkpoint(const std::filesystem::path& directory,
                        const std::vector<TensorGroup>& groups, uint64_t shard_bytes,
                        const WriteGroup& write, const ByteProgress& progress = nullptr,
                        const CheckpointFiles& files = {});

/// Bytes of all tensors.
uint64_t count_bytes(std::span<const SafetensorsWriter::Declaration> tensors);
uint64_t count_bytes(std::span<const TensorGroup> groups);

/// Writes a text file into a directory. Codes: those of OutputFile.
Status write_text(const std::filesystem::path& path, std::string_view text);

/// Copies what stands beside the weights of a model: tokenizer, chat template, generation_config,
/// README, licence and the like, not config.json; `notice` hears of what is not copied. Codes:
/// those of open_model_file (at most 256 MiB each) and of OutputFile, file.changed, and those of
/// file_error() where the directory cannot be read.
Status copy_side_files(const std::filesystem::path& from, const std::filesystem::path& to,
                       const Notice& notice = nullptr);

}  // namespace subbyte
