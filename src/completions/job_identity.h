#pragma once
// What tells two models apart without reading all of one.

#include <filesystem>

#include "completions/result_lines.h"

namespace subbyte {

/// Adds the files of the model at `path`, which has its other files in `directory`: those in JSON
/// and templates by their bytes, those with weights by their header, their size and a fixed sample
/// of their bytes, and those that cannot be opened, which a model may not read, by the code of the
/// error. Codes: those of MappedFile::open() for `path` itself, of file_error(), and file.changed.
Status add_model_files(const std::filesystem::path& path, const std::filesystem::path& directory,
                       JobRecord& record);

}  // namespace subbyte
