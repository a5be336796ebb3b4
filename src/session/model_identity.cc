#include "session/model_identity.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/file_error.h"
#include "base/model_file.h"
#include "base/sha256.h"
#include "checkpoints/containers/gguf_parts.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Digests = std::map<std::string, std::string>;

constexpr std::string_view kWeights = ".safetensors";
constexpr std::array<std::string_view, 2> kSmall = {".json", ".jinja"};
constexpr std::string_view kTemplates = "additional_chat_templates";  // a folder
constexpr std::array<std::string_view, 4> kBesideFile = {"generation_config.", "tokenizer",
                                                         "chat_template.", "special_tokens"};
constexpr std::size_t kDigestCharacters = 16;  // of 64: 2^64 models are not made by chance
// A sample of 256 KiB is read in a blink, and a matrix of another quantization or training differs
// everywhere.
constexpr std::size_t kBlocks = 64;
constexpr std::size_t kBlockBytes = 4096;
constexpr std::size_t kOtherHeaderBytes = std::size_t{1} << 20;  // of a file of OrinMLLM

/// Of a safetensors file its length and its text, of another one as much as a header may take.
std::size_t header_bytes(const fs::path& path, std::span<const std::byte> bytes) {
  uint64_t length = kOtherHeaderBytes;
  if (path.extension() == kWeights && bytes.size() >= sizeof length) {
    std::memcpy(&length, bytes.data(), sizeof length);
    length = length < bytes.size() ? length + sizeof length : bytes.size();
  }
  return static_cast<std::size_t>(std::min<uint64_t>(length, bytes.size()));
}

/// All before the first tensor.
std::size_t header_bytes(const GgufFile& file) {
  const std::span<const std::byte> bytes = file.file()->bytes();
  std::size_t header = bytes.size();
  for (const GgufTensor& tensor : file.tensors()) {
    header = std::min(header, static_cast<std::size_t>(tensor.bytes.data() - bytes.data()));
  }
  return header;
}

std::string digest_of_weights(std::span<const std::byte> bytes, std::size_t header) {
  Sha256 digest;
  const uint64_t size = bytes.size();
  digest.update(std::as_bytes(std::span(&size, 1)));
  digest.update(bytes.first(header));
  if (bytes.size() <= kBlocks * kBlockBytes) {
    digest.update(bytes);
  } else {
    const std::size_t last = bytes.size() - kBlockBytes;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      digest.update(bytes.subspan(last / (kBlocks - 1) * i, kBlockBytes));
    }
    digest.update(bytes.subspan(last));
  }
  return digest.finish().substr(0, kDigestCharacters);
}

Status add_file(const fs::path& path, bool has_weights, bool is_named_by_user, Digests& digests) {
  const Result<MappedFile> opened =
      is_named_by_user ? MappedFile::open(path) : open_model_file(path, kAnyFileSize);
  if (!opened.ok() && is_named_by_user) return opened.error();
  std::string name;
  if (path.parent_path().filename() == kTemplates) name += std::string(kTemplates) + "/";
  name += path.filename().native();
  if (!opened.ok()) {  // whoever reads it says so; of a model nobody may
    digests[std::move(name)] = std::string(opened.error().code);
    return {};
  }
  const MappedFile& file = *opened;
  digests[std::move(name)] = has_weights
                                 ? digest_of_weights(file.bytes(), header_bytes(path, file.bytes()))
                                 : sha256(file.bytes()).substr(0, kDigestCharacters);
  return file.verify_unchanged();
}

/// Those in a directory that a run may read. Beside a model that is one file there may be anything.
Result<std::set<fs::path>> files_in(const fs::path& directory, bool is_beside_file) {
  std::set<fs::path> files;
  std::error_code failure;
  for (fs::directory_iterator at(directory, failure), end; !failure && at != end;
       at.increment(failure)) {
    const std::string name = at->path().filename().native();
    const bool is_of_model =
        !is_beside_file || std::ranges::any_of(kBesideFile, [&](std::string_view begin) {
          return name.starts_with(begin);
        });
    const bool is_small = std::ranges::any_of(
        kSmall, [&](std::string_view ending) { return name.ends_with(ending); });
    const bool has_weights = !is_beside_file && name.ends_with(kWeights);
    if (has_weights || (is_small && is_of_model)) files.insert(at->path());
  }
  if (failure) return file_error(failure.value(), directory, "read the directory");
  if (is_beside_file) return files;
  for (fs::directory_iterator at(directory / kTemplates, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (at->path().extension() == ".jinja") files.insert(at->path());
  }
  return files;
}

/// All parts. What lies beside them is not read.
Result<Digests> identity_of_gguf(const fs::path& path) {
  SUBBYTE_TRY(const GgufModel model, GgufModel::open(path));
  Digests digests;
  for (const GgufFile& part : model.parts()) {
    digests[part.path().filename().native()] =
        digest_of_weights(part.file()->bytes(), header_bytes(part));
    SUBBYTE_CHECK(part.file()->verify_unchanged());
  }
  return digests;
}

}  // namespace

Result<Digests> model_identity(const fs::path& path, const fs::path& directory) {
  if (is_gguf(path)) return identity_of_gguf(path);
  Digests digests;
  std::error_code ignored;
  const bool is_file = !fs::is_directory(path, ignored);
  if (is_file) SUBBYTE_CHECK(add_file(path, true, true, digests));
  std::vector<fs::path> directories = {directory};
  if (!is_file && path != directory) directories.push_back(path);  // where both have it, it counts
  for (const fs::path& one : directories) {
    SUBBYTE_TRY(const std::set<fs::path> files, files_in(one, is_file));
    for (const fs::path& file : files) {
      SUBBYTE_CHECK(add_file(file, file.extension() == kWeights, false, digests));
    }
  }
  return digests;
}

}  // namespace subbyte
