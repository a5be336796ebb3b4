#pragma once
// A model directory in the layouts that kernels of other software read, and back.
//
// A packed directory has packed.safetensors (or shards with packed.safetensors.index.json) in place
// of the model's files: for each quantized layer the tensors "MODULE.packed.*", for each stack of
// experts one tensor of each kind for all of them, and a line of metadata (packed_module.h); all
// other tensors, config.json, tokenizer and other side files as they were. No program that looks
// for a model takes it for one.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/leftover.h"
#include "base/status.h"
#include "checkpoints/containers/checkpoint_writer.h"
#include "subbyte/executor.h"

namespace subbyte {

struct PackOptions {
  std::string layout;  // a name of pack_layout_names()
  std::string tile;    // a value of PackLayout::tiles; empty: the layout's own
  /// marlin-fp4: "f16" or "bf16", for which scales are made; empty: the dtype that config.json has,
  /// and bf16 where it has another.
  std::string activations;
  /// Modules that stay as they are; each as ModulePattern has it.
  std::vector<std::string> keep;
  uint64_t shard_bytes = uint64_t{4} << 30;
  Notice notice = nullptr;  // of what earlier runs left behind
};

/// Counts of both ways.
struct PackReport {
  std::string layout;
  std::string tile = {};       // of pack
  int64_t modules = 0;         // of the model
  int64_t packed_modules = 0;  // that they are here: experts of a layer are one
  int64_t kept_tensors = 0;
  uint64_t source_bytes = 0;
  uint64_t result_bytes = 0;
  std::vector<std::string> remarks = {};  // of pack: about the layout, for people
};

/// Packs every quantized layer of a model directory; the directory appears at `destination` whole
/// or not at all. Before anything is written each layer was packed, unpacked, and compared with
/// what is in the model, so what does not come back bit for bit is refused by name.
/// Memory: one layer, or all experts of one, and what it becomes.
/// Codes: pack.layout, pack.tile, pack.activations, pack.container, pack.not_quantized,
/// pack.flavour (a flavour that is read and not written), pack.not_exact, pack.scale_range,
/// pack.name, those of PackLayout::check, of importers, quantize.pattern, file.*.
Result<PackReport> pack_model(const std::filesystem::path& source,
                              const std::filesystem::path& destination, const PackOptions& options,
                              Executor& pool, const ByteProgress& progress = nullptr);

struct UnpackOptions {
  uint64_t shard_bytes = uint64_t{4} << 30;
  Notice notice = nullptr;
};

/// The model that pack_model() packed: the same tensors, bit for bit, and the same side files.
/// Codes: pack.metadata, pack.version, pack.missing, pack.tensor, pack.tensor_unlisted,
/// pack.not_exact, those of TensorSource::open_packed and of src/foreign_layouts, file.*.
Result<PackReport> unpack_model(const std::filesystem::path& source,
                                const std::filesystem::path& destination,
                                const UnpackOptions& options, Executor& pool,
                                const ByteProgress& progress = nullptr);

/// The tile that PyTorch on this machine packs for CPUs, a value of --tile, and by which
/// instructions: {"64", "AVX-512"}.
std::pair<std::string_view, std::string_view> tile_of_this_cpu();

}  // namespace subbyte
