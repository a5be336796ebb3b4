#include "checkpoints/containers/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/model_file.h"
#include "base/quote.h"
#include "checkpoints/containers/openai_names.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/containers/safetensors_codes.h"
#include "checkpoints/containers/unsloth_names.h"
#include "json/shown_json.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
namespace codes = index_codes;

constexpr std::string_view kStem = "model";
constexpr std::string_view kPackedStem = "packed";
constexpr uint64_t kMaxIndexBytes = 32 * 1024 * 1024;  // the largest known is under 10 MB
constexpr std::size_t kMaxShards = 10'000;

/// Names of the one file with weights, and of the index of several.
struct FileNames {
  explicit FileNames(std::string_view stem)
      : single(fmt::format("{}.safetensors", stem)), index(single + ".index.json") {}

  std::string single;
  std::string index;
};

/// Where tensors are said to be: name of the tensor -> name of the shard, which stands elsewhere.
using WeightMap = std::map<std::string, std::string_view, std::less<>>;

/// Why a name in an index is not the name of a shard, empty when it is one.
std::string_view name_problem(std::string_view name) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  if (name.empty()) return "an empty name";
  if (name.size() > 255) return "a name of more than 255 bytes";
  if (name.find_first_of("/\\") != std::string_view::npos) return "a path";
  if (std::ranges::any_of(name, is_control)) return "control characters";
  if (!name.ends_with(".safetensors")) return "another ending";
  return {};
}

Error rename_code(Error error) {
  static constexpr std::pair<std::string_view, std::string_view> kCodes[] = {
      {"json.syntax", codes::kJson},
      {"json.utf8", codes::kUtf8},
      {"json.duplicate_key", codes::kDuplicateKey},
      {"json.depth", codes::kDepth},
      {"json.too_large", codes::kTooLarge},
      {"file.link_outside", codes::kLinkOutside},
  };
  for (const auto& [from, to] : kCodes) {
    if (error.code == from) error.code = to;
  }
  return error;
}

/// metadata.total_size. "metadata" is optional; the size is checked for its type alone, since
/// writers disagree on whether tensors that share memory count twice. Some write it as a float.
Result<std::optional<uint64_t>> read_total_size(const json::Object& root) {
  const json::Value* metadata = root.find("metadata");
  if (metadata == nullptr || metadata->is_null()) return std::optional<uint64_t>();
  if (!metadata->is_object()) return root.error(codes::kMetadata, "metadata", "an object");
  SUBBYTE_TRY(const json::Object object, json::Object::of(*metadata, root.where() + ": metadata"));
  const auto size = object.integer("total_size", 0, INT64_MAX);
  if (!size.ok()) return object.error(codes::kTotalSize, "total_size", "a number of bytes");
  if (!*size) return std::optional<uint64_t>();
  return std::optional(static_cast<uint64_t>(**size));
}

/// What the index says. Its map is taken while it is parsed (json::Stream): many short names of
/// tensors would take more than four times the file.
class Index {
 public:
  explicit Index(const fs::path& path) : path_(path.native()) {}
  Index(const Index&) = delete;  // shard_of views shards_
  Index& operator=(const Index&) = delete;

  Status read();

  const WeightMap& shard_of() const { return shard_of_; }
  std::optional<uint64_t> total_size() const { return total_size_; }

 private:
  void take(const std::string* tensor, const json::Value& shard);
  Status add(const std::string& tensor, const json::Value& shard);
  Error refuse(std::string_view code, const std::string& problem) const {
    return {code, fmt::format("{}: {}", path_, problem)};
  }

  std::string path_;
  std::set<std::string, std::less<>> shards_;
  WeightMap shard_of_;
  Status status_;  // of the map
  std::optional<uint64_t> total_size_;
};

Status Index::read() {
  const json::Stream map[] = {
      {{"weight_map"},
       [this](const std::string* tensor, const auto& shard) { take(tensor, shard); }}};
  Result<json::Value> text = json::parse_file(path_, kMaxIndexBytes, map);
  if (!text.ok()) return rename_code(std::move(text).error());
  const Result<json::Object> root = json::Object::of(*text, path_);
  if (!root.ok()) return Error{codes::kNotObject, root.error().message};
  SUBBYTE_TRY(total_size_, read_total_size(*root));
  SUBBYTE_CHECK(status_);
  if (!shard_of_.empty()) return {};
  return root->error(codes::kWeightMap, "weight_map", "an object that is not empty");
}

void Index::take(const std::string* tensor, const json::Value& shard) {
  // An array stays without elements, which is refused.
  if (tensor != nullptr && status_.ok()) status_ = add(*tensor, shard);
}

Status Index::add(const std::string& tensor, const json::Value& shard) {
  if (!shard.is_string()) {
    return refuse(codes::kShardType,
                  fmt::format("tensor {}: expected the name of a shard, found {}", quote(tensor),
                              json::describe(shard)));
  }
  const std::string& name = shard.string();
  if (const std::string_view problem = name_problem(name); !problem.empty()) {
    return refuse(codes::kShardName,
                  fmt::format("tensor {}: expected the plain name of a .safetensors file, found "
                              "{} in {}",
                              quote(tensor), problem, quote(name)));
  }
  const auto& kept = *shards_.insert(name).first;
  if (shards_.size() > kMaxShards) {
    return refuse(codes::kTooManyShards,
                  fmt::format("expected at most {} shards, found more", kMaxShards));
  }
  if (!shard_of_.emplace(tensor, kept).second) {
    return refuse(codes::kDuplicateKey,
                  fmt::format("the key {} appears twice in one object", quote(tensor)));
  }
  return {};
}

/// The dtype of a ggml type that has one number in a block.
DType dtype_of_ggml(uint32_t type) {
  constexpr std::pair<uint32_t, DType> kPlain[] = {
      {0, DType::kF32},  {1, DType::kF16},  {24, DType::kI8},  {25, DType::kI16},
      {26, DType::kI32}, {27, DType::kI64}, {28, DType::kF64}, {30, DType::kBF16}};
  const auto* const found = std::ranges::find(kPlain, type, &std::pair<uint32_t, DType>::first);
  return found == std::end(kPlain) ? DType::kBlocks : found->second;
}

using Shards = std::map<std::string, SafetensorsFile, std::less<>>;

/// An error, or one more of `problems` where those are collected.
Status refuse_or_collect(Error error, std::vector<Error>* problems) {
  if (problems == nullptr) return error;
  problems->push_back(std::move(error));
  return {};
}

/// The index and the shards must name the same tensors in the same places. What the index says of
/// shards that are not in `shards` is not looked at.
Status check_shards(const WeightMap& shard_of, const Shards& shards, const fs::path& index,
                    std::vector<Error>* problems) {
  const auto refuse = [&](std::string_view code, std::string_view tensor,
                          const std::string& problem) {
    return refuse_or_collect(
        Error{code, fmt::format("{}: tensor {}: {}", index.native(), quote(tensor), problem)},
        problems);
  };
  std::map<std::string_view, std::string_view> found_in;
  for (const auto& [shard, file] : shards) {
    for (const TensorEntry& tensor : file.header().tensors) {
      const auto [first, added] = found_in.emplace(tensor.name, shard);
      if (!added) {
        SUBBYTE_CHECK(refuse(
            codes::kTensorTwice, tensor.name,
            fmt::format("expected it once, found it in {} and in {}", first->second, shard)));
      } else if (!shard_of.contains(tensor.name)) {
        SUBBYTE_CHECK(refuse(codes::kTensorUnlisted, tensor.name,
                             fmt::format("expected it in the index, found it only in {}", shard)));
      }
    }
  }
  for (const auto& [tensor, shard] : shard_of) {
    if (!shards.contains(shard)) continue;
    const auto found = found_in.find(tensor);
    const std::string_view where = found == found_in.end() ? "no shard" : found->second;
    if (where != shard) {
      SUBBYTE_CHECK(refuse(codes::kTensorMissing, tensor,
                           fmt::format("expected it in {}, found it in {}", shard, where)));
    }
  }
  return {};
}

Result<SafetensorsFile> open_inside(const fs::path& path) {
  Result<MappedFile> file = open_model_file(path, kAnyFileSize);
  if (!file.ok()) return rename_code(std::move(file).error());
  return SafetensorsFile::of(std::move(file).value());
}

/// `tensor` is one that the index says is in the shard.
Result<SafetensorsFile> open_shard(const fs::path& directory, std::string_view shard,
                                   std::string_view tensor) {
  Result<SafetensorsFile> file = open_inside(directory / shard);
  if (file.ok() || file.error().code != "file.not_found") return file;
  return Error{codes::kShardMissing, fmt::format("{} (the index names it for tensor {})",
                                                 file.error().message, quote(tensor))};
}

Result<Shards> open_shards(const WeightMap& shard_of, const fs::path& directory,
                           std::vector<Error>* problems) {
  Shards shards;
  std::set<std::string_view> tried;
  for (const auto& [tensor, shard] : shard_of) {
    if (!tried.insert(shard).second) continue;
    Result<SafetensorsFile> file = open_shard(directory, shard, tensor);
    if (file.ok()) {
      shards.emplace(shard, *std::move(file));
    } else {
      SUBBYTE_CHECK(refuse_or_collect(std::move(file).error(), problems));
    }
  }
  return shards;
}

/// Beside a whole file an index is another checkpoint where all of its shards are there and none is
/// that file: which of the two is meant, readers do not agree on. An index whose shards are gone is
/// what is left of an earlier state.
Status refuse_second_checkpoint(const fs::path& directory, const FileNames& names) {
  std::error_code unknown;
  if (!fs::is_regular_file(directory / names.single, unknown)) return {};  // opening says so
  if (!is_there(directory / names.index)) return {};
  Index index(directory / names.index);
  if (!index.read().ok()) return {};
  std::set<std::string_view> shards;
  for (const auto& [tensor, shard] : index.shard_of()) shards.insert(shard);
  const auto is_here = [&](std::string_view shard) { return is_there(directory / shard); };
  if (shards.contains(names.single) || !std::ranges::all_of(shards, is_here)) return {};
  return Error{
      "model.two_checkpoints",
      fmt::format("{}: expected one checkpoint, found {} and all that {} names ({} files); "
                  "move one of them away",
                  directory.native(), names.single, names.index, shards.size())};
}

Error no_checkpoint(const fs::path& directory, const FileNames& names) {
  const FileNames packed(kPackedStem);
  if (names.single != packed.single &&
      (is_there(directory / packed.single) || is_there(directory / packed.index))) {
    return {codes::kNoCheckpoint,
            fmt::format("{}: expected {} or {}, found weights that are packed for other software; "
                        "`subbyte unpack` reads them back",
                        directory.native(), names.single, names.index)};
  }
  for (const char* const own : {"consolidated.safetensors", "consolidated.00.pth"}) {
    if (!is_there(directory / own)) continue;
    return {
        codes::kNoCheckpoint,
        fmt::format("{}: expected {} or {}, found {}: the weights as their makers' own software "
                    "has them, which is not read; take the files for transformers of the same "
                    "model",
                    directory.native(), names.single, names.index, own)};
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const fs::path ending = entry.path().extension();
    if (ending == ".bin" || ending == ".pt" || ending == ".pth" || ending == ".ckpt") {
      return {codes::kPickleOnly,
              fmt::format("{}: expected {} or {}, found {}: pickle files can run code and are not "
                          "supported, convert them to safetensors",
                          directory.native(), names.single, names.index,
                          quote(entry.path().filename().native()))};
    }
  }
  const bool wants_packed = names.single == packed.single;
  return {codes::kNoCheckpoint,
          fmt::format("{}: expected {} or {}, found neither{}", directory.native(), names.single,
                      names.index, wants_packed ? "; `subbyte pack` writes such directories" : "")};
}

/// The tensors of a model file of OrinMLLM, under the names that Hugging Face gives them.
Result<std::vector<FileTensor>> open_orin_model(const fs::path& path) {
  SUBBYTE_TRY(MappedFile mapped, MappedFile::open(path));
  SUBBYTE_TRY(const OrinModel model,
              read_orin_model(mapped.bytes(), mapped.bytes().size(), path.native()));
  const auto file = std::make_shared<const MappedFile>(std::move(mapped));
  const auto data = file->bytes().subspan(kOrinHeaderBytes);
  std::vector<FileTensor> tensors;
  for (const TensorEntry& entry : model.tensors) {
    tensors.push_back({entry.name, entry.dtype, entry.shape,
                       data.subspan(entry.begin, entry.end - entry.begin), file});
  }
  return tensors;
}

}  // namespace

Result<TensorSource> TensorSource::open(const fs::path& path, std::vector<Error>* problems) {
  SUBBYTE_TRY(TensorSource source, open_files(path, problems));
  return std::move(source).counted();
}

Result<TensorSource> TensorSource::open_packed(const fs::path& directory) {
  SUBBYTE_TRY(TensorSource source, open_directory(directory, kPackedStem, nullptr));
  return std::move(source).counted();
}

Result<TensorSource> TensorSource::counted() && {
  // Of mappings that exist, so that the sum fits.
  for (const auto& [name, tensor] : tensors_) total_bytes_ += tensor.bytes.size();
  return std::move(*this);
}

void TensorSource::add(const SafetensorsFile& file) {
  files_.push_back(file.path());
  metadata_.push_back(file.header().metadata);
  for (const TensorEntry& entry : file.header().tensors) {
    tensors_.emplace(entry.name, file.tensor(entry));
  }
}

Result<TensorSource> TensorSource::open_files(const fs::path& path, std::vector<Error>* problems) {
  TensorSource source;
  SUBBYTE_TRY(const bool is_directory, is_folder(path));
  if (!is_directory && is_orin_model(path)) {
    SUBBYTE_TRY(const auto tensors, open_orin_model(path));
    source.files_.push_back(path);
    source.metadata_.emplace_back();
    for (const FileTensor& tensor : tensors) source.tensors_.emplace(tensor.name, tensor);
    return source;
  }
  if (!is_directory) {
    SUBBYTE_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
    source.add(file);
    return source;
  }
  SUBBYTE_TRY(source, open_directory(path, kStem, problems));
  SUBBYTE_CHECK(source.rename_tensors());
  return source;
}

Result<TensorSource> TensorSource::open_directory(const fs::path& directory, std::string_view stem,
                                                  std::vector<Error>* problems) {
  const FileNames names(stem);
  TensorSource source;
  // With both in the directory, the single file counts, as in the reference implementation.
  if (is_there(directory / names.single)) {
    const Status second = refuse_second_checkpoint(directory, names);
    if (!second.ok()) SUBBYTE_CHECK(refuse_or_collect(second.error(), problems));
    SUBBYTE_TRY(const SafetensorsFile file, open_inside(directory / names.single));
    source.add(file);
    return source;
  }
  if (!is_there(directory / names.index)) return no_checkpoint(directory, names);
  const fs::path index_file = directory / names.index;
  Index index(index_file);
  SUBBYTE_CHECK(index.read());
  SUBBYTE_TRY(const Shards shards, open_shards(index.shard_of(), directory, problems));
  SUBBYTE_CHECK(check_shards(index.shard_of(), shards, index_file, problems));
  source.stated_bytes_ = index.total_size();
  for (const auto& [name, file] : shards) source.add(file);
  return source;
}

Status TensorSource::rename_tensors() {
  if (has_openai_names(tensors_)) {
    SUBBYTE_TRY(tensors_, with_hugging_face_names(tensors_));
  } else if (has_unsloth_names(tensors_)) {
    SUBBYTE_TRY(tensors_, without_unsloth_names(tensors_));
  }
  return {};
}

const FileTensor* TensorSource::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

Status TensorSource::verify_unchanged() const {
  std::set<const MappedFile*> looked_at;
  for (const auto& [name, tensor] : tensors_) {
    if (looked_at.insert(tensor.file.get()).second) SUBBYTE_CHECK(tensor.file->verify_unchanged());
  }
  return {};
}

Result<TensorSource> TensorSource::open_gguf(const GgufModel& model) {
  TensorSource source;
  for (const GgufFile& part : model.parts()) {
    source.files_.push_back(part.path());
    source.metadata_.emplace_back();
    for (const GgufTensor& tensor : part.tensors()) {
      FileTensor found = {std::string(tensor.name), dtype_of_ggml(tensor.type), tensor.shape,
                          tensor.bytes, part.file()};
      if (found.dtype == DType::kBlocks) found.ggml_type = static_cast<int32_t>(tensor.type);
      source.tensors_.emplace(found.name, std::move(found));
    }
  }
  return std::move(source).counted();
}

std::span<const float> TensorSource::rates(std::string_view name) const {
  const auto found = rates_.find(name);
  return found == rates_.end() ? std::span<const float>() : found->second;
}

TensorSource TensorSource::with(TensorMap tensors, Rates rates) const {
  TensorSource source = of(std::move(tensors));
  source.rates_ = std::move(rates);
  source.files_ = files_;
  source.metadata_ = metadata_;
  return source;
}

TensorSource TensorSource::of(TensorMap tensors) {
  TensorSource source;
  for (const auto& [name, tensor] : tensors) source.total_bytes_ += tensor.bytes.size();
  source.tensors_ = std::move(tensors);
  return source;
}

}  // namespace subbyte
