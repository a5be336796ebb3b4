#pragma once
// Checkpoints of real shapes with random weights, so that everything can be tried and timed
// without a download.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/leftover.h"
#include "base/status.h"
#include "checkpoints/containers/checkpoint_writer.h"
#include "subbyte/executor.h"

namespace subbyte {

/// Inputs that share a scale in published checkpoints, where a format leaves it open.
inline constexpr int64_t kUsualGroup = 128;

struct SynthOptions {
  std::string arch = {};                   // one of shape_archs(); empty: the first
  std::string shape = "0.6b";              // one of shape_names(arch)
  std::string format = {};                 // one of synthetic_formats(); empty: the first
  int64_t layers = 0;                      // at most those of the shape; 0: all of them
  std::optional<int64_t> group_size = {};  // of formats that leave it open; none: kUsualGroup
  uint64_t seed = 0;
  uint64_t shard_bytes = uint64_t{4} << 30;  // larger models are written in shards with an index
  Notice notice = nullptr;                   // of what earlier runs left behind
};

/// Writes a complete model directory (config.json, generation_config.json, tokenizer.json,
/// model.safetensors or shards with an index) that appears at `destination` whole or not at all.
/// The same options give the same bytes for any number of threads. Weights are drawn so that
/// logits stay finite and of ordinary size; every code of the format occurs.
/// Codes: synth.arch, synth.shape, synth.format (each names what there is), synth.layers,
/// synth.group_size, file.*.
Status synthesize(const std::filesystem::path& destination, const SynthOptions& options,
                  Executor& pool, const ByteProgress& progress = nullptr);

}  // namespace subbyte
