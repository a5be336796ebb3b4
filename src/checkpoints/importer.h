#pragma once
// Importers turn the tensors of one linear layer into canonical matrices. Which importer it is, is
// decided by the tensors that are there and their shapes; the quantization config of the directory
// is then checked against them, and a contradiction is refused with both values named.
//
// A flavour (flavour.h) has one Importer for each layout of its tensors.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/config/quantization_config.h"
#include "checkpoints/containers/tensor_source.h"
#include "matrix/matrix.h"
#include "subbyte/executor.h"

namespace subbyte {

struct ImportContext {
  const TensorSource& tensors;
  const QuantizationConfig& config;
  Executor& pool;
  /// Floats of all experts in one tensor are [experts][inputs][outputs], not
  /// [experts][outputs][inputs].
  bool stacks_have_inputs_first = true;
  /// Columns stay as they lie, whatever FileTensor::cols says.
  bool keeps_cols = false;
};

/// Says whether the file has floats, which codes may become only when they are read.
inline bool is_dense(const ModuleInfo& info) {
  return is_dense(info.format) && info.scales == nullptr;
}

/// Zero points that were found in a module.
struct ZeroPoints {
  uint32_t smallest = 0;
  uint32_t largest = 0;
  int64_t count = 0;
};

/// A reason to doubt what a config says of a module.
struct Doubt {
  std::string_view code;
  std::string expected;
  std::string found;
};

struct Importer {
  std::string_view name;
  std::string_view anchor;  // what follows the module's name in that tensor which every module has
  bool (*matches)(const TensorSource& tensors, std::string_view module);
  Result<ModuleInfo> (*describe)(const ImportContext& context, std::string_view module);
  /// One matrix, or one for each expert when the tensors hold several.
  Result<std::vector<Matrix>> (*import)(const ImportContext& context, const ModuleInfo& info);
  /// Refuses what import() refuses of the scales, for who does not want the matrix. Reads those
  /// alone.
  Status (*check_scales)(const ImportContext& context, const ModuleInfo& info);
  /// A doubt that zero points leave and describe() does not see; nullptr: none.
  std::optional<Doubt> (*doubt)(const QuantizationConfig& config, const ModuleInfo& info,
                                const ZeroPoints& zeros) = nullptr;
  /// Says whether two configs let the same tensors mean the same; nullptr: all do.
  bool (*reads_alike)(const QuantizationConfig& a, const QuantizationConfig& b) = nullptr;
};

/// Those of all flavours, and of weights that no flavour has, which are dense.
std::span<const Importer* const> all_importers();

/// Says whether there are tensors of that name that some importer knows, sound or not.
bool has_module(const TensorSource& tensors, std::string_view module);

/// The importer that reads a module; nullptr when none knows tensors of that name. Code
/// import.flavours.
Result<const Importer*> find_importer(const TensorSource& tensors, std::string_view module);

/// The importer that described a module.
const Importer& importer_of(const ModuleInfo& info);

/// Describes a module that the importer matches(), unless the config refuses it by its name.
Result<ModuleInfo> describe_with(const Importer& importer, const ImportContext& context,
                                 std::string_view module);

/// Codes: import.missing when no importer knows tensors of that name, import.flavours when those of
/// two flavours do, those of the importers, and import.config for contradictions.
Result<ModuleInfo> describe_module(const ImportContext& context, std::string_view module);

/// Checks that the scales are numbers that a matrix may have; reads nothing else of a module that
/// was described. Code import.scale_not_finite.
Status check_module_scales(const ImportContext& context, const ModuleInfo& info);

/// Code import.shape when the tensors hold several experts.
Status require_one_matrix(const ModuleInfo& info);

/// The matrix of a linear layer such as "model.layers.0.self_attn.q_proj".
/// Codes: as describe_module and require_one_matrix.
Result<Matrix> import_matrix(const ImportContext& context, std::string_view module);

/// The same of many modules at once, in their order: each by one thread, so that small ones do not
/// wait for all threads again and again. Codes: those of the first that import_matrix refuses.
Result<std::vector<Matrix>> import_matrices(const ImportContext& context,
                                            std::span<const std::string_view> modules);

/// The matrices of all experts under one name, such as
/// "model.layers.0.mlp.experts.gate_up_proj".
Result<std::vector<Matrix>> import_experts(const ImportContext& context, std::string_view module);

/// A small tensor of floating-point numbers (a norm, a bias) as float32.
/// Codes: import.missing, dense.dtype, import.shape.
Result<std::vector<float>> import_vector(const TensorSource& tensors, std::string_view name,
                                         const Shape& shape);

}  // namespace subbyte
