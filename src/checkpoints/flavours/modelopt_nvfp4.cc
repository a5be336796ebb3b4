// NVFP4 of ModelOpt: see nvfp4_parts.h.

#include "checkpoints/flavours/modelopt_parts.h"
#include "checkpoints/flavours/nvfp4_parts.h"

namespace subbyte {
namespace {

using nvfp4::kModelopt;

bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* codes = find_tensor(tensors, module, kModelopt.codes);
  return codes != nullptr && codes->dtype == DType::kU8 &&
         find_tensor(tensors, module, ".weight_scale") != nullptr;
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_CHECK(require_modelopt(context, module, {ModeloptWeights::kNvfp4}));
  return nvfp4::describe_blocks(context, module, kModelopt);
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  return nvfp4::import_blocks(context, info, kModelopt);
}

using Module = modelopt::WithInputFactors<describe, import>;

}  // namespace

extern const Importer modelopt_nvfp4_importer;
const Importer modelopt_nvfp4_importer = {kModelopt.importer, kModelopt.codes, matches,
                                          Module::describe,   Module::import,  check_scales};

}  // namespace subbyte
