// NVFP4 of ModelOpt: see nvfp4_parts.h.

#include "base/quote.h"
#include "checkpoints/flavours/nvfp4_parts.h"

namespace subbyte {
namespace {

using nvfp4::kModelopt;

bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* codes = nvfp4::find(tensors, module, kModelopt.codes);
  return codes != nullptr && codes->dtype == DType::kU8 &&
         nvfp4::find(tensors, module, ".weight_scale") != nullptr;
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_CHECK(require_method(context, module, QuantizationConfig::Method::kModelopt));
  if (context.config.e8m0_scales || !context.config.has_fp4) {
    return Error{"import.config",
                 fmt::format("{}: quant_algo is one of {}, but the tensors of {} are those of "
                             "NVFP4",
                             context.config.where, context.config.has_fp4 ? "MXFP4" : "FP8",
                             quote_name(module))};
  }
  return nvfp4::describe_blocks(context, module, kModelopt);
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  return nvfp4::import_blocks(context, info, kModelopt);
}

}  // namespace

extern const Importer modelopt_nvfp4_importer;
const Importer modelopt_nvfp4_importer = {kModelopt.importer, kModelopt.codes, matches,
                                          describe,           import,          check_scales};

}  // namespace subbyte
