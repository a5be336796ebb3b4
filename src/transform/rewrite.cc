#include "transform/rewrite.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/model_file.h"
#include "base/output_directory.h"
#include "checkpoints/config/model_files.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

/// The files that decide what is written: those with tensors, and what may stand beside them.
Result<json::Value> source_files(const fs::path& source, const TensorSource& tensors) {
  std::vector<fs::path> paths = tensors.files();
  std::error_code failure;
  const fs::path beside = model_directory(source);
  const fs::path directory = fs::is_directory(source, failure) ? source : beside;
  for (const std::string_view name : kConfigFiles) {
    if (is_there(directory / name)) paths.push_back(directory / name);
  }
  const fs::path generation = beside / "generation_config.json";
  if (is_there(generation)) paths.push_back(generation);
  json::Value files = json::Value::array();
  for (const fs::path& path : paths) {
    SUBBYTE_TRY(const FileIdentity identity, file_identity(path));
    std::error_code ignored;
    files.push_back({{"path", fs::weakly_canonical(path, ignored).native()},
                     {"inode", identity.inode},
                     {"bytes", identity.bytes},
                     {"modified_ns", identity.modified_ns},
                     {"changed_ns", identity.changed_ns}});
  }
  return files;
}

/// Says whether `path` lies in the directory, at whatever depth.
bool is_inside(const fs::path& directory, const fs::path& path) {
  std::error_code failure;
  const fs::path outer = fs::canonical(directory, failure);
  const fs::path inner = fs::weakly_canonical(fs::absolute(path, failure), failure);
  return !failure && inner != outer && std::ranges::mismatch(outer, inner).in1 == outer.end();
}

Result<OutputDirectory> open_destination(const Rewrite& rewrite, const fs::path& destination) {
  if (!rewrite.resumes) return OutputDirectory::create(destination, rewrite.notice);
  SUBBYTE_TRY(const json::Value files, source_files(rewrite.source, rewrite.tensors));
  std::error_code ignored;
  json::Value what = *rewrite.resumes;
  what["source"] = fs::weakly_canonical(rewrite.source, ignored).native();
  const auto text = [](const json::Value& value) { return json::to_text(value, 2) + "\n"; };
  const std::string kept = fs::path(rewrite.weights.files.front().name).extension();
  return OutputDirectory::resume(destination, {text(what), text(files)}, kept, rewrite.notice);
}

Status write_files(const Rewrite& rewrite, const fs::path& directory) {
  if (rewrite.file.empty()) {
    SUBBYTE_CHECK(copy_side_files(model_directory(rewrite.source), directory, rewrite.notice));
  }
  for (const TextFile& file : rewrite.texts) {
    SUBBYTE_CHECK(write_text(directory / file.name, file.text));
  }
  return write_checkpoint(directory, rewrite.weights, rewrite.steps, rewrite.progress);
}

/// A failure of the machine leaves what is finished; any other would meet the same command again.
Error stopped_by(Error error, OutputDirectory& directory) {
  if (!error.code.starts_with("file.") || error.code == "file.changed") {
    directory.discard();
  } else if (const std::size_t count = directory.num_finished(); count > 0) {
    return {error.code,
            fmt::format("{}; {} keeps what is finished ({} of the files with weights), the "
                        "same command goes on with it, `subbyte clean` removes it",
                        error.message, directory.path().native(), count)};
  }
  return error;
}

}  // namespace

Status check_destination(const fs::path& source, const fs::path& destination) {
  std::error_code failure;
  if (!fs::is_directory(source, failure) || !is_inside(source, destination)) return {};
  return Error{"file.inside",
               fmt::format("{}: expected a place outside of the model that it is made of ({})",
                           destination.native(), source.native())};
}

Result<std::vector<TextFile>> read_config_texts(const fs::path& model) {
  std::vector<TextFile> texts;
  for (const std::string_view name : kConfigFiles) {
    if (!is_there(model / name)) continue;
    SUBBYTE_TRY(const MappedFile file, open_model_file(model / name, SideFiles::kMaxBytes));
    const auto bytes = file.bytes();
    texts.push_back(
        {std::string(name), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
    SUBBYTE_CHECK(file.verify_unchanged());
  }
  return texts;
}

Status write_rewrite(const Rewrite& rewrite, const fs::path& destination) {
  if (rewrite.weights.files.empty()) {
    return Error{"index.no_checkpoint",
                 rewrite.source.native() + ": expected tensors, found none to write"};
  }
  if (rewrite.file.empty()) SUBBYTE_CHECK(check_destination(rewrite.source, destination));
  SUBBYTE_TRY(OutputDirectory directory, open_destination(rewrite, destination));
  for (const std::string& line : rewrite.notices) {
    if (rewrite.notice) rewrite.notice(line);
  }
  Status written = write_files(rewrite, directory.path());
  // A source that is cut short meanwhile is met as an error of writing what it held, and one that
  // changes would be half in the result.
  if (Status same = rewrite.tensors.verify_unchanged(); !same.ok()) written = std::move(same);
  if (written.ok() && rewrite.check) written = rewrite.check(directory.path() / rewrite.file);
  if (written.ok()) {
    written = rewrite.file.empty() ? directory.commit() : directory.commit_file(rewrite.file);
  }
  if (!written.ok()) return stopped_by(std::move(written).error(), directory);
  return {};
}

}  // namespace subbyte
