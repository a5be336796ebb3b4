#include "checkpoints/foreign_software.h"

#include <fmt/format.h>

#include <algorithm>

namespace subbyte {
namespace {

struct Method {
  std::string_view quant_method;
  std::string_view name;
};

struct Tensors {
  std::string_view name;
  std::string_view first;  // what follows the module's name
  std::string_view second;
};

#define SUBBYTE_FOREIGN_TENSORS(name, first, second)
constexpr Method kMethods[] = {
#define SUBBYTE_FOREIGN_METHOD(quant_method, name) {quant_method, name},
#include "checkpoints/foreign_software.def"
#undef SUBBYTE_FOREIGN_METHOD
};
#undef SUBBYTE_FOREIGN_TENSORS

#define SUBBYTE_FOREIGN_METHOD(quant_method, name)
constexpr Tensors kTensors[] = {
#define SUBBYTE_FOREIGN_TENSORS(name, first, second) {name, first, second},
#include "checkpoints/foreign_software.def"
#undef SUBBYTE_FOREIGN_TENSORS
};
#undef SUBBYTE_FOREIGN_METHOD

}  // namespace

std::string_view foreign_method(std::string_view quant_method) {
  const auto found = std::ranges::find(kMethods, quant_method, &Method::quant_method);
  return found == std::end(kMethods) ? std::string_view() : found->name;
}

std::string_view foreign_weights(const TensorSource& tensors, std::string_view module) {
  for (const Tensors& one : kTensors) {
    const bool has_both = tensors.find(fmt::format("{}{}", module, one.first)) != nullptr &&
                          tensors.find(fmt::format("{}{}", module, one.second)) != nullptr;
    if (has_both) return one.name;
  }
  return {};
}

Error foreign_error(std::string_view code, std::string_view where, std::string_view name) {
  return {code,
          fmt::format("{}: found weights of {}, which are not supported; take the model in "
                      "16 bits, or in AWQ, GPTQ, compressed-tensors, FP8, MXFP4, NVFP4 or NF4",
                      where, name)};
}

}  // namespace subbyte
