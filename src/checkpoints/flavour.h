#pragma once
// A flavour is a way in which tools store quantized weights: the words by which a config names it,
// what its config says, the tensors of a module, and how they become canonical matrices and back.
// Each is one struct in a file of flavours/ and one line in flavours.def. Several may hold one
// model. The container of the tensors (containers/) is another matter, of which it knows nothing.

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/exporter.h"
#include "checkpoints/importer.h"
#include "json/key_rules.h"

/// A rule of some keys of a flavour, with blanks between them; `note` is for docs/model_files.md
/// (tools/key_tables.py).
#define SUBBYTE_FLAVOUR_KEY(scopes, keys, use, neutral, note) \
  json::ScopedRule {                                          \
    scopes, {                                                 \
      keys, json::KeyUse::use, neutral                        \
    }                                                         \
  }

namespace subbyte {

/// A few objects of other places.
template <typename T, std::size_t max>
struct Few {
  std::array<const T*, max> objects = {};

  constexpr auto begin() const { return objects.begin(); }
  constexpr auto end() const { return std::ranges::find(objects, nullptr); }
};

struct Flavour {
  std::string_view name;             // quant_method
  std::string_view other_name = {};  // the same, elsewhere
  std::string_view side_file = {};   // has the section where config.json has none
  /// Rules of the keys that it alone has, by their scope: its name, or that of a section inside.
  std::span<const json::ScopedRule> keys = {};
  /// Reads the section of a config into a state of its own. nullptr: no config describes it.
  Status (*read)(const json::Object& section, QuantizationConfig& config) = nullptr;
  /// Adds keys of sections inside of the section that no rule names.
  void (*find_unknown)(const json::Object& section, const std::string& prefix,
                       std::vector<std::string>& keys) = nullptr;
  /// Suffix of a tensor that its tools leave beside a module that they did not quantize.
  std::string_view left_over = {};
  /// The first that matches a module reads it.
  Few<Importer, 8> importers = {};
  Few<Exporter, 8> exporters = {};
  /// Chooses the exporter that holds weights in all of these formats, where each holds some.
  /// nullptr: people say which.
  const Exporter* (*choose)(std::span<const WeightFormat> formats) = nullptr;
};

#define SUBBYTE_FLAVOUR(name) extern const Flavour name##_flavour;
#include "checkpoints/flavours.def"
#undef SUBBYTE_FLAVOUR

std::span<const Flavour* const> all_flavours();

/// The flavour that a quant_method names, in letters of any case; nullptr when none is.
const Flavour* find_flavour(std::string_view quant_method);

/// Rules of the keys of a flavour's section, or of a section inside of one ("ct-group").
std::vector<json::KeyRule> flavour_rules(std::string_view scope);

/// Adds the keys of a section that no rule of `scope` names.
void add_unknown_keys(const json::Object& section, const std::string& prefix,
                      std::string_view scope, std::vector<std::string>& keys);

}  // namespace subbyte
