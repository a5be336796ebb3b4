#pragma once
// The models that can be synthesized: the shapes of all families.

#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/exporter.h"
#include "models/model_family.h"

namespace subbyte {

/// The first architecture, which a program may take for the usual one.
std::string_view usual_arch();

/// nullptr when there is none.
const ModelShape* find_shape(std::string_view arch, std::string_view name);
/// That of a shape.
const ModelFamily& family_of(const ModelShape& shape);

/// "qwen3, gpt-oss".
std::string shape_archs();
/// "tiny, 0.6b, ..." of one architecture; empty when there is no such architecture.
std::string shape_names(std::string_view arch);
/// The same of all: "qwen3: tiny, 0.6b, ...; gpt-oss: ...".
std::string all_shape_names();

/// A format of an exporter; nullptr both where nothing is quantized.
struct SyntheticWeights {
  const Exporter* exporter = nullptr;
  const SyntheticFormat* format = nullptr;
};
SyntheticWeights find_synthetic_format(std::string_view name);

/// Formats in which the weights of a family's models can be stored: those of exporters, and "bf16".
std::vector<std::string_view> synthetic_formats(const ModelFamily& family);
/// The same of all: "gpt-oss: mxfp4, bf16; others: awq, gptq, ...".
std::string all_synthetic_formats();

}  // namespace subbyte
