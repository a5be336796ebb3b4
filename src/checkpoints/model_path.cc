#include "checkpoints/model_path.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "checkpoints/containers/orin_model.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

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
  std::ifstream reference(entry / "refs" / revision);
  std::string commit;
  if (reference && std::getline(reference, commit) && is_plain(commit)) {
    return entry / "snapshots" / commit;
  }
  return entry / "snapshots" / revision;
}

}  // namespace

Result<fs::path> find_model(std::string_view name) {
  std::error_code ignored;
  const fs::path path(name);
  if (fs::exists(path / "config.json", ignored)) return path;
  if (is_orin_model(path)) return path;
  if (is_orin_model(path / kOrinFileName)) return path / kOrinFileName;
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
  const bool has_config = fs::exists(path / "config.json", ignored);
  if (!has_config && is_orin_model(path / kOrinFileName)) return path / kOrinFileName;
  return path;
}

}  // namespace subbyte
