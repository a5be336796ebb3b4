#include "app/plain_line.h"

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>

#include "app/output.h"
#include "app/wrap.h"
#include "unicode/utf8.h"

namespace subbyte::app {
namespace {

/// While it lives, each byte that is typed arrives at once, and nothing is shown.
class SingleBytes {
 public:
  SingleBytes() {
    tcgetattr(STDIN_FILENO, &usual_);
    begin();
  }
  SingleBytes(const SingleBytes&) = delete;
  SingleBytes& operator=(const SingleBytes&) = delete;
  ~SingleBytes() { tcsetattr(STDIN_FILENO, TCSADRAIN, &usual_); }

  /// Says whether `byte` is the key VERASE, VKILL, ... of the terminal.
  bool is_key(std::size_t key, char byte) const {
    return byte != _POSIX_VDISABLE && static_cast<cc_t>(byte) == usual_.c_cc[key];
  }

  /// Sends the signal of a key, for which the terminal is as it was.
  void raise_signal(int signal) {
    tcsetattr(STDIN_FILENO, TCSADRAIN, &usual_);
    raise(signal);
    begin();
  }

 private:
  void begin() {
    termios bytes = usual_;
    bytes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    bytes.c_cc[VMIN] = 1;
    bytes.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &bytes);
  }

  termios usual_{};
};

class PlainLine {
 public:
  explicit PlainLine(const std::string& prompt) : prompt_(prompt) { print(stderr, prompt); }

  std::optional<std::string> read() {
    char byte = 0;
    while (true) {
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count < 0 && errno == EINTR) continue;
      const bool ends = count <= 0 || terminal_.is_key(VEOF, byte);
      if (ends && text_.empty()) return std::nullopt;
      if (count <= 0) return text_;
      if (byte == '\n' || byte == '\r') {
        show("\n");
        return text_;
      }
      if (!ends) take(byte);
    }
  }

 private:
  void take(char byte) {
    if (terminal_.is_key(VINTR, byte)) return begin_anew(SIGINT, "^C\n");
    if (terminal_.is_key(VQUIT, byte)) return begin_anew(SIGQUIT, "^\\\n");
    if (terminal_.is_key(VSUSP, byte)) return begin_anew(SIGTSTP, "^Z\n");
    if (terminal_.is_key(VKILL, byte)) return erase_from(0);
    if (terminal_.is_key(VWERASE, byte)) return erase_from(begin_of_word());
    if (terminal_.is_key(VERASE, byte) || byte == '\b' || byte == '\x7F') {
      return erase_from(text_.empty() ? 0 : utf8::last_character(text_));
    }
    if (byte >= 0 && byte < ' ' && byte != '\t') return;
    text_ += byte;
    show(byte == '\t' ? " " : std::string_view(&byte, 1));
  }

  /// A signal that does not end the program discards what was typed, as terminals do.
  void begin_anew(int signal, std::string_view shown) {
    show(shown);
    text_.clear();
    terminal_.raise_signal(signal);
    print(stderr, prompt_);
  }

  std::size_t begin_of_word() const {
    const std::size_t last = text_.find_last_not_of(' ');
    if (last == text_.npos) return 0;
    return text_.find_last_of(' ', last) + 1;  // 0 where there is none
  }

  void erase_from(std::size_t begin) {
    for (std::size_t i = width_of(std::string_view(text_).substr(begin)); i > 0; --i) {
      show("\b \b");
    }
    text_.resize(begin);
  }

  /// On the terminal itself, wherever the other streams go; what cannot be shown is read all the
  /// same.
  void show(std::string_view text) const {
    static_cast<void>(::write(shown_on_, text.data(), text.size()) < 0);
  }

  SingleBytes terminal_;
  const std::string& prompt_;
  std::string text_;
  int shown_on_ =
      (fcntl(STDIN_FILENO, F_GETFL) & O_ACCMODE) == O_RDONLY ? STDERR_FILENO : STDIN_FILENO;
};

}  // namespace

std::optional<std::string> read_plain_line(const std::string& prompt) {
  return PlainLine(prompt).read();
}

}  // namespace subbyte::app
