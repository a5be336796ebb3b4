#include "errors.h"

#include <string>

#include "app/foreign_arguments.h"

namespace subbyte::python {

namespace nb = nanobind;

namespace {

PyObject* error_type = nullptr;  // never freed: errors come until the interpreter has ended

}  // namespace

void set_error_type(nb::object type) {
  error_type = type.release().ptr();
}

nb::object exception_of(const Error& error) {
  const std::string message = app::in_python(error.message);
  return nb::borrow(error_type)(nb::str(message.data(), message.size()),
                                nb::str(error.code.data(), error.code.size()));
}

void raise(const Error& error) {
  const nb::object exception = exception_of(error);
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  nb::raise_python_error();
}

std::string name_of_type(nb::handle object) {
  return nb::str(object.type().attr("__name__")).c_str();
}

}  // namespace subbyte::python
