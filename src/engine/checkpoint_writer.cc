#include "engine/checkpoint_writer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/output_file.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Declaration = SafetensorsWriter::Declaration;
using Shard = std::vector<Declaration>;

std::vector<Shard> cut(const std::vector<Declaration>& tensors, uint64_t shard_bytes) {
  std::vector<Shard> shards;
  uint64_t used = 0;
  for (const Declaration& tensor : tensors) {
    const uint64_t size = count_bytes({&tensor, 1});
    if (shards.empty() || used + size > shard_bytes) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(tensor);
    used += size;
  }
  return shards;
}

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

Status write_index(const fs::path& directory, const std::vector<Shard>& shards, uint64_t total) {
  nlohmann::json names = nlohmann::json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const Declaration& tensor : shards[i]) names[tensor.name] = shard_name(i, shards.size());
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", names}};
  return write_text(directory / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace

uint64_t count_bytes(std::span<const Declaration> tensors) {
  uint64_t total = 0;
  for (const Declaration& tensor : tensors) {
    uint64_t elements = 1;
    for (const uint64_t size : tensor.shape) elements *= size;
    total += elements * static_cast<uint64_t>(bits(tensor.dtype)) / 8;
  }
  return total;
}

Status write_text(const fs::path& path, std::string_view text) {
  SUBBYTE_TRY(OutputFile file, OutputFile::create(path, false));
  SUBBYTE_CHECK(file.write(text));
  return file.commit();
}

Status write_checkpoint(const fs::path& directory, const std::vector<Declaration>& tensors,
                        uint64_t shard_bytes, const WriteTensor& write,
                        const ByteProgress& progress) {
  const std::vector<Shard> shards = cut(tensors, shard_bytes);
  const uint64_t total = count_bytes(tensors);
  uint64_t done = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const fs::path path = directory / shard_name(i, shards.size());
    SUBBYTE_TRY(SafetensorsWriter writer,
                SafetensorsWriter::create(path, false, shards[i], {{"format", "pt"}}));
    const AppendBytes append = [&](std::span<const std::byte> bytes) -> Status {
      SUBBYTE_CHECK(writer.append(bytes));
      done += bytes.size();
      if (progress) progress(done, total);
      return {};
    };
    for (const TensorEntry& tensor : writer.layout()) SUBBYTE_CHECK(write(tensor, append));
    SUBBYTE_CHECK(writer.commit());
  }
  if (shards.size() == 1) return {};
  return write_index(directory, shards, total);
}

}  // namespace subbyte
