#pragma once
// A checkpoint that is made of another, whatever is changed on the way:
//
//   source -> steps (join, split, recast, quantize, pack, rename) -> container -> destination
//
// A command opens its source, plans the steps (steps.h) and lays them out (checkpoint_writer.h).
// What all commands have in common is here: the result that appears whole or not at all, what
// goes on where an earlier run was stopped, side files, progress, and the last look at the source.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/containers/tensor_source.h"
#include "json/strict_json.h"

namespace subbyte {

struct Rewrite {
  std::filesystem::path source;
  const TensorSource& tensors;
  /// The name of the one file that the destination becomes; empty: it is a directory.
  std::string file = {};
  std::vector<WriteStep> steps = {};
  WeightFiles weights = {};
  std::vector<TextFile> texts = {};  // config.json and others that are written anew
  /// All options that decide which bytes are written: the same command goes on with files that it
  /// finished, if the source is the same, too. nullopt: it begins anew.
  std::optional<json::Value> resumes = {};
  Notice notice = {};
  std::vector<std::string> notices = {};  // about the source, when the directory is there
  std::function<Status(const std::filesystem::path&)> check = {};  // of what was written
  ByteProgress progress = {};
};

/// The files of kConfigFiles that `model` has, as they are. Codes: those of open_model_file() and
/// file.changed.
Result<std::vector<TextFile>> read_config_texts(const std::filesystem::path& model);

/// Refuses a directory within that of the source, which would be a part of it. Code file.inside.
Status check_destination(const std::filesystem::path& source,
                         const std::filesystem::path& destination);

/// Writes all of it; the directory, or file, appears at `destination` last. No more than one step
/// is in memory, and reading, work and writing overlap. A failure of the machine leaves what is
/// finished for the same command, and says so. Codes: those of check_destination(),
/// OutputDirectory, write_checkpoint(), copy_side_files() and `check`; file.changed when the source
/// did meanwhile.
Status write_rewrite(const Rewrite& rewrite, const std::filesystem::path& destination);

}  // namespace subbyte
