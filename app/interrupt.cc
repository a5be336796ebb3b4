#include "app/interrupt.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <string_view>

#include "app/arguments.h"
#include "app/destination.h"
#include "app/output.h"
#include "base/output_directory.h"

namespace subbyte::app {
namespace {

volatile std::sig_atomic_t was_interrupted = 0;
void (*volatile usual_handler)(int) = SIG_DFL;

constexpr int kSignalBase = 128;

/// What a handler may read; the note of a job. Nothing of it is said before `lines` is set.
struct Note {
  std::atomic<bool> goes_on{false};
  std::atomic<int64_t> answered{0};
  std::atomic<int64_t> lines{0};
};
constinit Note job_note;
constinit std::atomic<bool> bar_shown{false};
constinit std::atomic<bool> written{false};
constinit std::atomic_flag ending = ATOMIC_FLAG_INIT;

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
  /// A path from the command line, without the characters that a terminal would obey.
  void add_path(const char* path) {
    for (std::size_t i = 0; path[i] != '\0'; ++i) {
      const auto c = static_cast<unsigned char>(path[i]);
      const bool is_c1 = i > 0 && static_cast<unsigned char>(path[i - 1]) == 0xC2 && c < 0xA0;
      const char plain = c < 0x20 || c == 0x7F || is_c1 ? '?' : path[i];
      add(std::string_view(&plain, 1));
    }
  }
  /// What cannot be written is lost.
  void write() const { static_cast<void>(::write(STDERR_FILENO, text_.data(), size_) < 0); }

 private:
  std::array<char, 5000> text_{};  // a path and a sentence
  std::size_t size_ = 0;
};

/// A page of a mapped file was not there any more: of weights that another process writes to.
void write_cut_short() {
  SignalText text;
  text.add("subbyte: error: a file was cut short while it was read [file.changed]\n");
  text.write();
  if (!prints_errors_as_json()) return;
  constexpr std::string_view kJson =
      R"({"error":{"code":"file.changed","message":"a file was cut short while it was read"}})"
      "\n";
  static_cast<void>(::write(STDOUT_FILENO, kJson.data(), kJson.size()) < 0);
}

/// How far a job is; false where there is none.
bool add_job(SignalText& text) {
  const int64_t lines = job_note.lines;
  if (lines == 0) return false;
  text.add("subbyte: stopped: ");
  text.add(job_note.answered);
  text.add(" of ");
  text.add(lines);
  text.add(job_note.goes_on ? " lines answered; the same command goes on\n" : " lines answered\n");
  return true;
}

/// What there is of an output directory; false where there is nothing to say.
bool add_directory(SignalText& text, const char* unfinished, const char* whole) {
  const char* const path = unfinished != nullptr ? unfinished : whole;
  if (path == nullptr) return false;
  text.add("subbyte: stopped; ");
  text.add_path(path);
  text.add(unfinished == nullptr
               ? " is written and whole\n"
               : " keeps what is finished, the same command goes on with it, `subbyte clean` "
                 "removes it\n");
  return true;
}

/// Of a pipe nobody reads, which ends `subbyte ... | head` as it should, nothing is said.
bool is_said(int signal) {
  return signal != SIGPIPE && signal != SIGBUS && !is_quiet();
}

/// A thread handles one signal at a time.
void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

extern "C" void end_by_signal(int signal) {
  // A page that is not there meets several threads at once: the first of them speaks.
  while (ending.test_and_set()) ::pause();
  const char* const unfinished = remove_partial_outputs();
  const char* const whole = undo_destinations();
  SignalText text;
  // What a terminal shows of Ctrl-C itself, "^C", is no part of a line of ours.
  if (bar_shown) {
    text.add("\r\033[K");
  } else if (signal == SIGINT && ::isatty(STDERR_FILENO) != 0) {
    text.add("\n");
  }
  const bool has_said = add_job(text) || add_directory(text, unfinished, whole);
  if (!has_said && is_said(signal)) {
    text.add(written ? "subbyte: stopped\n" : "subbyte: stopped; nothing was written\n");
  }
  text.write();
  if (signal == SIGBUS) write_cut_short();
  _exit(signal == SIGBUS ? static_cast<int>(kFailure) : kSignalBase + signal);
}

extern "C" void note_interrupt(int signal) {
  was_interrupted = 1;
  set_handler(signal, usual_handler);
}

}  // namespace

/// Asked without setting another one, which would miss a Ctrl-C.
Interruptible::Interruptible() {
  struct sigaction usual {};
  sigaction(SIGINT, nullptr, &usual);
  usual_ = usual.sa_handler;
  usual_handler = usual_;
  begin();
}

Interruptible::~Interruptible() {
  set_handler(SIGINT, usual_);
}

void Interruptible::begin() {
  was_interrupted = 0;
  set_handler(SIGINT, note_interrupt);
}

bool Interruptible::interrupted() const {
  return was_interrupted != 0;
}

StopNote::StopNote(bool goes_on) {
  job_note.goes_on = goes_on;
}

StopNote::~StopNote() {
  job_note.lines = 0;
}

void StopNote::set(int64_t answered, int64_t lines) {
  job_note.answered = answered;
  job_note.lines = lines;
}

void set_bar_shown(bool shown) noexcept {
  bar_shown = shown;
}

void set_written() noexcept {
  written = true;
}

void handle_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU, SIGBUS}) {
    set_handler(signal, end_by_signal);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error of write(), not a death
}

}  // namespace subbyte::app
