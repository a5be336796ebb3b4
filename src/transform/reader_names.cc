#include "transform/reader_names.h"

#include <string>
#include <string_view>
#include <utility>

#include "models/model_config.h"

namespace subbyte {
namespace {

constexpr std::string_view kText = "model.";
constexpr std::string_view kWrapped = "model.language_model.";
constexpr std::string_view kOlderWrapped = "language_model.model.";
constexpr std::string_view kOlderHead = "language_model.lm_head";

std::string reader_name(std::string name, std::string_view prefix) {
  if (name == kOlderHead) return "lm_head";
  for (const std::string_view found : {kWrapped, kOlderWrapped}) {
    if (name.starts_with(found)) return name.replace(0, found.size(), prefix);
  }
  return name;
}

}  // namespace

ExportedModel named_for_readers(ExportedModel model, const json::Value& config) {
  const bool is_wrapper = config.is_object() && config.contains(kTextConfig);
  const std::string_view prefix = is_wrapper ? kWrapped : kText;
  for (ExportedModule& module : model.modules) {
    module.name = reader_name(std::move(module.name), prefix);
  }
  for (std::string& name : model.kept) name = reader_name(std::move(name), prefix);
  return model;
}

}  // namespace subbyte
