#pragma once
// Names what other software wrote, so that its weights are refused by name and not by what they
// happen to look like. foreign_software.def lists it.

#include <string_view>

#include "base/status.h"
#include "checkpoints/containers/tensor_source.h"

namespace subbyte {

/// Software, or a format of it, that has this quant_method; empty where none is known.
std::string_view foreign_method(std::string_view quant_method);

/// The same by the tensors of a module.
std::string_view foreign_weights(const TensorSource& tensors, std::string_view module);

/// "WHERE: found weights of NAME, which are not supported; ...", and what helps.
Error foreign_error(std::string_view code, std::string_view where, std::string_view name);

}  // namespace subbyte
