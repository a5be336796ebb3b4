#pragma once
// Exporters are the inverse of importers: they turn the canonical matrix of one linear layer into
// the tensors of a checkpoint flavour. Importing what was exported gives the same bytes.
//
// A flavour (flavour.h) has one Exporter for each layout of its tensors that is written.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/config/quantization_config.h"
#include "checkpoints/containers/safetensors.h"
#include "checkpoints/synthetic_format.h"
#include "matrix/recast.h"
#include "quantize/quantize_format.h"
#include "subbyte/executor.h"

namespace subbyte {

/// One tensor of a module, named by what follows the module's name: ".qweight".
struct ExportedTensor {
  std::string_view suffix;
  DType dtype = DType::kU8;
  Shape shape;
  std::vector<std::byte> bytes;  // empty in a description

  uint64_t num_bytes() const;  // by dtype and shape
};

/// Format and shape, which decide which tensors there will be.
struct ExportShape {
  WeightFormat format;
  int64_t rows = 0;  // N, outputs (of each expert)
  int64_t cols = 0;  // K, inputs
  bool act_order = false;
  int64_t experts = 1;
  bool symmetric = false;  // is_symmetric() of the matrix; the config of some flavours says so

  /// Groups of a row, the last of which may be short.
  int64_t groups() const {
    return format.group_size == 0 ? 1 : (cols + format.group_size - 1) / format.group_size;
  }
};

ExportShape shape_of(const MatrixView& matrix);

/// A module that is written, and what it looks like then.
struct ExportedModule {
  std::string name;
  ExportShape shape;
};

/// Subject of the config of a checkpoint.
struct ExportedModel {
  std::vector<ExportedModule> modules;
  std::vector<std::string> kept;  // linear layers that stay floats, lm_head among them
  KvCacheScheme kv_cache;         // that Exporter::says_kv_cache() takes
};

/// A whole row is one group of its size. Where other modules have groups of that size, the modules
/// of one group say so, too: many readers know one size for all.
void state_group_sizes(std::vector<ExportedModule>& modules);

struct ExportedConfig;  // exported_config.h

/// Readers of what the exporter of that name writes; tools/interop/interop.py finds them by it.
#define SUBBYTE_READERS(exporter, readers) readers

struct Exporter {
  std::string_view name;
  std::string_view other_name = {};  // by which people ask for it: "w4a16"
  bool is_listed = true;             // false: it is chosen where its flavour is asked for
  /// Formats of `quantize` that it writes.
  std::span<const QuantizeFormat> quantized = {};
  std::span<const SyntheticFormat> synthetic = {};
  bool tells_symmetry = false;  // whether target or config looks at ExportShape::symmetric
  bool one_group_size = false;  // whether all modules must have the same
  bool has_factor = false;      // whether each matrix has a factor of its own (NVFP4)
  /// Where an order of inputs is refused: the exporter that has the same layout with one.
  std::string_view keeps_act_order = {};
  /// Where experts whose gate and up alternate lie in a way of their own that is not written: the
  /// exporter to take.
  std::string_view instead_for_alternating = {};
  /// Says whether the config has words for how a cache is quantized, as that of `from` said it;
  /// nullptr: never.
  bool (*says_kv_cache)(const KvCacheScheme& scheme, const Flavour* from) = nullptr;
  /// Describes the tensors that a matrix will become, without their bytes. `module` is for
  /// messages. Codes: export.format when the flavour cannot hold that format, export.shape when
  /// rows, cols or the group size do not fit its words, export.group_size when its readers refuse
  /// that size, export.act_order when it has no order of inputs of its own, export.experts when it
  /// has one matrix in a tensor.
  Result<std::vector<ExportedTensor>> (*describe)(const ExportShape& shape,
                                                  std::string_view module) = nullptr;
  /// How this flavour has weights such as those of `from`: the same codes, with scales and zero
  /// points as its readers want them. describe() says whether it holds the result.
  TargetFormat (*target)(const ExportShape& from) = nullptr;
  /// The quantization_config of a checkpoint; its modules are not empty. nullptr: checkpoints are
  /// not written, but modules that were packed come back.
  ExportedConfig (*config)(const ExportedModel& model) = nullptr;
  /// The tensors of describe() with their bytes; identical for any number of threads.
  /// Codes: as describe; export.zero_range when the flavour cannot store a zero point,
  /// export.tensor_scale when it cannot store that factor.
  Result<std::vector<ExportedTensor>> (*write)(const MatrixView& matrix, std::string_view module,
                                               Executor& pool) = nullptr;
  /// The same for all experts under one name, which have one shape; nullptr where the flavour has
  /// one matrix in a tensor.
  Result<std::vector<ExportedTensor>> (*write_experts)(std::span<const Matrix> experts,
                                                       std::string_view module,
                                                       Executor& pool) = nullptr;
  /// Software that opens what is written: "ENVIRONMENT WAY, ..." of tools/interop, which runs it.
  /// Empty where no other has the format.
  std::string_view readers = {};
};

/// write() of one matrix, or write_experts() where the flavour has it. Codes: as these.
Result<std::vector<ExportedTensor>> write_module(const Exporter& exporter,
                                                 std::span<const Matrix> matrices,
                                                 std::string_view module, Executor& pool);

/// The tensors of a module by their full names.
std::vector<TensorDeclaration> declarations(std::span<const ExportedTensor> tensors,
                                            std::string_view module);

/// Those that write checkpoints.
std::span<const Exporter* const> all_exporters();
/// nullptr when there is none of that name.
const Exporter* find_exporter(std::string_view name);

/// The same with those that write modules alone, which are the last.
std::span<const Exporter* const> all_module_exporters();
const Exporter* find_module_exporter(std::string_view name);

}  // namespace subbyte
