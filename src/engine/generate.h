#pragma once
// The loop for one request: prefill a prompt, then decode token after token.

#include <functional>
#include <span>

#include "engine/generation.h"
#include "models/model.h"

namespace subbyte {

/// Called with each token; false ends the generation.
using OnToken = std::function<bool(int32_t token)>;

/// Appends `prompt` (at least one token) and what follows to the sequence, as Generation does;
/// nothing where options.max_tokens is 0. `goes_on`, if there is one, is asked before each step, of
/// a long prompt, too; false ends the generation.
/// Codes: generate.empty_prompt, those of Model::forward, Sampler::sample and
/// Model::verify_unchanged, at the end.
Result<SampleEnd> generate(const Model& model, Backend& backend, Sequence& sequence,
                           std::span<const int32_t> prompt, const GenerateOptions& options,
                           const OnToken& on_token, const std::function<bool()>& goes_on = nullptr);

}  // namespace subbyte
