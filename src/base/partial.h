#pragma once
// An output under way: a file or a directory that has a name of base/partial_name.h beside its
// place until it is whole. It is locked, so that no other process takes it for a leftover
// (base/leftover.h), and stands in a table of this process, where a signal handler finds it.

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "base/status.h"

namespace subbyte {

/// The place of an output.
struct Place {
  std::filesystem::path path;   // absolute, and "out" for "out/"
  std::filesystem::path given;  // for messages
  std::string name;             // the last part of the path
  Descriptor folder;            // that it lies in

  /// A folder that this process is making is known by its descriptor, so that a link that has taken
  /// its name leads nowhere. Codes: those of file_error().
  static Result<Place> of(const std::filesystem::path& given);

  /// Checks whether an output may take the place of what is there: of nothing, or with `overwrite`
  /// of a regular file, whose status this is. A link is never replaced, nor written through: what
  /// it names may be anything. Codes: file.exists, file.not_regular, those of file_error().
  Result<std::optional<struct stat>> check(bool overwrite) const;
};

/// Error for a link in the place of an output. Code file.not_regular.
Error link_error(const std::filesystem::path& path);

enum class Lock { kTaken, kOfAnother, kNone };

/// Locks what `file` has open until that is closed: kOfAnother when another process has the lock,
/// or had it until it removed or renamed `name` in `folder`; kNone on a file system without locks.
Lock lock(int folder, const std::string& name, int file);

/// Says whether `name` in an open directory is a committed file of this user, with this name only,
/// that ends in `kept`. For signal handlers, too.
bool is_finished(int directory, const char* name, std::string_view kept);

struct PartialSlot;  // of the table

class Partial {
 public:
  enum class Kind { kFile, kDirectory };
  /// A file, open for writing, or a directory for files, of which those that end in `kept`, if that
  /// is not empty, are what another run goes on with. Codes: those of file_error().
  static Result<std::unique_ptr<Partial>> make(Place place, Kind kind, mode_t mode,
                                               std::string_view kept = {});

  /// Removes it, but not a directory with files to go on with, nor what has been published.
  ~Partial();
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  const Place& place() const { return place_; }
  const std::filesystem::path& path() const { return path_; }
  /// The file or directory; negative once it is published or discarded.
  int descriptor() const { return own_.number(); }
  /// Files that another run would go on with.
  std::size_t num_finished() const;

  /// 0 or errno. Gives it its final name, which replaces a file only with `overwrite`, and then
  /// calls `after`, before a signal handler of another thread may end the process. EINTR when one
  /// is removing it already.
  template <typename F>
  int publish(bool overwrite, F&& after) {
    const int failure = rename(overwrite);
    if (failure != 0) return failure;
    after();
    forget();
    return 0;
  }
  void discard();

 private:
  Partial(Place place, Kind kind, std::string_view kept)
      : place_(std::move(place)), is_directory_(kind == Kind::kDirectory), kept_(kept) {}
  Result<bool> attempt(mode_t mode);
  bool take_slot();
  int create(mode_t mode);
  int rename(bool overwrite);
  void forget();
  void remove(int directory) const;
  bool remove_at_signal(int directory) const;
  friend Descriptor folder_at(const std::filesystem::path& path);
  friend const char* remove_partial_outputs() noexcept;

  const Place place_;
  const bool is_directory_;
  const std::string kept_;
  std::filesystem::path path_;
  std::string name_;  // the last part of it
  Descriptor own_;
  bool is_locked_ = false;
  PartialSlot* slot_ = nullptr;
};

/// Removes every temporary output of this process but directories with files that another run goes
/// on with, and lets it create no others. For handlers of SIGINT, SIGTERM and SIGHUP that end the
/// process: async-signal-safe. The path of a directory that stays, nullptr if there is none.
const char* remove_partial_outputs() noexcept;

}  // namespace subbyte
