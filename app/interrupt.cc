#include "app/interrupt.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <string_view>

#include "app/terminal.h"

namespace subbyte::app {
namespace {

volatile std::sig_atomic_t was_interrupted = 0;
void (*volatile usual_handler)(int) = SIG_DFL;

/// What a handler may read; the note of a job. Nothing of it is said before `lines` is set.
struct Note {
  std::atomic<bool> goes_on{false};
  std::atomic<bool> has_bar{false};
  std::atomic<int64_t> answered{0};
  std::atomic<int64_t> lines{0};
};
constinit Note job_note;

/// A line that is put together without allocating.
class SignalText {
 public:
  void add(std::string_view text) {
    for (const char c : text) {
      if (size_ < text_.size()) text_[size_++] = c;
    }
  }
  void add(int64_t number) {
    std::array<char, 20> digits{};
    std::size_t at = digits.size();
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    add(std::string_view(digits.data() + at, digits.size() - at));
  }
  /// What cannot be written is lost.
  void write() const { static_cast<void>(::write(STDERR_FILENO, text_.data(), size_) < 0); }

 private:
  std::array<char, 256> text_{};
  std::size_t size_ = 0;
};

extern "C" void note_interrupt(int signal) {
  was_interrupted = 1;
  std::signal(signal, usual_handler);
}

}  // namespace

Interruptible::Interruptible() : usual_(std::signal(SIGINT, SIG_IGN)) {
  usual_handler = usual_;
  begin();
}

Interruptible::~Interruptible() {
  std::signal(SIGINT, usual_);
}

void Interruptible::begin() {
  was_interrupted = 0;
  std::signal(SIGINT, note_interrupt);
}

bool Interruptible::interrupted() const {
  return was_interrupted != 0;
}

StopNote::StopNote(bool goes_on) {
  job_note.goes_on = goes_on;
  job_note.has_bar = moves_cursor();
}

StopNote::~StopNote() {
  job_note.lines = 0;
}

void StopNote::set(int64_t answered, int64_t lines) {
  job_note.answered = answered;
  job_note.lines = lines;
}

void write_stop_note() noexcept {
  const int64_t lines = job_note.lines;
  if (lines == 0) return;
  SignalText text;
  text.add(job_note.has_bar ? "\r\033[K" : "");
  text.add("subbyte: stopped: ");
  text.add(job_note.answered);
  text.add(" of ");
  text.add(lines);
  text.add(job_note.goes_on ? " lines answered; the same command goes on\n" : " lines answered\n");
  text.write();
}

}  // namespace subbyte::app
