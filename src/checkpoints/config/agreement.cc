#include "checkpoints/config/agreement.h"

#include <fmt/format.h>

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

bool are_same(const json::Value& a, const json::Value& b) {
  if (!a.is_string() || !b.is_string()) return a == b;
  return small_letters(a.get_ref<const std::string&>()) ==
         small_letters(b.get_ref<const std::string&>());
}

/// The first name that has a value; empty without one.
std::string_view name_in(const json::Object& object, const Field& field) {
  for (const std::string_view name : field.names) {
    if (!name.empty() && object.has(name)) return name;
  }
  return {};
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
      const auto bits = is_object ? value.find("bits") : value.end();
      const bool keeps = is_object && bits != value.end() && bits->is_number() && *bits >= 16;
      if (is_object && !keeps) names.push_back(name);
    }
  }
  const auto groups = section.object("config_groups");
  if (!groups.ok() || !*groups) return names;
  for (const auto& [group, value] : (*groups)->members()) {
    const auto targets = value.is_object() ? value.find("targets") : value.end();
    if (!value.is_object() || targets == value.end() || !targets->is_array()) continue;
    for (const json::Value& target : *targets) {
      const auto* const name = target.get_ptr<const std::string*>();
      if (name != nullptr && !name->starts_with("re:")) names.push_back(*name);
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
    return;  // one says enough
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
  return {};
}

}  // namespace subbyte
