#include "checkpoints/config/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/small_letters.h"

namespace subbyte {
namespace {

/// A field of a quantization config, which has several names.
struct Field {
  std::string_view names[2];
  bool decides_numbers = false;  // tensors do not tell which of two values is right
};

constexpr Field kFields[] = {{{"quant_algo", ""}},
                             {{"kv_cache_quant_algo", ""}},
                             {{"bits", "w_bit"}},
                             {{"group_size", "q_group_size"}},
                             {{"checkpoint_format", "format"}, true},
                             {{"zero_point", ""}},
                             {{"sym", ""}},
                             {{"desc_act", ""}}};

/// What single modules have instead, by names, patterns or regular expressions.
constexpr std::string_view kOverrides[] = {"dynamic", "extra_config", "quantized_layers",
                                           "config_groups"};

bool are_same(const json::Value& a, const json::Value& b) {
  if (!a.is_string() || !b.is_string()) return a == b;
  return small_letters(a.string()) == small_letters(b.string());
}

/// The first name that has a value; empty without one.
std::string_view name_in(const json::Object& object, const Field& field) {
  for (const std::string_view name : field.names) {
    if (!name.empty() && object.has(name)) return name;
  }
  return {};
}

using Entries = std::set<std::string, std::less<>>;

/// Of a list of modules that are not quantized; nullopt where there is none.
std::optional<Entries> entries_of(const json::Object& section, std::string_view key) {
  const json::Value* const list = section.find(key);
  if (list == nullptr || !list->is_array()) return std::nullopt;
  Entries entries;
  for (const json::Value& value : *list) {
    if (value.is_string()) entries.insert(value.string());
  }
  return entries;
}

/// Those of all lists of a section.
std::optional<Entries> kept_entries(const json::Object& section) {
  std::optional<Entries> all;
  for (const std::string_view key : kListsOfKept) {
    auto entries = entries_of(section, key);
    if (!entries) continue;
    if (!all) all.emplace();
    all->merge(*entries);
  }
  return all;
}

/// Adds the first entry that one list has and the other has not. Names and patterns are compared as
/// they are written: of two patterns nobody says that they mean the same.
void compare_lists(const std::optional<Entries>& counts, const std::string& where,
                   const std::optional<Entries>& other, const std::string& other_where,
                   std::vector<Disagreement>& found) {
  if (!counts || !other) return;
  const auto add_first = [&](const Entries& of, const Entries& without, std::string_view expected,
                             std::string_view seen) {
    const auto lacks = [&](const std::string& entry) { return !without.contains(entry); };
    const auto entry = std::ranges::find_if(of, lacks);
    if (entry == of.end()) return false;
    found.push_back({other_where,
                     fmt::format("{}{} among what is not quantized, as {} says", expected,
                                 quote(*entry), where),
                     std::string(seen)});
    return true;
  };
  if (add_first(*counts, *other, "", "a list without it")) return;
  add_first(*other, *counts, "no ", "a list with it");
}

using Overrides = std::map<std::string_view, const json::Value*>;

Overrides overrides_of(const json::Value& section) {
  Overrides overrides;
  for (const auto& [name, value] : section.items()) {
    overrides.emplace(name, &value);
  }
  return overrides;
}

/// The same with the words of fields in small letters. What lists hold is names and patterns, which
/// stay as they are written.
json::Value with_small_words(const json::Value& value) {
  if (value.is_string()) return small_letters(value.string());
  if (!value.is_object()) return value;
  json::Value small = json::Value::object();
  for (const auto& [name, member] : value.items()) small[name] = with_small_words(member);
  return small;
}

/// One text for values that say the same, whatever the order of keys and the case of words is.
std::string meaning_of(const Overrides& overrides, std::string_view name) {
  const auto found = overrides.find(name);
  if (found == overrides.end()) return "nothing";
  return json::to_text(json::sorted(with_small_words(*found->second)));
}

/// Adds the first entry of which two sections say something else.
void compare_overrides(const json::Value& counts, const std::string& what, const json::Value& other,
                       const std::string& other_where, std::vector<Disagreement>& found) {
  if (!counts.is_object() || !other.is_object()) return;
  const Overrides a = overrides_of(counts), b = overrides_of(other);
  Overrides all = a;
  all.insert(b.begin(), b.end());
  for (const auto& [name, value] : all) {
    const std::string expected = meaning_of(a, name), seen = meaning_of(b, name);
    if (expected == seen) continue;
    found.push_back({other_where, fmt::format("{} for {}, as {}", expected, quote(name), what),
                     fmt::format("{}, which does not count", seen)});
    return;
  }
}

/// Names of modules that have an entry of their own: ModelOpt's and AutoRound's, and exact targets
/// of compressed-tensors.
std::vector<std::string> modules_with_entries(const json::Object& section) {
  std::vector<std::string> names;
  for (const char* const key : {"quantized_layers", "extra_config"}) {
    const auto entries = section.object(key);
    if (!entries.ok() || !*entries) continue;
    for (const auto& [name, value] : (*entries)->members()) {
      const bool is_object = value.is_object();
      const json::Value& bits = value.at("bits");
      const bool keeps = bits.is_number() && bits.get<double>() >= 16;
      if (is_object && !keeps) names.push_back(name);
    }
  }
  const auto groups = section.object("config_groups");
  if (!groups.ok() || !*groups) return names;
  for (const auto& [group, value] : (*groups)->members()) {
    const json::Value& targets = value.at("targets");
    if (!targets.is_array()) continue;
    for (const json::Value& target : targets) {
      const bool is_name = target.is_string() && !target.string().starts_with("re:");
      if (is_name) names.push_back(target.string());
    }
  }
  return names;
}

}  // namespace

void find_named_twice(const json::Object& section, const KeptModules& kept,
                      std::vector<Disagreement>& found) {
  for (const std::string& name : modules_with_entries(section)) {
    const std::string_view entry = kept.entry_of(name);
    if (entry.empty()) continue;
    found.push_back(
        {"config.json", fmt::format("{} in one list of {}", quote(name), section.where()),
         fmt::format("it among what is quantized and, as {}, among what is not", quote(entry))});
    break;  // one says enough
  }
  std::string_view first;
  for (const std::string_view key : kListsOfKept) {
    if (!entries_of(section, key)) continue;
    if (first.empty()) first = key;
    compare_lists(entries_of(section, first), std::string(first), entries_of(section, key),
                  fmt::format("{}.{}", section.where(), key), found);
  }
}

Result<std::string_view> one_name(const json::Object& object,
                                  std::initializer_list<std::string_view> names,
                                  std::string_view code) {
  std::string_view first;
  for (const std::string_view name : names) {
    if (!object.has(name)) continue;
    if (first.empty()) {
      first = name;
    } else if (!are_same(*object.find(first), *object.find(name))) {
      return object.error(
          code, name, fmt::format("what {} says, {}", first, json::to_text(*object.find(first))));
    }
  }
  return first.empty() ? *names.begin() : first;
}

Status compare_sections(const json::Object& counts, std::string_view method,
                        const json::Object& other, std::string_view other_method,
                        const std::string& other_file, std::vector<Disagreement>& found) {
  if (method != other_method) {
    found.push_back({other_file,
                     fmt::format("weights of {}, as {} says", quote(method), counts.where()),
                     fmt::format("those of {}, which does not count", quote(other_method))});
  }
  for (const Field& field : kFields) {
    const std::string_view name = name_in(counts, field);
    const std::string_view other_name = name_in(other, field);
    if (name.empty() || other_name.empty()) continue;
    const json::Value& value = *counts.find(name);
    const json::Value& other_value = *other.find(other_name);
    if (are_same(value, other_value)) continue;
    if (field.decides_numbers && method != other_method) continue;  // another kind of field
    if (field.decides_numbers) {
      return other.error(
          "quantization.contradiction", other_name,
          fmt::format("{}, as {} says of {}", json::to_text(value), counts.where(), name));
    }
    found.push_back({other_file,
                     fmt::format("{} {}, as {} says", name, json::to_text(value), counts.where()),
                     fmt::format("{}, which does not count", json::to_text(other_value))});
  }
  if (method != other_method) return {};  // which has words of its own
  compare_lists(kept_entries(counts), counts.where(), kept_entries(other), other_file, found);
  for (const std::string_view key : kOverrides) {
    if (!counts.has(key) || !other.has(key)) continue;
    compare_overrides(*counts.find(key), fmt::format("{} of {} says", key, counts.where()),
                      *other.find(key), other_file, found);
  }
  return {};
}

}  // namespace subbyte
