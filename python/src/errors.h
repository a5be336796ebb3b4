#pragma once
// Results as values and exceptions, and work without the GIL.

#include <nanobind/nanobind.h>

#include <utility>

#include "base/status.h"

namespace subbyte::python {

/// The exception subbyte.Error with the message and the code of `error`.
nanobind::object exception_of(const Error& error);

/// Raises it. With the GIL.
[[noreturn]] void raise(const Error& error);

/// The value of a result, or its error as an exception. With the GIL.
template <typename T>
T take(Result<T> result) {
  if (!result.ok()) raise(result.error());
  return std::move(result).value();
}
inline void take(const Status& status) {
  if (!status.ok()) raise(status.error());
}

/// The value of `work()`, which is called without the GIL and touches no object of Python.
template <typename Work>
auto without_gil(Work&& work) {
  const nanobind::gil_scoped_release released;
  return work();
}

}  // namespace subbyte::python
