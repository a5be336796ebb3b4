#pragma once
// Runs the program on a terminal of its own, as a person sees it.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace subbyte {

class Terminal {
 public:
  /// Runs `subbyte ARGUMENTS...` with stdin, stdout and stderr on a terminal of so many columns.
  /// `environment` is put on top of ours, with TERM=xterm.
  Terminal(const std::vector<std::string>& arguments,
           const std::map<std::string, std::string>& environment = {}, int columns = 80);
  /// The same on a terminal whose output was stopped by Ctrl-S before the program began: it waits
  /// where it first writes something, until a key such as Ctrl-C lets the output go on. Returns
  /// when the program handles Ctrl-C.
  static Terminal stopped(const std::vector<std::string>& arguments,
                          const std::map<std::string, std::string>& environment = {});
  Terminal(Terminal&& other) noexcept;
  Terminal& operator=(Terminal&&) = delete;
  ~Terminal();

  void type(const std::string& keys);
  /// What was written since the last call, up to `text` and with it. A failure of the test when
  /// that does not come within 20 seconds, or before the program ends.
  std::string read_until(const std::string& text);
  /// What is written until the program ends, and its exit code, 128 + signal when it was killed.
  std::string read_to_end();
  int exit_code();

 private:
  enum class Output : uint8_t { kFlows, kStopped };

  Terminal(const std::vector<std::string>& arguments,
           const std::map<std::string, std::string>& environment, int columns, Output output);
  void wait_for_handler() const;
  bool read_more();  // false: at the end, or nothing came for too long

  pid_t child_ = -1;
  int terminal_ = -1;
  std::string unread_;
};

}  // namespace subbyte
