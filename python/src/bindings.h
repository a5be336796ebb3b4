#pragma once
// The parts of the module subbyte._core, a file each. What Python sees of them is thin: classes of
// the layers and their functions, without defaults and without checks that the layers have
// themselves. subbyte/*.py make of it what people call.

#include <nanobind/nanobind.h>

namespace subbyte::python {

void add_tokenizer(nanobind::module_& module);
void add_session(nanobind::module_& module);
void add_matrix(nanobind::module_& module);
void add_device_array(nanobind::module_& module);
void add_checkpoint(nanobind::module_& module);
void add_models(nanobind::module_& module);
void add_foreign(nanobind::module_& module);
void add_program(nanobind::module_& module);

}  // namespace subbyte::python
