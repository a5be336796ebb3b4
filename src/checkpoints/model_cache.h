#pragma once
// The cache of the tools of Hugging Face (base/cache_directory.h), which is read and never written:
//
//   models--ORG--NAME/refs/main               the commit that a branch or a tag stands for
//   models--NAME/...                          a model without an organisation
//   models--ORG--NAME/refs/refs/pr/3          a branch whose name has slashes
//   models--ORG--NAME/snapshots/COMMIT/FILE   a link to ../../blobs/HASH
//   models--ORG--NAME/blobs/HASH.incomplete   what is being downloaded, or was not to its end

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace subbyte {

/// "[org/]name[@revision]" with parts that are safe in a path.
struct CacheName {
  std::string_view organisation;  // empty where there is none
  std::string_view name;
  std::string_view revision;  // "main" where none is given
};
std::optional<CacheName> parse_cache_name(std::string_view text);

/// Where the cache has this, or would have it: a revision is a branch or a tag (through refs/), or
/// a commit.
std::filesystem::path snapshot_of(const CacheName& name);

/// The name without the revision.
std::string full_name(const CacheName& name);

/// Says whether the cache has anything of that model, be it another revision or a part of a
/// download.
bool has_entry(const CacheName& name);

/// The revisions of a model that the cache has with a config.json: branches, tags, and commits to
/// which none of them leads.
std::vector<std::string> revisions_of(const CacheName& name);

/// The models of the cache whose names are `name` but for capital letters: "Org/Demo" for
/// "org/demo".
std::vector<std::string> names_in_other_case(const CacheName& name);

struct CachedModel {
  std::string name;  // "org/name", or "name"
  std::string
      revision;  // "main", another branch or tag, or the commit where no branch or tag leads to it
  std::filesystem::path snapshot;
  uint64_t bytes = 0;      // of its files
  std::string unfinished;  // as unfinished_download() says
};
/// Every snapshot of a model, by name. Empty where there is no cache.
std::vector<CachedModel> list_cache();

/// Why the files of a directory are not all that was to be downloaded into it (a snapshot of the
/// cache, or what `hf download --local-dir` made): which link leads to no blob, or which download
/// was begun while weights are missing. Empty: nothing says so.
std::string unfinished_download(const std::filesystem::path& directory);

}  // namespace subbyte
