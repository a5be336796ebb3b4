#pragma once
// What a config of ModelOpt says, and what its importers ask of it.

#include <initializer_list>
#include <vector>

#include "checkpoints/exporter.h"
#include "checkpoints/flavours/ct_config.h"

namespace subbyte {

/// Kinds of weights that algorithms make.
enum class ModeloptWeights : uint8_t { kNvfp4, kMxfp4, kFp8, kMxfp8, kInt8, kInt4 };

struct ModeloptState : FlavourState, SaysByteIntegers, fp8::SaysBlocks {
  std::vector<ModeloptWeights> weights = {};  // a module may be any of them
  std::vector<int64_t> group_sizes = {};      // that are said of formats with groups
  bool has_unsaid_group_size = false;         // tensors of some modules tell theirs
  bool fp8_in_blocks = false;

  bool makes(ModeloptWeights kind) const;
  Result<CompressedScheme> scheme_of(const ImportContext& context, std::string_view module,
                                     const ByteIntegers& tensors) const override;
  Result<std::vector<fp8::Block>> blocks(const ImportContext& context,
                                         std::string_view module) const override;
};

/// Checks that some algorithm makes weights of one of `kinds`, the first of which the tensors of
/// `module` are. Code import.config.
Status require_modelopt(const ImportContext& context, std::string_view module,
                        std::initializer_list<ModeloptWeights> kinds);

/// Inputs that share a scale, as [rows][groups] of `scales` tell: one of `sizes` (empty: any) that
/// divides `cols`, and if the config says sizes one of those, too. Needs require_modelopt() first.
/// Codes import.shape and import.config.
Result<int64_t> modelopt_group_size(const ImportContext& context, std::string_view module,
                                    const FileTensor& scales, int64_t cols,
                                    std::initializer_list<int64_t> sizes);

extern const Importer modelopt_int4_importer, modelopt_mxfp4_importer, modelopt_nvfp4_importer;
extern const Importer modelopt_experts_importer;
extern const Exporter modelopt_nvfp4_exporter, modelopt_mxfp4_exporter, modelopt_experts_exporter;

}  // namespace subbyte
