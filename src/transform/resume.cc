#include "transform/resume.h"

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/model_file.h"
#include "checkpoints/config/config_file.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

/// The files that decide what is written: those with tensors, and what may stand beside them.
Result<json::Value> source_files(const fs::path& source, const TensorSource& tensors) {
  std::vector<fs::path> paths = tensors.files();
  std::error_code failure;
  const fs::path beside = model_directory(source);
  const fs::path directory = fs::is_directory(source, failure) ? source : beside;
  for (const char* name :
       {"config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json"}) {
    if (is_there(directory / name)) paths.push_back(directory / name);
  }
  const fs::path generation = beside / "generation_config.json";
  if (is_there(generation)) paths.push_back(generation);
  json::Value files = json::Value::array();
  for (const fs::path& path : paths) {
    SUBBYTE_TRY(const MappedFile file,
                path == source ? MappedFile::open(path) : open_model_file(path, kAnyFileSize));
    const FileIdentity& identity = file.identity();
    std::error_code ignored;
    files.push_back({{"path", fs::weakly_canonical(path, ignored).native()},
                     {"inode", identity.inode},
                     {"bytes", identity.bytes},
                     {"modified_ns", identity.modified_ns},
                     {"changed_ns", identity.changed_ns}});
  }
  return files;
}

}  // namespace

Result<ResumeRecord> resume_record(const fs::path& source, const TensorSource& tensors,
                                   json::Value what) {
  SUBBYTE_TRY(const json::Value files, source_files(source, tensors));
  std::error_code ignored;
  what["source"] = fs::weakly_canonical(source, ignored).native();
  const auto text = [](const json::Value& value) { return json::to_text(value, 2) + "\n"; };
  return ResumeRecord{text(what), text(files)};
}

/// A failure of the machine leaves what is finished for the same command, and says so. Any other
/// would meet that command again.
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

}  // namespace subbyte
