#pragma once
// What a quantization will write, decided before anything is written.
//
// What may be quantized is what the family's list of tensors says (models/tensor_spec.h); the head
// and the embedding are asked for. The parts of a tensor that are multiplied as one, such as q, k
// and v, form a unit: all of it is kept, or all of it gets one form.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoints/importer.h"
#include "models/model_config.h"
#include "transform/format_hints.h"
#include "transform/matrix_rows.h"
#include "transform/quantize_rules.h"

namespace subbyte {

/// The matrices that are to be quantized, and their forms.
struct QuantizeRequest {
  const QuantizeFormat* format = nullptr;
  QuantizeForm form;        // of modules that nothing else is said of
  bool fits_group = false;  // whether its groups are halved until they divide the inputs of all
  std::vector<QuantizeRule> rules;  // the first one that names a matrix counts
  bool head = false;
  bool embedding = false;
  bool experts_only = false;
};

/// A module that will be written.
struct QuantizeModule {
  std::string name;
  std::vector<MatrixRows> matrices;  // several: the experts of a stack that is written as one
  std::size_t set = 0;               // of matrices that share a factor where the format has one
};

struct QuantizeUnit {
  std::string name;  // in the family's list: "layers.3.self_attn.qkv_proj"
  std::vector<QuantizeModule> modules;
  QuantizeForm form;
  bool has_own_bits = false;  // which a rule gave it
  bool has_own_group = false;

  int64_t weights() const;
};

struct QuantizePlan {
  QuantizeForm usual;  // of units that no rule gives another
  std::vector<QuantizeUnit> units;
  std::vector<std::vector<MatrixRows>> sets;  // of matrices that share a factor
  std::vector<double> largest;                // magnitude in each set, where it is known already
  std::set<std::string, std::less<>> exact;   // vectors that stay in f32 where they are so
};

/// The units of a model with the form of the request or of the first rule that names them.
/// Codes: quantize.model_type when experts of this family have no such form, quantize.ignore for a
/// pattern that names no module or a part of a unit, quantize.rules for such a rule, one with a
/// form for kept matrices alone and one that gives a width to a format with one for all,
/// quantize.nothing when nothing is left, quantize.bits, quantize.group_size and quantize.symmetry
/// for what the format lacks, quantize.group_size when a group does not divide the inputs,
/// quantize.head and quantize.embedding where there is none or the format has none,
/// quantize.already_quantized, import.*, model.*.
Result<QuantizePlan> plan_units(const ImportContext& context, const ModelConfig& model,
                                const QuantizeRequest& request);

}  // namespace subbyte
