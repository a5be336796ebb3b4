#pragma once
// The GIL, given and taken by threads that the interpreter may outrun.
//
// A daemon thread that wants the GIL after the interpreter has ended never gets it: CPython ends
// the thread where it stands, by unwinding its stack (from 3.14 on it sleeps for ever). A stack
// with C++ on it cannot be unwound from everywhere, so such a thread sleeps here, and the process
// ends without it: as with a library of C, in silence.

#include <nanobind/nanobind.h>

#include <cxxabi.h>

#include <utility>

namespace subbyte::python {

/// Where a thread stays that the interpreter has outrun.
[[noreturn]] void sleep_for_ever();

/// Takes the GIL that PyEval_SaveThread() has given.
void take_gil(PyThreadState* state);

/// The value of `work()`, which is called without the GIL and touches no object of Python.
template <typename Work>
auto without_gil(Work&& work) {
  PyThreadState* const state = PyEval_SaveThread();
  try {
    auto result = work();
    take_gil(state);
    return result;
  } catch (abi::__forced_unwind&) {
    sleep_for_ever();
  } catch (...) {
    take_gil(state);
    throw;
  }
}

/// Calls `work()` with the GIL, from a thread that has none.
template <typename Work>
void with_gil(Work&& work) {
  PyGILState_STATE state{};
  try {
    state = PyGILState_Ensure();
    work();
  } catch (abi::__forced_unwind&) {
    sleep_for_ever();
  } catch (...) {
    PyGILState_Release(state);
    throw;
  }
  PyGILState_Release(state);
}

}  // namespace subbyte::python
