#pragma once
// What units of a model cost by predictions of a text: `quantize --text`.

#include <filesystem>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "ops/backend.h"
#include "transform/quantize_model.h"

namespace subbyte::app {

/// QuantizeOptions::measure: the KL divergence of the model with one unit quantized from the model
/// itself, over the first 2,048 tokens of `text`. The model is loaded here, on `backend`. Codes:
/// those of load_tokenizer() and load_model().
Result<decltype(QuantizeOptions::measure)> measure_by_text(const std::filesystem::path& source,
                                                           std::string_view text,
                                                           std::unique_ptr<Backend> backend);

}  // namespace subbyte::app
