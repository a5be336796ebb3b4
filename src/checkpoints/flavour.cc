#include "checkpoints/flavour.h"

#include <algorithm>
#include <array>

#include "base/small_letters.h"

namespace subbyte {
namespace {

constexpr std::array kFlavours = {
#define SUBBYTE_FLAVOUR(name) &name##_flavour,
#include "checkpoints/flavours.def"
#undef SUBBYTE_FLAVOUR
};

constexpr json::ScopedRule kSharedRules[] = {
#include "checkpoints/shared_keys.def"
};

}  // namespace

std::span<const Flavour* const> all_flavours() {
  return kFlavours;
}

const Flavour* find_flavour(std::string_view quant_method) {
  const std::string word = small_letters(quant_method);
  const auto found = std::ranges::find_if(kFlavours, [&](const Flavour* flavour) {
    return flavour->read != nullptr && !word.empty() &&
           (flavour->name == word || flavour->other_name == word);
  });
  return found == kFlavours.end() ? nullptr : *found;
}

std::vector<json::KeyRule> flavour_rules(std::string_view scope) {
  std::vector<json::KeyRule> rules;
  const auto add = [&](std::span<const json::ScopedRule> of_keys) {
    std::ranges::copy(json::rules_of(of_keys, scope), std::back_inserter(rules));
  };
  add(kSharedRules);
  for (const Flavour* const flavour : kFlavours) add(flavour->keys);
  return rules;
}

void add_unknown_keys(const json::Object& section, const std::string& prefix,
                      std::string_view scope, std::vector<std::string>& keys) {
  for (const std::string& key : json::unknown_keys(section, flavour_rules(scope))) {
    keys.push_back(prefix + key);
  }
}

}  // namespace subbyte
