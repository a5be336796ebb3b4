#include "checkpoints/containers/unsloth_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace subbyte {
namespace {

constexpr std::string_view kRouter = ".mlp.router.linear.";
constexpr std::array kLists = {
    std::pair{std::string_view(".mlp.experts.gate_up_projs."), std::string_view("gate_up_proj")},
    std::pair{std::string_view(".mlp.experts.down_projs."), std::string_view("down_proj")}};

/// The name that models know, or `name`.
std::string renamed(std::string_view name) {
  if (const auto at = name.find(kRouter); at != name.npos) {
    return fmt::format("{}.mlp.router.{}", name.substr(0, at), name.substr(at + kRouter.size()));
  }
  for (const auto& [list, matrix] : kLists) {
    const auto at = name.find(list);
    if (at == name.npos) continue;
    const std::string_view rest = name.substr(at + list.size());  // "3.weight"
    const std::size_t digits = rest.find_first_not_of("0123456789");
    if (digits == 0 || digits == rest.npos || rest[digits] != '.') continue;
    return fmt::format("{}.mlp.experts.{}.{}{}", name.substr(0, at), rest.substr(0, digits), matrix,
                       rest.substr(digits));
  }
  return std::string(name);
}

}  // namespace

bool has_unsloth_names(const TensorMap& tensors) {
  return std::ranges::any_of(tensors, [](const auto& tensor) {
    return std::ranges::any_of(kLists, [&](const auto& list) {
      return tensor.first.find(list.first) != std::string::npos;
    });
  });
}

Result<TensorMap> without_unsloth_names(const TensorMap& tensors) {
  TensorMap result;
  for (const auto& [name, tensor] : tensors) {
    FileTensor other = tensor;
    other.name = renamed(name);
    SUBBYTE_CHECK(add_renamed(result, std::move(other), "unsloth"));
  }
  return result;
}

}  // namespace subbyte
