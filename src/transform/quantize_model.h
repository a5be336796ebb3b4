#pragma once
// Quantizing a whole model directory.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/leftover.h"
#include "base/status.h"
#include "checkpoints/containers/checkpoint_writer.h"
#include "subbyte/executor.h"
#include "subbyte/transform.h"
#include "transform/difference.h"
#include "transform/quantize_formats.h"

namespace subbyte {

/// Reads an unquantized model directory and writes a quantized one that appears at `destination`
/// whole or not at all. Matrices that the family's list lets be quantized are rounded to nearest;
/// everything else is kept byte for byte (AWQ: as f16, as its readers have it). config.json gets
/// the quantization_config of the format; tokenizer and other side files are copied.
/// Scales of kbit and vq are E4M4, or F16 where quantize_scales.h says so.
/// A run that was stopped is gone on with (OutputDirectory::resume); the loss of what was finished
/// then is not in the report.
/// Streams: beside the mapped source no more than one matrix and its result are in memory.
/// Identical bytes for any number of threads.
/// Codes: quantize.format, quantize.bits, quantize.group_size, quantize.symmetry (what the format
/// lacks, and what it has), those of plan_units(), choose_widths() and
/// plan_jobs(), quantize.f16_overflow,
/// quantize.not_finite, quantize.scale_overflow, quantize.loss (less than least_signal_db() is left
/// of a tensor), those of the loaders, file.*. Every message about a tensor names it.
Result<QuantizeReport> quantize_model(const std::filesystem::path& source,
                                      const std::filesystem::path& destination,
                                      const QuantizeOptions& options, Executor& pool,
                                      const ByteProgress& progress = nullptr);

}  // namespace subbyte
