#include "checkpoints/modules.h"

#include <set>

#include "checkpoints/unread_parts.h"

namespace subbyte {
namespace {

bool starts_module(const ImportContext& context, const Importer& importer,
                   const FileTensor& tensor) {
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
      auto info = describe_with(*importer, context, module);
      const bool understood = info.ok();
      if (understood) {
        for (const FileTensor* part : info->tensors) used.insert(part->name);
      }
      const bool is_read = !is_in_unread_part(module);
      modules.push_back({std::move(module), std::move(info), is_read});
      if (!understood) break;
    }
  }
  return modules;
}

}  // namespace subbyte
