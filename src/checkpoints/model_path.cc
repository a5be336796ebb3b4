#include "checkpoints/model_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/file_error.h"
#include "base/model_file.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/model_cache.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kForms = "subbyte reads directories of Hugging Face (safetensors)";

/// A directory's model file of OrinMLLM, nullopt when it has none. Its name was not given by the
/// user, so it is opened as the directory's other files are.
Result<std::optional<fs::path>> orin_model_in(const fs::path& directory) {
  const fs::path path = directory / kOrinFileName;
  if (!is_orin_model(path)) return std::optional<fs::path>();
  SUBBYTE_TRY([[maybe_unused]] const MappedFile file, open_model_file(path, kAnyFileSize));
  return std::optional(path);
}

bool is_gguf(const fs::path& path) {
  return path.extension() == ".gguf";
}

/// A file that is no model file of OrinMLLM.
Error not_a_model(const fs::path& file) {
  if (is_gguf(file)) {
    return {"model.not_found",
            fmt::format("{}: a GGUF file; {}, such as the one that it was made from", file.string(),
                        kForms)};
  }
  if (file.extension() == ".safetensors") {
    return {"model.not_found",
            fmt::format("{}: one file of a model; its directory is the model", file.string())};
  }
  return {"model.not_found",
          fmt::format("{}: expected a directory or a model file of OrinMLLM (ak47, ak48)",
                      file.string())};
}

/// A directory that has no config.json, or that may not be entered.
Error not_a_model_directory(const fs::path& directory) {
  std::error_code failure;
  for (fs::directory_iterator at(directory, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (!is_gguf(at->path())) continue;
    return {"model.not_found",
            fmt::format("{}: a GGUF file ({}) and no config.json; {}, such as the one that it was "
                        "made from",
                        directory.string(), quote_name(at->path().filename().string()), kForms)};
  }
  const std::string unfinished = unfinished_download(directory);
  if (!unfinished.empty()) {
    return {"model.unfinished",
            fmt::format("{}: the download is not complete: {}; `hf download` goes on with it",
                        directory.string(), unfinished)};
  }
  return {"model.not_found",
          fmt::format("{}: this directory has no config.json", directory.string())};
}

/// A name that is neither that of a directory nor in the cache.
Error not_in_cache(std::string_view text, const CacheName& name, const fs::path& snapshot) {
  const auto others = names_in_other_case(name);
  const std::string help =
      others.empty() ? fmt::format("`hf download {}/{}` fetches it", name.organisation, name.name)
                     : fmt::format("the cache has {}", fmt::join(others, " and "));
  return {
      "model.not_found",
      fmt::format("{}: no such directory, and not in the Hugging Face cache (looked for {}); {}",
                  text, snapshot.string(), help)};
}

/// The directory, unless it is known that a part of it is missing.
Result<fs::path> whole(const fs::path& directory, std::string_view name) {
  const std::string unfinished = unfinished_download(directory);
  if (unfinished.empty()) return directory;
  return Error{"model.unfinished",
               fmt::format("{}: the download is not complete: {}; `hf download` goes on with it",
                           name, unfinished)};
}

/// Whether there is something of that name; an error where this user may not look.
Result<bool> is_visible(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (failure == std::errc::permission_denied) return file_error(EACCES, path, "open");
  return fs::exists(status);
}

/// `path` where it is a model's directory, or the model file in it.
Result<std::optional<fs::path>> model_at(const fs::path& path) {
  SUBBYTE_TRY(const bool has_config, is_visible(path / "config.json"));
  // Reading a link that leads nowhere says so.
  if (has_config || is_there(path / "config.json")) {
    SUBBYTE_TRY(const fs::path directory, whole(path, path.string()));
    return std::optional(directory);
  }
  if (is_orin_model(path)) return std::optional(path);
  return orin_model_in(path);
}

}  // namespace

Result<fs::path> find_model(std::string_view name) {
  std::error_code ignored;
  const fs::path path(name);
  SUBBYTE_TRY(const auto model, model_at(path));
  if (model) return *model;
  if (fs::is_regular_file(path, ignored)) return not_a_model(path);
  if (fs::is_directory(path, ignored)) return not_a_model_directory(path);
  const auto parsed = parse_cache_name(name);
  if (!parsed) {
    return Error{"model.not_found", fmt::format("{}: no such directory, and not a name of the form "
                                                "org/name[@revision]",
                                                path.string())};
  }
  const fs::path snapshot = snapshot_of(*parsed);
  if (fs::exists(snapshot / "config.json", ignored)) return whole(snapshot, name);
  if (fs::is_directory(snapshot, ignored)) return not_a_model_directory(snapshot);
  return not_in_cache(name, *parsed, snapshot);
}

Result<fs::path> find_checkpoint(std::string_view name) {
  const fs::path path(name);
  SUBBYTE_TRY(const bool is_here, is_visible(path));
  if (!is_here) return find_model(name);
  SUBBYTE_TRY(const auto model, model_at(path));
  return model.value_or(path);
}

}  // namespace subbyte
