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

/// Gives the GIL away. The state is kept for with_gil() of this thread, too.
PyThreadState* give_gil();

/// Takes the GIL that give_gil() has given.
void take_gil(PyThreadState* state);

/// The state with which this thread has given the GIL; null where it has it or never had one.
PyThreadState* given_state();

/// The value of `work()`, which is called without the GIL and touches no object of Python.
template <typename Work>
auto without_gil(Work&& work) {
  PyThreadState* const state = give_gil();
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

/// Calls `work()` with the GIL, from a thread that has none. PyGILState_Ensure() may not be called
/// once the interpreter has ended; what a thread gave can be asked back even then.
template <typename Work>
void with_gil(Work&& work) {
  PyThreadState* const state = given_state();
  PyGILState_STATE ensured{};
  const auto give_back = [&] { state != nullptr ? void(give_gil()) : PyGILState_Release(ensured); };
  try {
    if (state != nullptr) {
      take_gil(state);
    } else {
      ensured = PyGILState_Ensure();
    }
    work();
  } catch (abi::__forced_unwind&) {
    sleep_for_ever();
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
}

}  // namespace subbyte::python
