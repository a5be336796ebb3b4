#pragma once
// config.json of a model in GGUF.

#include "json/strict_json.h"
#include "models/gguf_architecture.h"

namespace subbyte {

/// Codes: gguf.value for keys that say what no model has, or what is not computed; with `problems`
/// all of these are added there, and the first is the error.
Result<json::Value> gguf_config(const GgufModel& model, const GgufArchitecture& architecture,
                                std::vector<Error>* problems = nullptr);

/// "ARCHITECTURE.NAME", by the architecture of the file.
std::string gguf_key_in(const GgufFile& file, std::string_view name);

/// A whole number that a key after "ARCHITECTURE." says; of a list, whose numbers are all the same,
/// one of them, or 0 in layers that have none. nullopt without the key. Code gguf.value.
Result<std::optional<int64_t>> gguf_integer(const GgufFile& file, std::string_view name);
Result<std::optional<double>> gguf_number(const GgufFile& file, std::string_view name);

/// A number, a flag or a text of a key that is there; of a list as gguf_integer() has it. Code
/// gguf.value.
Result<json::Value> gguf_value(const GgufFile& file, std::string_view name);

/// A number for each of so many layers, from a list or one for all; empty without the key. Code
/// gguf.value.
Result<std::vector<int64_t>> gguf_integers(const GgufFile& file, std::string_view name,
                                           uint64_t layers);

/// The flags of a list for all layers; empty without the key. Code gguf.value.
Result<std::vector<bool>> gguf_flags(const GgufFile& file, std::string_view name);

/// The numbers of a tensor of F32, such as factors of frequencies; empty without it. Code
/// gguf.value.
Result<std::vector<float>> gguf_floats(const GgufModel& model, std::string_view name);

}  // namespace subbyte
