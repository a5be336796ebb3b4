#pragma once
// How often files of a directory are opened, by whomever: the system counts.

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>

namespace subbyte::testing {

class OpenedFiles {
 public:
  explicit OpenedFiles(const std::filesystem::path& directory)
      : queue_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    // Like events in a row are one event, so that those of closing have to stand between.
    const uint32_t events = IN_OPEN | IN_CLOSE;
    if (::inotify_add_watch(queue_, directory.c_str(), events) < 0) std::abort();
  }
  ~OpenedFiles() { ::close(queue_); }
  OpenedFiles(const OpenedFiles&) = delete;
  OpenedFiles& operator=(const OpenedFiles&) = delete;

  /// Since this was made, or asked before.
  std::map<std::string, int> take() {
    std::map<std::string, int> counts;
    alignas(inotify_event) std::array<char, 1 << 16> buffer;
    for (ssize_t bytes; (bytes = ::read(queue_, buffer.data(), buffer.size())) > 0;) {
      for (ssize_t at = 0; at < bytes;) {
        inotify_event event;
        std::memcpy(&event, buffer.data() + at, sizeof event);
        const char* const name = buffer.data() + at + sizeof event;
        if ((event.mask & IN_Q_OVERFLOW) != 0) std::abort();
        if ((event.mask & IN_OPEN) != 0 && event.len > 0) ++counts[name];
        at += static_cast<ssize_t>(sizeof event + event.len);
      }
    }
    return counts;
  }

 private:
  int queue_;
};

}  // namespace subbyte::testing
