#include "gil.h"

#include <unistd.h>

namespace subbyte::python {

namespace {

thread_local PyThreadState* given = nullptr;

}  // namespace

void sleep_for_ever() {
  for (;;) pause();
}

PyThreadState* give_gil() {
  given = PyEval_SaveThread();
  return given;
}

PyThreadState* given_state() {
  return given;
}

void take_gil(PyThreadState* state) {
  given = nullptr;
  try {
    PyEval_RestoreThread(state);
  } catch (abi::__forced_unwind&) {
    sleep_for_ever();
  }
}

}  // namespace subbyte::python
