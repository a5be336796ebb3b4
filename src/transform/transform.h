#pragma once
// The functions of subbyte/transform.h on threads of the caller, of models that were found; what is
// written is read by `options.check` alone.

#include <filesystem>

#include "checkpoints/containers/checkpoint_writer.h"
#include "subbyte/executor.h"
#include "subbyte/transform.h"

namespace subbyte {

/// Codes: convert.format, convert.config (a file that lacks what config.json must say),
/// convert.not_quantized, convert.activation_scale, convert.kv_cache, convert.group_size,
/// convert.inexact, convert.overflow, recast.* (what does not fit the new format, and where),
/// export.*, import.*, quantization.*, those of write_rewrite(), and for ak48 config.*.
Result<ConvertReport> convert_model(const std::filesystem::path& source,
                                    const std::filesystem::path& destination,
                                    const ConvertOptions& options, Executor& pool,
                                    const ByteProgress& progress = nullptr);

/// Scales of kbit and vq are E4M4, or F16 where quantize_scales.h says so. Codes: quantize.format,
/// quantize.bits, quantize.group_size, quantize.symmetry (what the format lacks, and what it has),
/// quantize.f16_overflow, quantize.not_finite, quantize.scale_overflow, quantize.loss (less than
/// least_signal_db() is left of a tensor), dense.dtype (one that is kept and no float, where all
/// must become f16), export.*, those of plan_units(), of choose_widths(), of the loaders and of
/// write_rewrite(). Every message about a tensor names it.
Result<QuantizeReport> quantize_model(const std::filesystem::path& source,
                                      const std::filesystem::path& destination,
                                      const QuantizeOptions& options, Executor& pool,
                                      const ByteProgress& progress = nullptr);

/// Configs and side files are only used for reading. Memory: one module or tensor of each.
/// `progress` counts the bytes of `first`. Codes: those of config.json, of TensorSource and of
/// importers.
Result<ModelDiff> diff_models(const std::filesystem::path& first,
                              const std::filesystem::path& second, Executor& pool,
                              const ByteProgress& progress = nullptr);

}  // namespace subbyte
