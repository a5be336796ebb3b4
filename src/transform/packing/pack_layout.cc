#include "transform/packing/pack_layout.h"

#include <algorithm>
#include <array>

#include "base/small_letters.h"

namespace subbyte {

#define SUBBYTE_PACK_LAYOUT(name) extern const PackLayout name##_pack_layout;
#include "transform/packing/pack_layouts.def"
#undef SUBBYTE_PACK_LAYOUT

namespace {

constexpr std::array kLayouts = {
#define SUBBYTE_PACK_LAYOUT(name) &name##_pack_layout,
#include "transform/packing/pack_layouts.def"
#undef SUBBYTE_PACK_LAYOUT
};

}  // namespace

std::span<const PackLayout* const> all_pack_layouts() {
  return kLayouts;
}

std::vector<std::string> pack_layout_names() {
  std::vector<std::string> names;
  for (const PackLayout* layout : kLayouts) names.emplace_back(layout->name);
  return names;
}

const PackLayout* find_pack_layout(std::string_view name) {
  std::string usual = small_letters(name);
  std::ranges::replace(usual, '_', '-');
  const auto found = std::ranges::find(kLayouts, std::string_view(usual), &PackLayout::name);
  return found == kLayouts.end() ? nullptr : *found;
}

}  // namespace subbyte
