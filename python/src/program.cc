// The command line, in this process.

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "app/program.h"
#include "bindings.h"
#include "errors.h"
#include "gil.h"

namespace subbyte::python {

namespace nb = nanobind;

namespace {

int run(const std::vector<std::string>& arguments) {
  std::vector<std::string> copies = arguments;
  std::vector<char*> pointers;
  for (std::string& text : copies) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return without_gil(
      [&] { return app::run_program(static_cast<int>(copies.size()), pointers.data()); });
}

}  // namespace

void add_program(nb::module_& module) {
  module.def("run_program", &run, nb::arg("arguments"),
             "Runs the command line, whose arguments begin with the name of the program, and "
             "returns its exit code. Signals are the program's from then on: for a process that "
             "does nothing else.");
}

}  // namespace subbyte::python
