#pragma once
// The one way to open a file of a model's directory. A model is a gift of a stranger: a link in it
// may lead to the user's own files, and `convert` would copy them.

#include <cstdint>
#include <filesystem>

#include "base/mapped_file.h"

namespace subbyte {

inline constexpr uint64_t kAnyFileSize = UINT64_MAX;

/// Opens `path`, a directory of a model and a file name. It must be a regular file there, or a
/// symbolic link to a blob of the Hugging Face cache entry that the directory is a snapshot of:
/// .../models--ORG--NAME/snapshots/REVISION/FILE -> .../models--ORG--NAME/blobs/HASH.
/// How the directory itself is reached is the user's own affair. Codes: file.link_outside,
/// file.too_large beyond `max_bytes`, those of MappedFile::open.
Result<MappedFile> open_model_file(const std::filesystem::path& path, uint64_t max_bytes);

/// Says whether anything has that name, be it a link that leads nowhere, or may have it for all
/// that the system says. Optional files are asked for with this, so that what cannot be opened is
/// refused and not overlooked.
bool is_there(const std::filesystem::path& path);

/// Says whether it is a directory, or a link to one; nothing of that name is none. Codes: those of
/// file_error() where the system does not say.
Result<bool> is_folder(const std::filesystem::path& path);

}  // namespace subbyte
