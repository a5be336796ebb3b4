#include "checkpoints/flavour.h"

#include <algorithm>
#include <array>

#include "base/small_letters.h"

namespace subbyte {

#define SUBBYTE_FLAVOUR(name) extern const Flavour name##_flavour;
#include "checkpoints/flavours.def"
#undef SUBBYTE_FLAVOUR

namespace {

constexpr std::array kFlavours = {
#define SUBBYTE_FLAVOUR(name) &name##_flavour,
#include "checkpoints/flavours.def"
#undef SUBBYTE_FLAVOUR
};

constexpr json::ScopedRule kSharedRules[] = {
#include "checkpoints/flavours/shared_keys.def"
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
  std::vector<json::KeyRule> rules = json::rules_of(kSharedRules, scope);
  for (const Flavour* const flavour : kFlavours) {
    const std::vector<json::KeyRule> own = json::rules_of(flavour->keys, scope);
    rules.insert(rules.end(), own.begin(), own.end());
  }
  return rules;
}

void add_unknown_keys(const json::Object& section, const std::string& prefix,
                      std::string_view scope, std::vector<std::string>& keys) {
  for (const std::string& key : json::unknown_keys(section, flavour_rules(scope))) {
    keys.push_back(prefix + key);
  }
}

}  // namespace subbyte
