#pragma once
// Results as values and exceptions.

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "base/status.h"

namespace subbyte::python {

/// Takes the class subbyte.Error, which the package defines: while the interpreter ends nothing can
/// be imported.
void set_error_type(nanobind::object type);

/// The exception subbyte.Error with the message and the code of `error`; options of the program in
/// it are called what they are in Python.
nanobind::object exception_of(const Error& error);

/// Raises it. With the GIL.
[[noreturn]] void raise(const Error& error);

/// What the type of an object is called, for messages.
std::string name_of_type(nanobind::handle object);

/// The value of a result, or its error as an exception. With the GIL.
template <typename T>
T take(Result<T> result) {
  if (!result.ok()) raise(result.error());
  return std::move(result).value();
}
inline void take(const Status& status) {
  if (!status.ok()) raise(status.error());
}

}  // namespace subbyte::python
