#pragma once
// The weights of a model directory: model.safetensors, or shards with an index.

#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoints/safetensors.h"

namespace subbyte {

using ByteProgress = std::function<void(uint64_t done, uint64_t total)>;

/// Appends bytes to the tensor that is being written.
using AppendBytes = std::function<Status(std::span<const std::byte>)>;

/// Writes all bytes of one tensor, in as many pieces as it likes.
using WriteTensor = std::function<Status(const TensorEntry& tensor, const AppendBytes& append)>;

/// Cuts `tensors`, which are in the order of the model, into shards of at most `shard_bytes`
/// (a larger tensor has a shard of its own) and asks for the tensors of one shard after the other,
/// in the order of the file. One shard is model.safetensors, several have
/// model.safetensors.index.json.
/// Codes: those of SafetensorsWriter and of `write`.
Status write_checkpoint(const std::filesystem::path& directory,
                        const std::vector<SafetensorsWriter::Declaration>& tensors,
                        uint64_t shard_bytes, const WriteTensor& write,
                        const ByteProgress& progress = nullptr);

/// Bytes of all tensors.
uint64_t count_bytes(std::span<const SafetensorsWriter::Declaration> tensors);

/// Writes a text file into a directory. Codes: those of OutputFile.
Status write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace subbyte
