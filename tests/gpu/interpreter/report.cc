#include "report.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "program.h"

namespace subbyte::interpreter {

thread_local constinit Place here;

namespace {

constexpr int kStatus = 70;  // of a process that was stopped; gtest ends with 0 or 1

void print_line(const char* format, va_list arguments) {
  std::fflush(nullptr);
  std::fputs("interpreter: ", stderr);
  std::vfprintf(stderr, format, arguments);
}

[[noreturn]] void end_with_place() {
  if (here.kernel != nullptr) {
    std::fprintf(stderr, ", at '%s' of %s, CTA %u %u %u, thread %d",
                 here.instruction != nullptr ? here.instruction->text.c_str() : "its begin",
                 here.kernel, here.cta[0], here.cta[1], here.cta[2], here.thread);
  }
  std::fputs("\n", stderr);
  std::_Exit(kStatus);
}

[[noreturn]] void on_signal(int number) {
  std::fprintf(stderr, "interpreter: signal %d", number);
  end_with_place();
}

}  // namespace

void stop(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_line(format, arguments);
  va_end(arguments);
  end_with_place();
}

void remark(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_line(format, arguments);
  va_end(arguments);
  std::fputs("\n", stderr);
}

void report_signals() {
  std::signal(SIGSEGV, on_signal);
  std::signal(SIGBUS, on_signal);
}

}  // namespace subbyte::interpreter
