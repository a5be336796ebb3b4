#include "checkpoints/containers/checkpoint_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/file_error.h"
#include "base/free_space.h"
#include "base/model_file.h"
#include "base/output_file.h"
#include "base/quote.h"
#include "base/small_letters.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Declaration = SafetensorsWriter::Declaration;

constexpr uint64_t kMaxSideFileBytes = uint64_t{256} << 20;      // what a tokenizer.json may have
constexpr const char* kTemplates = "additional_chat_templates";  // a folder
constexpr std::array kSideFiles = {"tokenizer.json",
                                   "tokenizer_config.json",
                                   "tokenizer.model",
                                   "vocab.json",
                                   "merges.txt",
                                   "added_tokens.json",
                                   "special_tokens_map.json",
                                   "generation_config.json",
                                   "chat_template.json",
                                   "chat_template.jinja",
                                   "preprocessor_config.json",  // of a wrapper's other inputs
                                   "processor_config.json",
                                   "video_preprocessor_config.json",
                                   "README.md",
                                   "LICENSE",
                                   "LICENSE.txt",
                                   "LICENSE.md"};
/// What the names of other texts about a model, which go with it, begin with, in small letters.
constexpr std::array<std::string_view, 7> kTexts = {
    "readme", "license", "licence", "copying", "notice", "use_policy", "usage_policy"};
/// Weights, and what says how they are stored: these are written anew.
constexpr std::array<std::string_view, 10> kWeightEndings = {
    ".safetensors", ".safetensors.index.json",
    ".bin",         ".bin.index.json",
    ".pt",          ".pth",
    ".gguf",        ".ak42",
    ".ak47",        ".ak48"};
constexpr std::array<std::string_view, 4> kWrittenAnew = {
    "config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json"};

/// Groups [begin, end).
struct Shard {
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<Shard> cut(const std::vector<TensorGroup>& groups, uint64_t shard_bytes) {
  std::vector<Shard> shards;
  uint64_t used = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const uint64_t size = count_bytes(groups[i]);
    if (shards.empty() || used + size > shard_bytes) {
      shards.push_back({i, i});
      used = 0;
    }
    shards.back().end = i + 1;
    used += size;
  }
  return shards;
}

std::string shard_name(std::string_view stem, std::size_t index, std::size_t count) {
  if (count == 1) return fmt::format("{}.safetensors", stem);
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, index + 1, count);
}

/// Metadata of one file. "pt" is what readers of other software look for.
std::map<std::string, std::string> metadata_of(const Shard& shard, const CheckpointFiles& files) {
  std::map<std::string, std::string> metadata = files.metadata;
  metadata.emplace("format", "pt");
  if (files.group_metadata.empty()) return metadata;
  for (std::size_t g = shard.begin; g < shard.end; ++g) {
    if (!files.group_metadata[g].first.empty()) metadata.insert(files.group_metadata[g]);
  }
  return metadata;
}

Status write_index(const fs::path& directory, const std::vector<TensorGroup>& groups,
                   const std::vector<Shard>& shards, std::string_view stem) {
  std::map<std::string, std::string> names;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (std::size_t g = shards[i].begin; g < shards[i].end; ++g) {
      for (const Declaration& tensor : groups[g]) {
        names[tensor.name] = shard_name(stem, i, shards.size());
      }
    }
  }
  const uint64_t total = count_bytes(groups);
  const json::Value index = {{"metadata", {{"total_size", total}}},
                             {"weight_map", JsonMaker::object({names.begin(), names.end()})}};
  return write_text(directory / fmt::format("{}.safetensors.index.json", stem),
                    json::to_text(index, 2) + "\n");
}

using Written = std::function<void(std::size_t bytes)>;

std::vector<Declaration> tensors_of(const Shard& shard, const std::vector<TensorGroup>& groups) {
  std::vector<Declaration> tensors;
  for (std::size_t g = shard.begin; g < shard.end; ++g) {
    tensors.insert(tensors.end(), groups[g].begin(), groups[g].end());
  }
  return tensors;
}

/// Of each shard whether it is there already and whole; what is there and is not is removed.
Result<std::vector<bool>> find_kept(const fs::path& directory, const std::vector<Shard>& shards,
                                    const std::vector<TensorGroup>& groups,
                                    const CheckpointFiles& files) {
  std::vector<bool> kept;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const fs::path path = directory / shard_name(files.stem, i, shards.size());
    kept.push_back(false);
    if (!is_there(path)) continue;
    SUBBYTE_TRY(const bool whole, SafetensorsWriter::is_whole(path, tensors_of(shards[i], groups),
                                                              metadata_of(shards[i], files)));
    kept.back() = whole;
    if (!whole) remove_output(path);
  }
  return kept;
}

Status write_shard(const fs::path& path, const std::vector<TensorGroup>& groups, const Shard& shard,
                   const CheckpointFiles& files, const WriteGroup& write, const Written& written) {
  SUBBYTE_TRY(
      SafetensorsWriter writer,
      SafetensorsWriter::create(path, false, tensors_of(shard, groups), metadata_of(shard, files)));
  std::map<std::string_view, const TensorEntry*> entries;
  for (const TensorEntry& entry : writer.layout()) entries[entry.name] = &entry;
  for (std::size_t g = shard.begin; g < shard.end; ++g) {
    std::vector<uint64_t> offsets(groups[g].size());
    const PutBytes put = [&](std::size_t index, std::span<const std::byte> bytes) -> Status {
      const TensorEntry& entry = *entries.at(groups[g][index].name);
      SUBBYTE_CHECK(writer.write(entry, offsets[index], bytes));
      offsets[index] += bytes.size();
      written(bytes.size());
      return {};
    };
    SUBBYTE_CHECK(write(g, put));
  }
  return writer.commit();
}

Result<std::vector<std::string>> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code failure;
  fs::directory_iterator at(directory.empty() ? "." : directory, failure);
  for (const fs::directory_iterator end; !failure && at != end; at.increment(failure)) {
    names.push_back(at->path().filename().native());
  }
  if (failure) return file_error(failure.value(), directory, "read the directory");
  std::ranges::sort(names);
  return names;
}

/// `has` is how a name begins or ends.
template <typename List, typename Has>
bool has_one_of(const List& list, std::string_view name, Has has) {
  return std::ranges::any_of(list, [&](std::string_view part) { return has(name, part); });
}

bool begins_with(std::string_view name, std::string_view part) {
  return name.starts_with(part);
}

bool ends_with(std::string_view name, std::string_view part) {
  return name.ends_with(part);
}

/// Whether somebody may miss a file that is not copied.
bool belongs_to_model(std::string_view name) {
  return !name.starts_with('.') && name != kTemplates &&
         !has_one_of(kWeightEndings, name, ends_with) &&
         std::ranges::find(kWrittenAnew, name) == kWrittenAnew.end();
}

std::string describe_left(const fs::path& from, const std::vector<std::string>& left) {
  constexpr std::size_t kMost = 8;
  std::string text = fmt::format("{}: not copied: ", from.string());
  for (std::size_t i = 0; i < std::min(left.size(), kMost); ++i) {
    text += (i > 0 ? ", " : "") + quote_name(left[i]);
  }
  if (left.size() > kMost) text += fmt::format(" and {} more", left.size() - kMost);
  return text;
}

Status copy_side_file(const fs::path& from, const fs::path& to) {
  SUBBYTE_TRY(const MappedFile file, open_model_file(from, kMaxSideFileBytes));
  const auto bytes = file.bytes();
  const Status written =
      write_text(to, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  SUBBYTE_CHECK(file.verify_unchanged());  // a write from what was cut off fails, too
  return written;
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

uint64_t count_bytes(std::span<const TensorGroup> groups) {
  uint64_t total = 0;
  for (const TensorGroup& group : groups) total += count_bytes(group);
  return total;
}

Status write_text(const fs::path& path, std::string_view text) {
  SUBBYTE_TRY(OutputFile file, OutputFile::create(path, false));
  SUBBYTE_CHECK(file.write(text));
  return file.commit();
}

Status write_checkpoint(const fs::path& directory, const std::vector<TensorGroup>& groups,
                        uint64_t shard_bytes, const WriteGroup& write, const ByteProgress& progress,
                        const CheckpointFiles& files) {
  const std::vector<Shard> shards = cut(groups, shard_bytes);
  SUBBYTE_TRY(const std::vector<bool> kept, find_kept(directory, shards, groups, files));
  const uint64_t total = count_bytes(groups);
  uint64_t done = 0;
  const Written written = [&](std::size_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  };
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (kept[i]) written(count_bytes(tensors_of(shards[i], groups)));
  }
  SUBBYTE_CHECK(check_free_space(directory, total - done));
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const fs::path path = directory / shard_name(files.stem, i, shards.size());
    if (!kept[i]) SUBBYTE_CHECK(write_shard(path, groups, shards[i], files, write, written));
  }
  if (shards.size() == 1) return {};
  return write_index(directory, groups, shards, files.stem);
}

Status copy_side_files(const fs::path& from, const fs::path& to, const Notice& notice) {
  if (notice && is_there(from / kTemplates)) {
    notice((from / kTemplates).string() +
           ": its chat templates are not copied; copy the folder for them");
  }
  SUBBYTE_TRY(const std::vector<std::string> names, names_in(from));
  std::vector<std::string> left;
  for (const std::string& name : names) {
    const bool is_known = std::ranges::find(kSideFiles, name) != kSideFiles.end();
    const auto is_directory = is_folder(from / name);
    const bool is_text = has_one_of(kTexts, small_letters(name), begins_with) &&
                         !(is_directory.ok() && *is_directory);
    // What no one computes with stops nothing: a text that cannot be read is named.
    if (is_known || (is_text && open_model_file(from / name, kMaxSideFileBytes).ok())) {
      SUBBYTE_CHECK(copy_side_file(from / name, to / name));
    } else if (is_text || belongs_to_model(name)) {
      left.push_back(name);
    }
  }
  // Beside a model file lies whatever its user has there.
  const bool is_model = std::ranges::find(names, "config.json") != names.end();
  if (notice && is_model && !left.empty()) notice(describe_left(from, left));
  return {};
}

}  // namespace subbyte
