#include "engine/find_modules.h"

namespace subbyte {

std::vector<FoundModule> find_modules(const ImportContext& context,
                                      std::set<std::string, std::less<>>& used) {
  std::vector<FoundModule> found;
  for (const auto& [name, tensor] : context.tensors.tensors()) {
    for (const Importer* importer : all_importers()) {
      if (used.contains(name) || !name.ends_with(importer->anchor)) continue;
      std::string module = name.substr(0, name.size() - importer->anchor.size());
      const bool matrix = importer->anchor != ".weight" || tensor.shape.size() == 2;
      if (!matrix || !importer->matches(context.tensors, module)) continue;
      auto info = importer->describe(context, module);
      found.push_back({std::move(module), std::move(info)});
      if (!found.back().info.ok()) break;
      for (const Tensor* part : found.back().info->tensors) used.insert(part->name);
    }
  }
  return found;
}

}  // namespace subbyte
