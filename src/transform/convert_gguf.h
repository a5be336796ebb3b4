#pragma once
// A model as one GGUF file.

#include "models/checkpoint.h"
#include "transform/transform.h"

namespace subbyte {

inline constexpr std::string_view kGgufFormat = "gguf";

/// convert_model() to kGgufFormat, of a model that was opened: a file appears at `destination`.
/// Codes: gguf.architecture, gguf.value (config.json), gguf.tokenizer, those of plan_gguf_steps()
/// and of write_rewrite().
Result<ConvertReport> convert_to_gguf(const std::filesystem::path& model,
                                      const CheckpointParts& source,
                                      const std::filesystem::path& destination,
                                      const ConvertOptions& options, Executor& pool,
                                      const ByteProgress& progress);

}  // namespace subbyte
