#include "models/layer_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "json/strict_json.h"

namespace subbyte {

Result<std::vector<bool>> read_layer_numbers(const json::Object& config, std::string_view key,
                                             int64_t num_layers) {
  std::vector<bool> layers(static_cast<std::size_t>(num_layers), false);
  if (!config.has(key)) return layers;
  const json::Value& numbers = *config.find(key);
  const auto is_integer = [](const json::Value& i) { return i.is_number_integer(); };
  if (!numbers.is_array() || !std::ranges::all_of(numbers, is_integer)) {
    return config.error("config.layer_types", key, "an array of integers");
  }
  for (const json::Value& i : numbers) {
    const bool is_layer = i.is_number_unsigned() && i.get<uint64_t>() < layers.size();
    if (is_layer) layers[i.get<uint64_t>()] = true;
  }
  return layers;
}

Result<std::optional<std::vector<int>>> read_layer_kinds(const json::Object& config,
                                                         std::string_view key,
                                                         std::span<const std::string_view> known,
                                                         int64_t num_layers) {
  if (!config.has(key)) return std::optional<std::vector<int>>();
  const json::Value& kinds = *config.find(key);
  std::vector<int> places;
  for (std::size_t i = 0; kinds.is_array() && i < kinds.size(); ++i) {
    const auto found =
        std::ranges::find_if(known, [&](std::string_view name) { return kinds[i] == name; });
    if (found == known.end()) break;
    places.push_back(static_cast<int>(found - known.begin()));
  }
  const bool are_all = kinds.is_array() && places.size() == kinds.size();
  if (are_all && std::ssize(places) == num_layers) return std::optional(std::move(places));
  return config.error(
      "config.layer_types", key,
      fmt::format("an array of {} strings, each one of {}", num_layers, fmt::join(known, ", ")));
}

}  // namespace subbyte
