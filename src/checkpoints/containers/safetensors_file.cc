// A safetensors file that is open for reading.

#include <utility>

#include "checkpoints/containers/safetensors.h"

namespace subbyte {

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  SUBBYTE_TRY(MappedFile file, MappedFile::open(path));
  return of(std::move(file));
}

Result<SafetensorsFile> SafetensorsFile::of(MappedFile file) {
  SUBBYTE_TRY(SafetensorsHeader header,
              read_safetensors_header(file.bytes(), file.bytes().size(), file.path().native()));
  return SafetensorsFile(std::make_shared<const MappedFile>(std::move(file)), std::move(header));
}

SafetensorsFile::SafetensorsFile(std::shared_ptr<const MappedFile> file, SafetensorsHeader header)
    : file_(std::move(file)), header_(std::move(header)) {}

FileTensor SafetensorsFile::tensor(const TensorEntry& entry) const {
  // The header was accepted, so every entry lies inside the mapping.
  const auto begin = static_cast<std::size_t>(header_.data_offset + entry.begin);
  const auto size = static_cast<std::size_t>(entry.end - entry.begin);
  return {entry.name, entry.dtype, entry.shape, file_->bytes().subspan(begin, size), file_};
}

}  // namespace subbyte
