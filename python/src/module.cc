// The module subbyte._core.

#include <string>

#include "bindings.h"

#include <nanobind/stl/string.h>

#include "errors.h"
#include "held_session.h"
#include "host.h"
#include "subbyte/version.h"

NB_MODULE(_core, module) {
  // A daemon thread that the interpreter outruns keeps what it uses (gil.h): no mistake of callers.
  nanobind::set_leak_warnings(false);
  module.doc() = "The layers of subbyte. Use the package `subbyte`, which is made of these.";
  module.def(
      "version", [] { return std::string(subbyte::version()); },
      "The version of the library, such as \"0.1.0\".");
  module.def(
      "commit", [] { return std::string(subbyte::commit()); },
      "The commit that the library was built from; \"unknown\" outside of a checkout.");
  module.def(
      "forget_threads",
      [] {
        subbyte::python::Host::forget();
        subbyte::python::HeldSession::forget();
      },
      "Tells the child of a fork that no threads have come along.");
  module.def("set_error_type", &subbyte::python::set_error_type, nanobind::arg("type"),
             "Takes the class of errors, which is part of the package.");
  subbyte::python::add_tokenizer(module);
  subbyte::python::add_session(module);
  subbyte::python::add_matrix(module);
  subbyte::python::add_device_array(module);
  subbyte::python::add_checkpoint(module);
  subbyte::python::add_models(module);
  subbyte::python::add_foreign(module);
  subbyte::python::add_program(module);
}
