#pragma once
// The safetensors container.
//
//   offset 0   u64 little-endian N, the length of the header
//          8   N bytes of JSON: {"name": {"dtype": "F16", "shape": [2, 3],
//              "data_offsets": [begin, end]}, ..., "__metadata__": {string: string}}
//      8 + N   the data; offsets count from here
//
// A file is accepted when it obeys all rules of the reference reader (first byte to last, no hole,
// no overlap, no trailing byte) and, stricter than that reader, has no duplicate names, no unknown
// fields, no array in place of an entry, no NUL in a name, rank <= 16, and no product of
// dimensions that overflows even beside a zero. docs/safetensors.md lists every rule with its code.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "subbyte/modules.h"

namespace subbyte {

std::optional<DType> find_dtype(std::string_view name);

std::string to_string(const Shape& shape);  // "[2, 3]"

/// One tensor of a header. Offsets are from the start of the data.
struct TensorEntry {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by begin, then by end, then by name
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // 8 + N
};

/// Checks and reads a header. `head` is the start of a file of `file_size` bytes and holds at
/// least min(file_size, 8 + N) bytes; no byte of the data is looked at, and at most 16 N + 1 MiB
/// are allocated at any time. `where` (the file's name) begins every message.
/// The codes are listed in docs/safetensors.md; each begins with "safetensors.".
Result<SafetensorsHeader> read_safetensors_header(std::span<const std::byte> head,
                                                  uint64_t file_size, std::string_view where);

/// An open file with a valid header.
class SafetensorsFile {
 public:
  /// A file that the user named, through any link. Codes of MappedFile::open and of
  /// read_safetensors_header.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);
  /// A file that is open already, as open_model_file() opens one of a directory.
  static Result<SafetensorsFile> of(MappedFile file);

  const SafetensorsHeader& header() const { return header_; }
  const std::filesystem::path& path() const { return file_->path(); }
  FileTensor tensor(const TensorEntry& entry) const;

 private:
  SafetensorsFile(std::shared_ptr<const MappedFile> file, SafetensorsHeader header);

  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
};

/// A tensor that will be written.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  int32_t ggml_type = -1;  // of DType::kBlocks

  uint64_t num_bytes() const;
};

/// A file before its data are written.
struct SafetensorsStart {
  std::vector<TensorEntry> tensors;  // in the order of the file
  std::string head;                  // N and the header
};

/// Lays the tensors out: largest element first, then by name, as the reference writer does; the
/// header is padded with spaces to a multiple of 8. Codes: those that reading such a header back
/// would give.
Result<SafetensorsStart> lay_out_safetensors(std::vector<TensorDeclaration> tensors,
                                             const std::map<std::string, std::string>& metadata,
                                             std::string_view where);

}  // namespace subbyte
