#include "watch.h"

#include "gil.h"

namespace subbyte::python {

namespace nb = nanobind;

namespace {

constexpr std::chrono::milliseconds kInterval{50};

void raise_of_signals() {
  if (PyErr_CheckSignals() != 0) nb::raise_python_error();
}

}  // namespace

void run_signal_handlers() {
  with_gil(raise_of_signals);
}

bool is_interpreter_ending() {
  bool is_ending = true;
  with_gil([&] {
    PyObject* const asked = PySys_GetObject("is_finalizing");
    if (asked != nullptr) is_ending = nb::cast<bool>(nb::borrow(asked)());
  });
  return is_ending;
}

bool Watch::is_due() {
  const Clock::time_point now = Clock::now();
  if (now - last_ < kInterval) return false;
  last_ = now;
  return true;
}

void Watch::check() {
  if (is_due()) run_signal_handlers();
}

void Watch::progress(uint64_t done, uint64_t total) {
  if (!is_due() && done < total) return;
  with_gil([&] {
    raise_of_signals();
    if (!on_progress_.is_none()) on_progress_(done, total);
  });
}

}  // namespace subbyte::python
