#include "checkpoints/model_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/cache_directory.h"
#include "base/model_file.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxReferenceBytes = 4096;  // the hash of a commit
constexpr std::string_view kEntryPrefix = "models--";
constexpr std::string_view kWeights = ".safetensors";

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

/// A revision: parts with slashes between them.
bool is_plain_path(std::string_view text) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    if (!is_plain(text.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

/// The entries of a directory by name; none where it cannot be read.
std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code failure;
  for (fs::directory_iterator at(directory, failure), end; !failure && at != end;
       at.increment(failure)) {
    entries.push_back(at->path());
  }
  std::ranges::sort(entries);
  return entries;
}

/// "org/name" of an entry "models--org--name", "name" of "models--name".
std::optional<std::string> name_of_entry(const fs::path& entry) {
  const std::string text = entry.filename().string();
  if (!text.starts_with(kEntryPrefix)) return std::nullopt;
  std::string name = text.substr(kEntryPrefix.size());
  if (const std::size_t between = name.find("--"); between != name.npos) {
    name = fmt::format("{}/{}", name.substr(0, between), name.substr(between + 2));
  }
  const auto parsed = parse_cache_name(name);
  return parsed ? std::optional(name) : std::nullopt;
}

fs::path entry_of(const CacheName& name) {
  const bool alone = name.organisation.empty();
  return cache_directory() /
         fmt::format("{}{}{}{}", kEntryPrefix, name.organisation, alone ? "" : "--", name.name);
}

/// The commit that a file in refs/ holds; empty unless it is one.
std::string commit_of(const fs::path& reference) {
  const auto file = open_model_file(reference, kMaxReferenceBytes);
  if (!file.ok()) return {};
  const auto bytes = file->bytes();
  std::string commit(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  commit = commit.substr(0, commit.find('\n'));
  return is_plain(commit) ? commit : std::string();
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

/// 3 of "model-00001-of-00003.safetensors", 0 of other names.
int64_t shards_of(const std::string& name) {
  const std::size_t of = name.rfind("-of-");
  if (of == name.npos || !name.ends_with(kWeights)) return 0;
  int64_t total = 0;
  std::from_chars(name.data() + of + 4, name.data() + name.size(), total);
  return total;
}

/// Whether no weights are there, or fewer shards than their names say.
bool lacks_weights(const std::vector<fs::path>& files) {
  int64_t found = 0;
  int64_t shards = 0;
  int64_t total = 0;
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    if (!name.ends_with(kWeights)) continue;
    ++found;
    if (shards_of(name) > 0) ++shards;
    total = std::max(total, shards_of(name));
  }
  return found == 0 || shards < total;
}

/// A file that a download left, in the two places where the tools of Hugging Face put them.
std::optional<std::string> begun_download(const fs::path& directory) {
  const fs::path snapshots = directory.parent_path();
  std::vector<fs::path> places = {directory / ".cache" / "huggingface" / "download"};
  if (snapshots.filename() == "snapshots") places.push_back(snapshots.parent_path() / "blobs");
  for (const fs::path& place : places) {
    for (const fs::path& file : entries_of(place)) {
      if (file.extension() == ".incomplete") return file.filename().string();
    }
  }
  return std::nullopt;
}

uint64_t bytes_of(const fs::path& directory) {
  uint64_t sum = 0;
  for (const fs::path& file : entries_of(directory)) {
    std::error_code failure;
    const uint64_t bytes = fs::is_regular_file(file, failure) ? fs::file_size(file, failure) : 0;
    if (!failure) sum += bytes;
  }
  return sum;
}

/// The names in refs/, whose files lie in folders where names have slashes.
std::vector<std::string> references_of(const fs::path& entry) {
  constexpr int kDeepest = 8;
  std::vector<std::string> names;
  std::error_code failure;
  const fs::path refs = entry / "refs";
  for (fs::recursive_directory_iterator at(refs, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (at.depth() >= kDeepest) at.disable_recursion_pending();
    std::error_code unknown;
    if (at->is_regular_file(unknown)) {
      names.push_back(at->path().lexically_relative(refs).generic_string());
    }
  }
  std::ranges::sort(names);
  return names;
}

void list_entry(const fs::path& entry, const std::string& name, std::vector<CachedModel>& models) {
  std::map<std::string, std::string> names;  // of commits
  for (const std::string& branch : references_of(entry)) {
    const std::string commit = commit_of(entry / "refs" / branch);
    if (!commit.empty() && (names[commit].empty() || branch == "main")) names[commit] = branch;
  }
  for (const fs::path& snapshot : entries_of(entry / "snapshots")) {
    const std::string commit = snapshot.filename().string();
    const auto known = names.find(commit);
    models.push_back({.name = name,
                      .revision = known == names.end() ? commit : known->second,
                      .snapshot = snapshot,
                      .bytes = bytes_of(snapshot),
                      .unfinished = unfinished_download(snapshot)});
  }
}

}  // namespace

std::optional<CacheName> parse_cache_name(std::string_view text) {
  CacheName parsed;
  parsed.revision = "main";
  if (const auto at = text.find('@'); at != std::string_view::npos) {
    parsed.revision = text.substr(at + 1);
    text = text.substr(0, at);
  }
  if (const auto slash = text.find('/'); slash != std::string_view::npos) {
    parsed.organisation = text.substr(0, slash);
    text = text.substr(slash + 1);
    if (!is_plain(parsed.organisation)) return std::nullopt;
  }
  parsed.name = text;
  if (!is_plain(parsed.name) || !is_plain_path(parsed.revision)) return std::nullopt;
  return parsed;
}

fs::path snapshot_of(const CacheName& name) {
  const fs::path entry = entry_of(name);
  const std::string commit = commit_of(entry / "refs" / name.revision);
  return entry / "snapshots" / (commit.empty() ? std::string(name.revision) : commit);
}

std::string full_name(const CacheName& name) {
  return fmt::format("{}{}{}", name.organisation, name.organisation.empty() ? "" : "/", name.name);
}

bool has_entry(const CacheName& name) {
  return is_there(entry_of(name));
}

std::vector<std::string> revisions_of(const CacheName& name) {
  std::vector<CachedModel> models;
  list_entry(entry_of(name), full_name(name), models);
  std::vector<std::string> revisions;
  for (const CachedModel& model : models) {
    if (is_there(model.snapshot / "config.json")) revisions.push_back(model.revision);
  }
  return revisions;
}

std::vector<std::string> names_in_other_case(const CacheName& name) {
  const std::string wanted = full_name(name);
  std::vector<std::string> found;
  for (const fs::path& entry : entries_of(cache_directory())) {
    const auto there = name_of_entry(entry);
    if (there && *there != wanted && lower(*there) == lower(wanted)) found.push_back(*there);
  }
  return found;
}

std::vector<CachedModel> list_cache() {
  std::vector<CachedModel> models;
  for (const fs::path& entry : entries_of(cache_directory())) {
    if (const auto name = name_of_entry(entry)) list_entry(entry, *name, models);
  }
  return models;
}

std::string unfinished_download(const fs::path& directory) {
  const std::vector<fs::path> files = entries_of(directory);
  for (const fs::path& file : files) {
    std::error_code failure;
    if (!fs::is_symlink(file, failure) || fs::exists(file, failure)) continue;
    const fs::path target = fs::read_symlink(file, failure);
    if (target.parent_path().filename() == "blobs") {
      return fmt::format("{} leads to no blob", quote_name(file.filename().string()));
    }
  }
  const auto begun = begun_download(directory);
  if (!begun || !lacks_weights(files)) return {};
  return fmt::format("weights are missing, and {} is left of a download", quote_name(*begun));
}

}  // namespace subbyte
