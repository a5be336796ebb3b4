#include "engine/modules.h"

#include <charconv>
#include <set>

namespace subbyte {
namespace {

constexpr std::string_view kExperts = "experts.";

bool starts_module(const ImportContext& context, const Importer& importer, const Tensor& tensor) {
  if (!tensor.name.ends_with(importer.anchor)) return false;
  // Many tensors are named ".weight"; unless an importer says so they are no matrices.
  const bool matrix = importer.anchor != ".weight" || tensor.shape.size() == 2;
  const auto module =
      std::string_view(tensor.name).substr(0, tensor.name.size() - importer.anchor.size());
  return matrix && importer.matches(context.tensors, module);
}

}  // namespace

std::vector<FoundModule> find_modules(const ImportContext& context) {
  std::vector<FoundModule> modules;
  std::set<std::string_view> used;
  for (const auto& [name, tensor] : context.tensors.tensors()) {
    for (const Importer* importer : all_importers()) {
      if (used.contains(name) || !starts_module(context, *importer, tensor)) continue;
      std::string module = name.substr(0, name.size() - importer->anchor.size());
      auto info = importer->describe(context, module);
      const bool understood = info.ok();
      if (understood) {
        for (const Tensor* part : info->tensors) used.insert(part->name);
      }
      modules.push_back({std::move(module), std::move(info)});
      if (!understood) break;
    }
  }
  return modules;
}

std::optional<ExpertName> parse_expert_name(std::string_view name) {
  const std::size_t experts = name.rfind(kExperts);
  if (experts == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(experts + kExperts.size());
  int64_t expert = 0;
  const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), expert);
  const auto digits = static_cast<std::size_t>(end - rest.data());
  const bool leading_zero = digits > 1 && rest.front() == '0';
  if (failure != std::errc() || expert < 0 || leading_zero || rest.front() == '-' ||
      digits + 1 >= rest.size() || rest[digits] != '.') {
    return std::nullopt;
  }
  std::string stack(name.substr(0, experts + kExperts.size()));
  stack += rest.substr(digits + 1);
  return ExpertName{std::move(stack), expert};
}

std::string expert_name(std::string_view stack, int64_t expert) {
  const std::string number = std::to_string(expert);
  const std::size_t experts = stack.rfind(kExperts);
  if (experts == std::string_view::npos) return std::string(stack) + "." + number;
  const std::size_t end = experts + kExperts.size();
  return std::string(stack.substr(0, end)) + number + "." + std::string(stack.substr(end));
}

}  // namespace subbyte
