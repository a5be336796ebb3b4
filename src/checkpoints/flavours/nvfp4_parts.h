#pragma once
// NVFP4: E2M1 elements, an E4M3 scale for 16 of them, and one more factor for the whole tensor.
// ModelOpt can have a scale for 32 of them, too.
//
//   compressed-tensors          ModelOpt
//   weight_packed               weight           U8 [N, K/2]  element 2j in the low nibble of byte
//                                                             j, 2j+1 in the high one
//   weight_scale                weight_scale     F8_E4M3 [N, K/16]  NaN is refused
//   weight_global_scale F32 [1] weight_scale_2   F32 [] or [1]
//   input_global_scale          input_scale      F32; optional
//
//   w(n, k) = e * s / weight_global_scale  or  e * s * weight_scale_2
//
// The factor divides in one and multiplies in the other. Codes and scales are canonical already, so
// they are used where they lie. The scale of the activations is for products of FP4 with FP4: here
// activations stay floats, as in every weight-only reader (W4A16), and it is left aside.
//
// A factor that came as a divisor goes back to the same bits. From one flavour to the other it is
// rounded to the nearest float, as all tools do: at most 2^-24 of it.

#include "checkpoints/export_parts.h"
#include "checkpoints/import_parts.h"

namespace subbyte::nvfp4 {

/// Names of the tensors of a flavour, and the direction of its factor.
struct Names {
  std::string_view name;
  std::string_view codes;
  std::string_view factor;
  bool factor_divides;
  std::string_view activations;
  /// Inputs of a group, where the scales tell; nullptr: 16.
  Result<int64_t> (*group_size)(const ImportContext& context, std::string_view module,
                                const FileTensor& scales, int64_t cols) = nullptr;
};

/// The factor of a tensor: one positive number; 0 only where it is multiplied by.
/// Codes: import.dtype, import.shape, import.scale_not_finite.
Status check_factor(const FileTensor& tensor, bool divides);

Result<ModuleInfo> describe_blocks(const ImportContext& context, std::string_view module,
                                   const Names& names);

Result<std::vector<Matrix>> import_blocks(const ImportContext& context, const ModuleInfo& info,
                                          const Names& names);

Result<std::vector<ExportedTensor>> describe_tensors(const ExportShape& shape,
                                                     std::string_view module, const Names& names);

Result<std::vector<ExportedTensor>> write_blocks(const MatrixView& matrix, std::string_view module,
                                                 const Names& names);

/// The format that E2M1 weights of any format are brought to.
TargetFormat blocks_target(const ExportShape& from, const Names& names);

// The same as importers and exporters have them.
template <const Names& names>
Result<std::vector<Matrix>> import_blocks(const ImportContext& context, const ModuleInfo& info) {
  return import_blocks(context, info, names);
}
template <const Names& names>
Result<std::vector<ExportedTensor>> describe_tensors(const ExportShape& shape,
                                                     std::string_view module) {
  return describe_tensors(shape, module, names);
}
template <const Names& names>
Result<std::vector<ExportedTensor>> write_blocks(const MatrixView& matrix, std::string_view module,
                                                 Executor&) {
  return write_blocks(matrix, module, names);
}
template <const Names& names>
TargetFormat blocks_target(const ExportShape& from) {
  return blocks_target(from, names);
}

}  // namespace subbyte::nvfp4
