#pragma once
// generation_config.json: how a model's makers sample from it.

#include <cstdint>
#include <span>

#include "engine/sampler.h"
#include "json/key_rules.h"
#include "json/side_files.h"

namespace subbyte {

/// The rules of the file.
std::span<const json::KeyRule> generation_config_rules();

/// The file that says how: generation_config.json, or where there is none config.json, whose keys
/// count then for transformers and vLLM, too.
const char* generation_file(const SideFiles& files);

/// Reads the wishes of that file; there are none where there is none. "do_sample": true alone asks
/// for temperature 1 without cuts, false for the most likely token. Codes: json.*, file.*,
/// config.not_computed for keys that would change answers and are not computed.
Result<Sampling> read_generation_config(const SideFiles& files);

/// Sampling by these wishes, then by those of the file. Codes: those of read_generation_config and
/// check_sampling.
Result<SamplingDefaults> read_sampling_defaults(const SideFiles& files, const Sampling& wishes);

}  // namespace subbyte
