#pragma once
// Two names of one field, and two files that say how the same weights are quantized: where they
// differ and a number depends on it, nobody knows which is meant.

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/config/kept_modules.h"
#include "json/strict_json.h"

namespace subbyte {

/// The name under which a field is there, of several that writers have for it; the first where it
/// is not. Values that differ, but for the case of words, are refused with `code`.
Result<std::string_view> one_name(const json::Object& object,
                                  std::initializer_list<std::string_view> names,
                                  std::string_view code);

/// A field of which another file says something else than the one that counts.
struct Disagreement {
  std::string file;      // "hf_quant_config.json"
  std::string expected;  // "quant_algo \"NVFP4\", as config.json says"
  std::string found;     // "\"FP8\"; config.json counts"
};

/// Compares what two sections say of the same fields, lists and overrides; what only one says is no
/// difference. Names, patterns and regular expressions are compared as they are written. Code
/// quantization.contradiction for what decides what the weights are: the version of GPTQ.
Status compare_sections(const json::Object& counts, std::string_view method,
                        const json::Object& other, std::string_view other_method,
                        const std::string& other_file, std::vector<Disagreement>& found);

/// Finds modules that a section names twice: among those that are quantized, each in an entry of
/// its own, and among those that are kept, and lists of one meaning with two names. Tensors tell
/// which is right. A regular expression among those that are quantized names modules that others
/// take out again, in all tools: that is no contradiction.
void find_named_twice(const json::Object& section, const KeptModules& kept,
                      std::vector<Disagreement>& found);

}  // namespace subbyte
