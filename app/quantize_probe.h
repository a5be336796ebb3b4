#pragma once
// What units of a model cost by predictions of a text, which `quantize --text` names or the model
// writes itself.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "ops/backend.h"
#include "transform/transform.h"

namespace subbyte::app {

using TokensWritten = std::function<void(int64_t done, int64_t all)>;

/// QuantizeOptions::measure: the KL divergence of the model with one unit quantized from the model
/// itself, over the first 2,048 tokens of `text`, or, where that is empty, over as many that the
/// model writes at temperature 1. The first call loads the model on `backend`. Codes: those of
/// load_tokenizer(), load_model() and Scheduler.
/// `written` is told how many tokens of how many the model has written.
decltype(QuantizeOptions::measure) measure_by_text(const std::filesystem::path& source,
                                                   std::string text,
                                                   std::unique_ptr<Backend> backend,
                                                   TokensWritten written = nullptr);

}  // namespace subbyte::app
