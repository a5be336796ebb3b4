#pragma once
// A GGUF file: metadata and tensors of a whole model, as llama.cpp and what is built on it have it.
//
//   "GGUF", u32 version (2 or 3), u64 tensors, u64 keys
//   keys      string name, u32 type, value
//   tensors   string name, u32 dimensions (1 to 4), u64 each, inputs first, u32 type, u64 offset
//   zeros to a multiple of general.alignment (32)
//   data      tensors one after another, each padded to that multiple
//
// A string is a u64 length and UTF-8 without a zero byte; a bool is a byte; an array is a u32 type,
// a u64 count, and the elements, which are no arrays. All is little-endian.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "checkpoints/containers/gguf_value.h"

namespace subbyte {

struct GgufKey {
  std::string_view name;
  GgufValue value;
};

struct GgufTensor {
  std::string_view name;
  uint32_t type = 0;            // ggml's number of it
  std::vector<uint64_t> shape;  // the last dimension is contiguous: outputs, then inputs
  std::span<const std::byte> bytes;
};

class GgufFile {
 public:
  /// Opens and checks a file, without reading data of tensors. Codes: file.*, gguf.magic,
  /// gguf.version (1, big-endian, unknown), gguf.truncated, gguf.limit, gguf.key, gguf.value,
  /// gguf.tensor, gguf.type, gguf.offset. With `problems`, what is wrong with single keys and
  /// tensors is added there, and these are left out.
  static Result<GgufFile> open(const std::filesystem::path& path,
                               std::vector<Error>* problems = nullptr);
  static Result<GgufFile> of(MappedFile file, std::vector<Error>* problems = nullptr);

  /// The beginning of a file, such as its keys: tensors beyond it have no bytes.
  static Result<GgufFile> of_beginning(MappedFile file);

  /// In the order of the file.
  std::span<const GgufKey> keys() const { return keys_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }
  /// nullptr when there is no such key.
  const GgufValue* find(std::string_view key) const;
  const std::shared_ptr<const MappedFile>& file() const { return file_; }
  const std::filesystem::path& path() const { return file_->path(); }

  /// "FILE: KEY: expected EXPECTED, found ...".
  Error error(std::string_view code, std::string_view key, std::string_view expected) const;

 private:
  friend class GgufReader;
  std::shared_ptr<const MappedFile> file_;
  std::vector<GgufKey> keys_;
  std::vector<std::size_t> by_name_;  // places in keys_
  std::vector<GgufTensor> tensors_;
};

/// Says whether a file begins with the four bytes of GGUF; false when there is none, or it cannot
/// be read.
bool begins_as_gguf(const std::filesystem::path& path);

/// Says whether a file is to be read as GGUF: it begins so, or its name ends in ".gguf".
bool is_gguf(const std::filesystem::path& path);

}  // namespace subbyte
