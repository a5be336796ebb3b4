#pragma once
// Factors of inputs, which AWQ and SmoothQuant of ModelOpt leave beside the weights that they could
// not be multiplied into.
//
//   X.pre_quant_scale  float [K]   y = W (s * x), so that a weight is w(n, k) * s(k)
//   X_pre_quant_scale              the same of a parameter that holds all experts; where both are
//                                  there, they are equal
//
// No format here has a factor for each input: a matrix with them becomes floats (f32) when it is
// read, each rounded once.

#include "checkpoints/import_parts.h"

namespace subbyte {

/// Under each of their names, of which the first counts; empty where there are none. Code
/// import.config where they differ.
using InputFactors = std::vector<const FileTensor*>;
Result<InputFactors> input_factors(const TensorSource& tensors, std::string_view module);

/// Adds scales of activations, which stay floats here, so that nobody misses their tensors.
void add_activations(const ImportContext& context, std::string_view module, ModuleInfo& info);

/// The module as it will be. Codes import.dtype, import.shape.
Result<ModuleInfo> with_input_factors(const InputFactors& factors, ModuleInfo stored);
/// Its matrix. Code import.scale_not_finite.
Result<std::vector<Matrix>> with_input_factors(const InputFactors& factors,
                                               const std::vector<Matrix>& stored, Executor& pool);

/// Lets an importer that knows no factors of inputs read modules that may have some.
template <auto describe_stored, auto import_stored>
struct WithInputFactors {
  static Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
    SUBBYTE_TRY(ModuleInfo stored, describe_stored(context, module));
    SUBBYTE_TRY(const InputFactors factors, input_factors(context.tensors, module));
    if (factors.empty()) return stored;
    return with_input_factors(factors, std::move(stored));
  }

  static Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
    std::string_view module = info.tensors.front()->name;
    if (module.ends_with(".weight")) module.remove_suffix(std::string_view(".weight").size());
    SUBBYTE_TRY(const InputFactors factors, input_factors(context.tensors, module));
    if (factors.empty()) return import_stored(context, info);
    SUBBYTE_TRY(const ModuleInfo stored, describe_stored(context, module));
    SUBBYTE_TRY(const std::vector<Matrix> matrices, import_stored(context, stored));
    return with_input_factors(factors, matrices, context.pool);
  }
};

}  // namespace subbyte
