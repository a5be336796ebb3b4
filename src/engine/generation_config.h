#pragma once
// generation_config.json: how a model's makers sample from it.

#include <cstdint>
#include <filesystem>
#include <span>

#include "engine/sampler.h"
#include "json/key_rules.h"

namespace subbyte {

/// The rules of the file.
std::span<const json::KeyRule> generation_config_rules();

/// generation_config.json of a model, or where a directory has none config.json, whose keys count
/// then for transformers and vLLM, too.
std::filesystem::path generation_file(const std::filesystem::path& model);

/// Reads the wishes of that file; there are none where there is none. "do_sample": true alone asks
/// for temperature 1 without cuts, false for the most likely token. Codes: json.*, file.*,
/// config.not_computed for keys that would change answers and are not computed.
Result<Sampling> read_generation_config(const std::filesystem::path& model);

/// Sampling by these wishes, then by those of the file. Codes: those of read_generation_config and
/// check_sampling.
Result<SamplingDefaults> read_sampling_defaults(const std::filesystem::path& model,
                                                const Sampling& wishes);

}  // namespace subbyte
