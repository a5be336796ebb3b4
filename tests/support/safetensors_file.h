#pragma once
// Safetensors files as tests write them.

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "checkpoints/containers/safetensors.h"

namespace subbyte {

/// Writes a file, over one that is there; `bytes` gives those of a tensor.
inline Status write_safetensors(
    const std::filesystem::path& path, const std::vector<TensorDeclaration>& tensors,
    const std::function<std::span<const std::byte>(const TensorEntry& tensor)>& bytes,
    const std::map<std::string, std::string>& metadata = {}) {
  SUBBYTE_TRY(const auto start, lay_out_safetensors(tensors, metadata, path.native()));
  SUBBYTE_TRY(OutputFile file, OutputFile::create(path, true));
  SUBBYTE_CHECK(file.write(start.head));
  for (const TensorEntry& tensor : start.tensors) SUBBYTE_CHECK(file.write(bytes(tensor)));
  return file.commit();
}

}  // namespace subbyte
