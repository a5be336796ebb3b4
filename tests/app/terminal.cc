#include "app/terminal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <utility>

#include "support/paths.h"

namespace subbyte {
namespace {

constexpr int kPatienceMs = 20'000;

}  // namespace

Terminal::Terminal(const std::vector<std::string>& arguments,
                   const std::map<std::string, std::string>& environment, int columns)
    : Terminal(arguments, environment, columns, Output::kFlows) {}

Terminal::Terminal(const std::vector<std::string>& arguments,
                   const std::map<std::string, std::string>& environment, int columns,
                   Output output) {
  const winsize size = {24, static_cast<unsigned short>(columns), 0, 0};
  child_ = forkpty(&terminal_, nullptr, nullptr, &size);
  if (child_ != 0) return;
  setenv("TERM", "xterm", 1);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv = {const_cast<char*>("subbyte")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  // What comes after Ctrl-S can be read once that has had its effect.
  char line[16];
  if (output == Output::kStopped && read(STDIN_FILENO, line, sizeof line) <= 0) _exit(126);
  execv(kProgramPath, argv.data());
  _exit(126);
}

Terminal Terminal::stopped(const std::vector<std::string>& arguments,
                           const std::map<std::string, std::string>& environment) {
  Terminal terminal(arguments, environment, 80, Output::kStopped);
  terminal.type("\x13\n");
  terminal.wait_for_handler();
  return terminal;
}

Terminal::Terminal(Terminal&& other) noexcept
    : child_(std::exchange(other.child_, -1)),
      terminal_(std::exchange(other.terminal_, -1)),
      unread_(std::move(other.unread_)) {}

/// Its status has a mask of the signals that it handles.
void Terminal::wait_for_handler() const {
  const std::string status = "/proc/" + std::to_string(child_) + "/status";
  const time_t begin = time(nullptr);
  while (time(nullptr) - begin < kPatienceMs / 1000) {
    std::ifstream file(status);
    std::string word;
    while (file >> word && word != "SigCgt:") {
    }
    uint64_t mask = 0;
    if (file >> std::hex >> mask && (mask >> (SIGINT - 1) & 1) != 0) return;
    sched_yield();
  }
  ADD_FAILURE() << "the program does not handle Ctrl-C";
}

Terminal::~Terminal() {
  if (child_ > 0) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  if (terminal_ >= 0) close(terminal_);
}

void Terminal::type(const std::string& keys) {
  ASSERT_EQ(write(terminal_, keys.data(), keys.size()), std::ssize(keys));
}

bool Terminal::read_more() {
  pollfd wanted = {terminal_, POLLIN, 0};
  if (poll(&wanted, 1, kPatienceMs) <= 0) return false;
  char buffer[4096];
  const ssize_t count = read(terminal_, buffer, sizeof buffer);
  if (count <= 0) return false;
  unread_.append(buffer, static_cast<std::size_t>(count));
  // Asking for pasted text to be marked shows nothing.
  for (const char* mode : {"\x1b[?2004h", "\x1b[?2004l"}) {
    while (true) {  // what is read at once may have it more than once
      const std::size_t at = unread_.find(mode);
      if (at == std::string::npos) break;
      unread_.erase(at, 8);
    }
  }
  return true;
}

std::string Terminal::read_until(const std::string& text) {
  while (unread_.find(text) == std::string::npos) {
    if (read_more()) continue;
    ADD_FAILURE() << "expected \"" << text << "\", found \"" << unread_ << "\"";
    return {};
  }
  const std::size_t end = unread_.find(text) + text.size();
  const std::string found = unread_.substr(0, end);
  unread_.erase(0, end);
  return found;
}

std::string Terminal::read_to_end() {
  while (read_more()) {
  }
  return std::move(unread_);
}

int Terminal::exit_code() {
  int status = 0;
  waitpid(child_, &status, 0);
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace subbyte
