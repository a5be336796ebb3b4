#pragma once
// Converting a whole model directory from one way of storing quantized weights to another, or to
// floats.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/leftover.h"
#include "base/status.h"
#include "checkpoints/containers/checkpoint_writer.h"
#include "subbyte/executor.h"
#include "subbyte/transform.h"
#include "transform/difference.h"

namespace subbyte {

/// Reads a model directory of any architecture, or a model file of OrinMLLM, and writes a directory
/// that appears at `destination` whole or not at all. Dequantized weights are the same bits before
/// and after, unless `allow_lossy`; what cannot be said exactly is refused, naming the tensor.
///
/// Everything that is not quantized is kept byte for byte; only where nothing is quantized are
/// floats turned into f32, bf16 or f16. config.json gets the quantization_config of the new format
/// (or none, and the type of floats as its dtype), GPTQ and ModelOpt their side file too;
/// tokenizer and other side files are copied. A stack of experts becomes modules
/// "experts.E.NAME" where a format has one matrix in a tensor, and back.
///
/// An exact conversion that was stopped, by a signal, a full disk or a kill, is gone on with:
/// shards that it finished are kept, if the source and the options are the same
/// (OutputDirectory::resume).
///
/// Streams: beside the mapped source no more than one module and its result are in memory.
/// Identical bytes for any number of threads.
/// Codes: convert.format, convert.config (a file that lacks what config.json must say),
/// convert.not_quantized, convert.activation_scale, convert.kv_cache, convert.group_size,
/// convert.inexact, convert.overflow, recast.* (what does not fit the new format, and where),
/// export.*, import.*, quantization.*, file.* (file.changed when the source did meanwhile;
/// file.no_space before weights are written, where that can be known), and for ak48 config.*.
Result<ConvertReport> convert_model(const std::filesystem::path& source,
                                    const std::filesystem::path& destination,
                                    const ConvertOptions& options, Executor& pool,
                                    const ByteProgress& progress = nullptr);

}  // namespace subbyte
