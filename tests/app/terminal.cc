#include "app/terminal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/paths.h"

namespace subbyte {
namespace {

constexpr int kPatienceMs = 20'000;

}  // namespace

Terminal::Terminal(const std::vector<std::string>& arguments,
                   const std::map<std::string, std::string>& environment, int columns) {
  const winsize size = {24, static_cast<unsigned short>(columns), 0, 0};
  child_ = forkpty(&terminal_, nullptr, nullptr, &size);
  if (child_ != 0) return;
  setenv("TERM", "xterm", 1);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv = {const_cast<char*>("subbyte")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(kProgramPath, argv.data());
  _exit(126);
}

Terminal::~Terminal() {
  if (child_ > 0) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  close(terminal_);
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
