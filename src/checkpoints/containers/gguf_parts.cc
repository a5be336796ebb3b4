#include "checkpoints/containers/gguf_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/model_file.h"
#include "base/quote.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNo = "split.no";
constexpr std::string_view kCount = "split.count";
constexpr std::string_view kTensors = "split.tensors.count";
constexpr int64_t kMaxParts = 1024;

/// Says whether all layers of a file are among those that predict tokens further on.
bool is_draft(const GgufFile& file) {
  const GgufValue* const architecture = file.find("general.architecture");
  const std::string name(architecture == nullptr ? "" : architecture->string().value_or(""));
  const GgufValue* const drafts = file.find(name + ".nextn_predict_layers");
  const auto count = drafts == nullptr ? std::nullopt : drafts->integer();
  if (!count || *count < 1 || file.find(kCount) != nullptr) return false;
  const auto is_first = [](const GgufTensor& tensor) { return tensor.name.starts_with("blk.0."); };
  return std::ranges::none_of(file.tensors(), is_first);
}

/// What a file is that is no model, in words; empty for a model.
std::string_view other_kind(const GgufFile& file) {
  const auto text = [&](std::string_view key) -> std::string_view {
    const GgufValue* const value = file.find(key);
    return value == nullptr ? "" : value->string().value_or("");
  };
  const std::string_view type = text("general.type");
  if (type == "mmproj" || text("general.architecture") == "clip") {
    return "the part of a model that sees or hears (mmproj)";
  }
  if (is_draft(file)) return "the part of a model that drafts: multi-token prediction (MTP)";
  if (type == "adapter") return "an adapter (LoRA): merge it into its model";
  if (type == "imatrix" || file.find("imatrix.chunk_count") != nullptr) {
    return "an importance matrix (imatrix) for quantizing";
  }
  if (type == "vocab" || (file.tensors().empty() && file.find(kCount) == nullptr)) {
    return "a vocabulary without weights";
  }
  return {};
}

Result<int64_t> number_of(const GgufFile& file, std::string_view key, int64_t most) {
  const GgufValue* const value = file.find(key);
  const auto number = value == nullptr || value->is_array() ? std::nullopt : value->integer();
  if (number && *number >= 0 && *number <= most) return *number;
  return file.error("gguf.parts", key, fmt::format("a number of at most {}", most));
}

/// "NAME-00002-of-00003.gguf" with another number.
Result<fs::path> path_of_part(const fs::path& path, int64_t part, int64_t count) {
  const std::string name = path.filename().string();
  const std::string of = fmt::format("-of-{:05}.gguf", count);
  const std::size_t digits = name.size() < of.size() ? name.npos : name.size() - of.size();
  if (digits == name.npos || digits < 6 || !name.ends_with(of)) {
    return Error{"gguf.parts", fmt::format("{}: one of {} parts; expected a name that ends in "
                                           "-0000I{}, by which the others are found",
                                           path.string(), count, of)};
  }
  return path.parent_path() / fmt::format("{}{:05}{}", name.substr(0, digits - 5), part + 1, of);
}

Result<GgufFile> open_part(const fs::path& path, int64_t no, int64_t count,
                           std::vector<Error>* problems) {
  Result<MappedFile> mapped = open_model_file(path, kAnyFileSize);
  if (!mapped.ok() && mapped.error().code == "file.not_found") {
    return Error{"gguf.parts", fmt::format("{}: expected part {} of {}, found no such file",
                                           path.string(), no + 1, count)};
  }
  if (!mapped.ok()) return mapped.error();
  SUBBYTE_TRY(GgufFile file, GgufFile::of(*std::move(mapped), problems));
  SUBBYTE_TRY(const int64_t own_count, number_of(file, kCount, kMaxParts));
  SUBBYTE_TRY(const int64_t own_no, number_of(file, kNo, kMaxParts));
  if (own_count == count && own_no == no) return file;
  return Error{"gguf.parts", fmt::format("{}: expected part {} of {}, found part {} of {}",
                                         path.string(), no + 1, count, own_no + 1, own_count)};
}

/// Parts of other models may have the same number, and tensors of the same names.
Status check_origin(const GgufFile& first, const GgufFile& part) {
  SUBBYTE_TRY(const int64_t stated, number_of(first, kTensors, int64_t{1} << 31));
  SUBBYTE_TRY(const int64_t own, number_of(part, kTensors, int64_t{1} << 31));
  if (own != stated) {
    return Error{"gguf.parts",
                 fmt::format("{}: {}: expected {}, as {} has, found {}", part.path().string(),
                             kTensors, stated, first.path().filename().string(), own)};
  }
  for (const std::string_view key : {"general.architecture", "general.name"}) {
    const GgufValue* const usual = first.find(key);
    const GgufValue* const other = part.find(key);
    if (usual == nullptr || other == nullptr || usual->string() == other->string()) continue;
    return Error{"gguf.parts",
                 fmt::format("{}: {}: expected that of {}, found another one", part.path().string(),
                             key, first.path().filename().string())};
  }
  return {};
}

Status check_tensors(const std::vector<GgufFile>& parts) {
  std::set<std::string_view> names;
  int64_t count = 0;
  for (const GgufFile& part : parts) {
    SUBBYTE_CHECK(check_origin(parts.front(), part));
    for (const GgufTensor& tensor : part.tensors()) {
      ++count;
      if (names.insert(tensor.name).second) continue;
      return Error{"gguf.parts", fmt::format("{}: tensor {} is in another part, too",
                                             part.path().string(), quote_name(tensor.name))};
    }
  }
  SUBBYTE_TRY(const int64_t stated, number_of(parts.front(), kTensors, int64_t{1} << 31));
  if (stated == count) return {};
  return Error{"gguf.parts", fmt::format("{}: {}: expected the {} tensors of all parts, found {}",
                                         parts.front().path().string(), kTensors, count, stated)};
}

}  // namespace

Result<GgufModel> GgufModel::open(const fs::path& path, std::vector<Error>* problems) {
  SUBBYTE_TRY(GgufFile file, GgufFile::open(path, problems));
  if (const std::string_view kind = other_kind(file); !kind.empty()) {
    return Error{"gguf.kind", fmt::format("{}: expected a GGUF file with a model, found {}",
                                          path.string(), kind)};
  }
  std::vector<GgufFile> parts;
  int64_t count = 0;
  if (file.find(kCount) != nullptr) {
    SUBBYTE_TRY(count, number_of(file, kCount, kMaxParts));
  }
  if (count <= 1) return of(std::move(file));
  SUBBYTE_TRY(const int64_t own, number_of(file, kNo, count - 1));
  for (int64_t i = 0; i < count; ++i) {
    if (i == own) {
      parts.push_back(std::move(file));
      continue;
    }
    SUBBYTE_TRY(const fs::path other, path_of_part(path, i, count));
    SUBBYTE_TRY(GgufFile part, open_part(other, i, count, problems));
    parts.push_back(std::move(part));
  }
  const Status status = check_tensors(parts);
  if (!status.ok() && problems == nullptr) return status.error();
  if (!status.ok()) problems->push_back(status.error());
  return GgufModel(std::move(parts));
}

GgufModel GgufModel::of(GgufFile file) {
  std::vector<GgufFile> parts;
  parts.push_back(std::move(file));
  return GgufModel(std::move(parts));
}

std::string_view other_kind_of_gguf(const fs::path& path) {
  const auto file = GgufFile::open(path);
  return file.ok() ? other_kind(*file) : std::string_view();
}

const GgufTensor* GgufModel::find(std::string_view name) const {
  for (const GgufFile& part : parts_) {
    const auto found = std::ranges::find(part.tensors(), name, &GgufTensor::name);
    if (found != part.tensors().end()) return &*found;
  }
  return nullptr;
}

}  // namespace subbyte
