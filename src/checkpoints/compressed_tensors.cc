#include "checkpoints/compressed_tensors.h"

#include <algorithm>

namespace subbyte {

std::string list_of(const std::vector<CompressedScheme>& schemes) {
  std::string text;
  for (const CompressedScheme& scheme : schemes) {
    if (!text.empty()) text += ", or ";
    text += to_string(scheme);
  }
  return text;
}

Status require_scheme(const ImportContext& context, std::string_view module,
                      CompressedScheme::Format format) {
  SUBBYTE_CHECK(require_method(context, module, QuantizationConfig::Method::kCompressedTensors));
  const auto& schemes = context.config.schemes;
  if (std::ranges::find(schemes, format, &CompressedScheme::format) != schemes.end()) return {};
  CompressedScheme of_tensors;
  of_tensors.format = format;
  return Error{"import.config",
               fmt::format("{}: the weights are {}, but the tensors of '{}' are {}",
                           context.config.where, list_of(schemes), module, to_string(of_tensors))};
}

}  // namespace subbyte
