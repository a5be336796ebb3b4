#pragma once
// Going on with a directory whose writing was stopped: how it is known again, and what is said
// when it is left.

#include <filesystem>

#include "base/output_directory.h"
#include "checkpoints/containers/tensor_source.h"
#include "json/strict_json.h"

namespace subbyte {

/// The state that must be the same for finished shards to be of use: `what` is being made, all
/// options that decide its bytes included, and the files of `source` with their sizes and times.
/// Codes: those of opening these files.
Result<ResumeRecord> resume_record(const std::filesystem::path& source, const TensorSource& tensors,
                                   json::Value what);

/// The error with which writing into `directory` stopped. A failure of the machine leaves what is
/// finished for the same command, and says so. Any other would meet that command again.
Error stopped_by(Error error, OutputDirectory& directory);

}  // namespace subbyte
