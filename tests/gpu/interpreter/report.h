#pragma once

#include <cstdint>

namespace subbyte::interpreter {

struct Instruction;

/// The instruction that is being interpreted, for reports.
struct Place {
  const char* kernel = nullptr;
  const Instruction* instruction = nullptr;
  uint32_t cta[3] = {};
  int thread = -1;
};
extern thread_local constinit Place here;

/// Ends the process with one line: the mistake and, within a kernel, where it is.
[[noreturn, gnu::format(printf, 1, 2)]] void stop(const char* format, ...);

/// Says what a call did wrong, where CUDA itself answers with an error that a test may expect.
[[gnu::format(printf, 1, 2)]] void remark(const char* format, ...);

/// Lets a signal of bad memory end the process as stop() does.
void report_signals();

}  // namespace subbyte::interpreter
