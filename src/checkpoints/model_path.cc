#include "checkpoints/model_path.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "base/model_file.h"
#include "checkpoints/containers/orin_model.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxReferenceBytes = 4096;  // the hash of a commit

std::optional<fs::path> environment_path(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return fs::path(value);
}

fs::path cache_directory() {
  if (const auto path = environment_path("HF_HUB_CACHE")) return *path;
  if (const auto path = environment_path("HUGGINGFACE_HUB_CACHE")) return *path;
  if (const auto path = environment_path("HF_HOME")) return *path / "hub";
  if (const auto path = environment_path("XDG_CACHE_HOME")) return *path / "huggingface" / "hub";
  return environment_path("HOME").value_or("/") / ".cache" / "huggingface" / "hub";
}

/// A part of "org/name@revision" that is safe to put into a path.
bool is_plain(std::string_view part) {
  if (part.empty() || part == "." || part == "..") return false;
  for (const char c : part) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.';
    if (!plain) return false;
  }
  return true;
}

struct CacheName {
  std::string_view organisation;
  std::string_view name;
  std::string_view revision;
};

std::optional<CacheName> parse_cache_name(std::string_view text) {
  CacheName parsed;
  parsed.revision = "main";
  if (const auto at = text.find('@'); at != std::string_view::npos) {
    parsed.revision = text.substr(at + 1);
    text = text.substr(0, at);
  }
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  parsed.organisation = text.substr(0, slash);
  parsed.name = text.substr(slash + 1);
  if (!is_plain(parsed.organisation) || !is_plain(parsed.name) || !is_plain(parsed.revision)) {
    return std::nullopt;
  }
  return parsed;
}

/// The snapshot that a branch, a tag or a commit stands for.
fs::path snapshot_of(const fs::path& entry, std::string_view revision) {
  const auto reference = open_model_file(entry / "refs" / revision, kMaxReferenceBytes);
  if (reference.ok()) {
    const auto bytes = reference.value().bytes();
    std::string_view commit(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    commit = commit.substr(0, commit.find('\n'));
    if (is_plain(commit)) return entry / "snapshots" / commit;
  }
  return entry / "snapshots" / revision;
}

/// A directory's model file of OrinMLLM, nullopt when it has none. Its name was not given by the
/// user, so it is opened as the directory's other files are.
Result<std::optional<fs::path>> orin_model_in(const fs::path& directory) {
  const fs::path path = directory / kOrinFileName;
  if (!is_orin_model(path)) return std::optional<fs::path>();
  SUBBYTE_TRY([[maybe_unused]] const MappedFile file, open_model_file(path, kAnyFileSize));
  return std::optional(path);
}

}  // namespace

Result<fs::path> find_model(std::string_view name) {
  std::error_code ignored;
  const fs::path path(name);
  if (fs::exists(path / "config.json", ignored)) return path;
  if (is_orin_model(path)) return path;
  SUBBYTE_TRY(const auto orin, orin_model_in(path));
  if (orin) return *orin;
  if (fs::is_regular_file(path, ignored)) {
    return Error{"model.not_found",
                 fmt::format("{}: expected a directory or a model file of OrinMLLM (ak47, ak48)",
                             path.string())};
  }
  if (fs::is_directory(path, ignored)) {
    return Error{"model.not_found",
                 fmt::format("{}: this directory has no config.json", path.string())};
  }
  const auto parsed = parse_cache_name(name);
  if (!parsed) {
    return Error{
        "model.not_found",
        fmt::format("{}: no such directory, and not a name of the form org/name[@revision]",
                    path.string())};
  }
  const fs::path entry =
      cache_directory() / fmt::format("models--{}--{}", parsed->organisation, parsed->name);
  const fs::path snapshot = snapshot_of(entry, parsed->revision);
  if (fs::exists(snapshot / "config.json", ignored)) return snapshot;
  return Error{
      "model.not_found",
      fmt::format("{}: no such directory, and not in the Hugging Face cache (looked for {}); "
                  "subbyte does not download",
                  path.string(), snapshot.string())};
}

Result<fs::path> find_checkpoint(std::string_view name) {
  std::error_code ignored;
  const fs::path path(name);
  if (!fs::exists(path, ignored)) return find_model(name);
  if (fs::exists(path / "config.json", ignored)) return path;
  SUBBYTE_TRY(const auto orin, orin_model_in(path));
  return orin.value_or(path);
}

}  // namespace subbyte
