#include "checkpoints/modules.h"

#include <set>

#include "checkpoints/unread_parts.h"

namespace subbyte {
namespace {

/// What follows the names of modules in tensors that importers know them by, each once.
std::set<std::string_view> anchors() {
  std::set<std::string_view> all;
  for (const Importer* const importer : all_importers()) all.insert(importer->anchor);
  return all;
}

}  // namespace

std::vector<FoundModule> find_modules(const ImportContext& context) {
  std::vector<FoundModule> modules;
  std::set<std::string_view> used;
  std::set<std::string> refused;  // modules, as none of their tensors are used
  const std::set<std::string_view> all_anchors = anchors();
  for (const auto& [name, tensor] : context.tensors.tensors()) {
    for (const std::string_view anchor : all_anchors) {
      if (used.contains(name) || !name.ends_with(anchor)) continue;
      // Many tensors are named ".weight"; of more or fewer dimensions they are no matrices.
      if (anchor == ".weight" && tensor.shape.size() != 2) continue;
      std::string module = name.substr(0, name.size() - anchor.size());
      const auto importer = find_importer(context.tensors, module);
      if (importer.ok() && (*importer == nullptr || (*importer)->anchor != anchor)) continue;
      if (!importer.ok() && !refused.insert(module).second) continue;
      auto info = importer.ok() ? describe_with(**importer, context, module) : importer.error();
      if (info.ok()) {
        for (const FileTensor* part : info->tensors) used.insert(part->name);
      }
      const bool is_read = !is_in_unread_part(context.tensors, module);
      modules.push_back({std::move(module), std::move(info), is_read});
      break;
    }
  }
  return modules;
}

}  // namespace subbyte
