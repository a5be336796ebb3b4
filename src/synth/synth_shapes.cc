#include "synth/synth_shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace subbyte {
namespace {

/// The architectures of a family.
std::vector<std::string_view> archs_of(const ModelFamily& family) {
  std::vector<std::string_view> archs;
  for (const ModelShape& shape : family.shapes) {
    if (std::ranges::find(archs, shape.arch) == archs.end()) archs.push_back(shape.arch);
  }
  return archs;
}

}  // namespace

std::string_view usual_arch() {
  return all_families().front()->shapes.front().arch;
}

const ModelShape* find_shape(std::string_view arch, std::string_view name) {
  for (const ModelFamily* family : all_families()) {
    for (const ModelShape& shape : family->shapes) {
      if (shape.arch == arch && shape.name == name) return &shape;
    }
  }
  return nullptr;
}

const ModelFamily& family_of(const ModelShape& shape) {
  return **std::ranges::find_if(all_families(), [&](const ModelFamily* family) {
    return std::ranges::find(family->shapes, shape.arch, &ModelShape::arch) != family->shapes.end();
  });
}

std::string shape_archs() {
  std::vector<std::string_view> archs;
  for (const ModelFamily* family : all_families()) {
    std::ranges::copy(archs_of(*family), std::back_inserter(archs));
  }
  return fmt::format("{}", fmt::join(archs, ", "));
}

std::string shape_names(std::string_view arch) {
  std::vector<std::string_view> names;
  for (const ModelFamily* family : all_families()) {
    for (const ModelShape& shape : family->shapes) {
      if (shape.arch == arch) names.push_back(shape.name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string all_shape_names() {
  std::vector<std::string> texts;
  for (const ModelFamily* family : all_families()) {
    for (const std::string_view arch : archs_of(*family)) {
      texts.push_back(fmt::format("{}: {}", arch, shape_names(arch)));
    }
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

SyntheticWeights find_synthetic_format(std::string_view name) {
  for (const Exporter* const exporter : all_exporters()) {
    for (const SyntheticFormat& format : exporter->synthetic) {
      if (format.name == name) return {exporter, &format};
    }
  }
  return {};
}

std::vector<std::string_view> synthetic_formats(const ModelFamily& family) {
  const bool has_stacks = family.experts == ExpertLayout::kAlternatingStacks;
  std::vector<std::string_view> names;
  for (const Exporter* const exporter : all_exporters()) {
    if ((exporter->write_experts != nullptr) != has_stacks) continue;
    for (const SyntheticFormat& format : exporter->synthetic) names.push_back(format.name);
  }
  names.push_back("bf16");
  return names;
}

std::string all_synthetic_formats() {
  std::map<std::string, std::vector<std::string_view>> archs;  // by the list of their formats
  for (const ModelFamily* const family : all_families()) {
    auto& same = archs[fmt::format("{}", fmt::join(synthetic_formats(*family), ", "))];
    std::ranges::copy(archs_of(*family), std::back_inserter(same));
  }
  const auto number = [](const auto& each) { return each.second.size(); };
  const std::string usual = std::ranges::max_element(archs, {}, number)->first;
  std::string text;
  for (const auto& [formats, some] : archs) {
    if (formats != usual) text += fmt::format("{}: {}; ", fmt::join(some, ", "), formats);
  }
  return text + "others: " + usual;
}

}  // namespace subbyte
