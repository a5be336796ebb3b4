#include "checkpoints/model_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/file_error.h"
#include "base/model_file.h"
#include "checkpoints/containers/gguf_file.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/gguf_path.h"
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

/// A file that is no model file of OrinMLLM.
Error not_a_model(const fs::path& file) {
  const fs::path directory = file.parent_path().empty() ? "." : file.parent_path();
  if (file.extension() == ".safetensors" || is_there(directory / "config.json")) {
    return {"model.not_found",
            fmt::format("{}: one file of a model; its directory is the model", file.string())};
  }
  return {"model.not_found",
          fmt::format("{}: expected a directory, a GGUF file or a model file of OrinMLLM (ak47, "
                      "ak48)",
                      file.string())};
}

/// A directory that has no config.json, or that may not be entered.
Error not_a_model_directory(const fs::path& directory) {
  const std::string unfinished = unfinished_download(directory);
  if (!unfinished.empty()) {
    return {"model.unfinished",
            fmt::format("{}: the download is not complete: {}; `hf download` goes on with it",
                        directory.string(), unfinished)};
  }
  if (is_there(directory / "params.json")) {
    return {"model.not_found",
            fmt::format("{}: the form of Mistral's or Meta's own software (params.json); {}, which "
                        "the same model has with a config.json",
                        directory.string(), kForms)};
  }
  return {"model.not_found",
          fmt::format("{}: this directory has no config.json", directory.string())};
}

/// "org/name" of "https://host/org/name/...", "host.org/org/name:tag" and the like; empty of what
/// is no address.
std::string name_in_address(std::string_view text) {
  const std::size_t scheme = text.find("://");
  if (scheme != text.npos) text.remove_prefix(scheme + 3);
  const std::size_t host = text.find('/');
  const bool is_address = scheme != text.npos || text.substr(0, host).find('.') != text.npos;
  if (host == text.npos || !is_address) return {};
  text.remove_prefix(host + 1);
  const std::size_t slash = text.find('/');
  if (slash == text.npos) return {};
  const std::string_view rest = text.substr(slash + 1);
  const std::string name(
      text.substr(0, slash + 1 + std::min(rest.find_first_of("/?#:@"), rest.size())));
  return parse_cache_name(name) ? name : std::string();
}

/// What is neither there nor a name that a cache could have.
Error no_name(std::string_view text) {
  const std::string name = name_in_address(text);
  const std::string help =
      name.empty()
          ? "; `subbyte list` shows the models that are here, `hf download org/name` "
            "fetches one"
          : fmt::format("; `hf download {0}` fetches that model, and its name is {0}", name);
  return {"model.not_found",
          fmt::format("{}: no such directory, and not a name of the form org/name[@revision]{}",
                      printable(text), help)};
}

/// A path of a file, by its ending, that is nowhere.
Error no_file(std::string_view text) {
  return {"model.not_found", fmt::format("{}: no such file", printable(text))};
}

bool is_name_of_file(std::string_view text) {
  return text.ends_with(".gguf") || text.ends_with(".safetensors");
}

/// A name that is neither that of a directory nor in the cache, or not with this revision.
Error not_in_cache(std::string_view text, const CacheName& name, const fs::path& snapshot) {
  const std::string full = full_name(name);
  std::vector<std::string> others;
  for (const std::string& revision : revisions_of(name)) {
    others.push_back(revision == "main" ? full : fmt::format("{}@{}", full, revision));
  }
  if (others.empty()) others = names_in_other_case(name);
  const std::string help = others.empty()
                               ? fmt::format("`hf download {}` fetches it", full)
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

/// The GGUF file of a directory that has no weights in safetensors: config.json may lie beside it,
/// too.
Result<std::optional<fs::path>> only_gguf_in(const fs::path& directory,
                                             std::string_view wanted = {}) {
  const bool has_weights = is_there(directory / "model.safetensors") ||
                           is_there(directory / "model.safetensors.index.json");
  if (has_weights && wanted.empty()) return std::optional<fs::path>();
  return gguf_in(directory, wanted);
}

/// `path` where it is a model's directory, or the model file in it.
Result<std::optional<fs::path>> model_at(const fs::path& path) {
  SUBBYTE_TRY(const bool has_config, is_visible(path / "config.json"));
  // Reading a link that leads nowhere says so.
  if (has_config || is_there(path / "config.json")) {
    SUBBYTE_TRY(auto gguf, only_gguf_in(path));
    if (gguf) return gguf;
    SUBBYTE_TRY(const fs::path directory, whole(path, path.string()));
    return std::optional(directory);
  }
  if (is_orin_model(path) || is_gguf(path)) return std::optional(path);
  SUBBYTE_TRY(auto orin, orin_model_in(path));
  return orin ? orin : only_gguf_in(path);
}

/// "Q4_K_M" of "org/name:Q4_K_M", "BF16/part.gguf" of "org/name:BF16/part.gguf", which is cut off;
/// empty where there is none.
std::string_view cut_wanted(std::string_view& name) {
  const std::size_t slash = name.find('/');
  const std::size_t colon = slash == name.npos ? name.npos : name.find(':', slash);
  if (colon == name.npos) return {};
  const std::string_view wanted = name.substr(colon + 1);
  name = name.substr(0, colon);
  return wanted;
}

}  // namespace

Result<fs::path> find_model(std::string_view name) {
  // Else it would be the directory in which the program was started.
  if (name.empty()) {
    return Error{"model.not_found",
                 "\"\": expected a directory, a file or org/name, found a name "
                 "without characters"};
  }
  std::error_code ignored;
  const fs::path path(name);
  SUBBYTE_TRY(const auto model, model_at(path));
  if (model) return *model;
  if (fs::is_regular_file(path, ignored)) return not_a_model(path);
  if (fs::is_directory(path, ignored)) return not_a_model_directory(path);
  std::string_view entry = name;
  const std::string_view wanted = cut_wanted(entry);
  const auto parsed = parse_cache_name(entry);
  if (is_name_of_file(entry) && !(parsed && has_entry(*parsed))) return no_file(name);
  // Of a word without a slash nobody knows whose model is meant, unless it is there.
  const bool is_word = parsed && parsed->organisation.empty();
  if (!parsed || (is_word && !has_entry(*parsed) && names_in_other_case(*parsed).empty())) {
    return no_name(name);
  }
  const fs::path snapshot = snapshot_of(*parsed);
  SUBBYTE_TRY(const auto gguf, only_gguf_in(snapshot, wanted));
  if (gguf) return *gguf;
  if (fs::exists(snapshot / "config.json", ignored)) return whole(snapshot, name);
  if (fs::is_directory(snapshot, ignored)) return not_a_model_directory(snapshot);
  return not_in_cache(name, *parsed, snapshot);
}

Result<fs::path> find_checkpoint(std::string_view name) {
  const fs::path path(name);
  SUBBYTE_TRY(const bool is_here, is_visible(path));
  if (!is_here) return find_model(name);
  SUBBYTE_TRY(const auto model, model_at(path));
  if (!model && path.extension() == ".json") return not_a_model(path);
  return model.value_or(path);
}

}  // namespace subbyte
