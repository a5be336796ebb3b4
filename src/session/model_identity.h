#pragma once
// Tells two models apart without reading all of one.

#include <filesystem>
#include <map>
#include <string>

#include "base/status.h"

namespace subbyte {

/// Digests of the files of the model at `path`, which has its other files in `directory`, by their
/// names: of those in JSON and of templates by their bytes, of those with weights by their header,
/// their size and a fixed sample of their bytes; and of those that cannot be opened, which a model
/// may not read, the code of the error. Of a GGUF file all parts count, and nothing else. Codes:
/// those of MappedFile::open() for `path` itself, of GgufModel::open(), of file_error(), and
/// file.changed.
Result<std::map<std::string, std::string>> model_identity(const std::filesystem::path& path,
                                                          const std::filesystem::path& directory);

}  // namespace subbyte
