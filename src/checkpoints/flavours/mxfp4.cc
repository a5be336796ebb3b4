// MXFP4 experts as gpt-oss stores them. This is the canonical form already, so the bytes are used
// where they lie in the file.
//
//   X_blocks U8 [E, N, K/32, 16]  byte j of a block: element 2j in the low nibble, 2j+1 high
//   X_scales U8 [E, N, K/32]      E8M0: 2^(byte - 127), one for 32 elements; 255 (NaN) is refused
//
// OpenAI's own files ("original/") name them X.blocks and X.scales, as in
// block.0.mlp.mlp1_weight.blocks; all else is the same.
//
// Rows are outputs. In gate_up_proj (mlp1) gate and up rows alternate: even rows gate, odd rows up.

#include "base/quote.h"
#include "checkpoints/import_parts.h"

namespace subbyte {
namespace {

using Method = QuantizationConfig::Method;

constexpr uint64_t kGroup = 32;

struct Names {
  std::string_view importer;
  std::string_view blocks;
  std::string_view scales;
};

constexpr Names kHuggingFace = {"mxfp4", "_blocks", "_scales"};
constexpr Names kOriginal = {"mxfp4_original", ".blocks", ".scales"};

template <const Names& names>
bool matches(const TensorSource& tensors, std::string_view module) {
  return find_tensor(tensors, module, names.blocks) != nullptr;
}

Result<ModuleInfo> describe_experts(const ImportContext& context, std::string_view module,
                                    const Names& names) {
  SUBBYTE_TRY(const FileTensor* blocks, require_tensor(context.tensors, module, names.blocks));
  SUBBYTE_TRY(const FileTensor* scales, require_tensor(context.tensors, module, names.scales));
  // The config of OpenAI's own directory does not say how weights are quantized.
  const bool silent = &names == &kOriginal && context.config.method == Method::kNone;
  if (context.config.method != Method::kMxfp4 && !silent) {
    return Error{"import.config",
                 fmt::format("{}: the method is {}, but {} has MXFP4 blocks", context.config.where,
                             quote(context.config.method_name()), quote_name(module))};
  }
  SUBBYTE_CHECK(require_dtype(*blocks, DType::kU8));
  SUBBYTE_CHECK(require_dtype(*scales, DType::kU8));
  SUBBYTE_CHECK(require_rank(*blocks, 4));
  const Shape& shape = blocks->shape;
  SUBBYTE_CHECK(require_shape(*blocks, {shape[0], shape[1], shape[2], kGroup / 2}));
  SUBBYTE_CHECK(require_shape(*scales, {shape[0], shape[1], shape[2]}));
  ModuleInfo result;
  result.importer = names.importer;
  result.format = {Format::kE2M1, Format::kE8M0, Zero::kNone, static_cast<int64_t>(kGroup)};
  result.experts = static_cast<int64_t>(shape[0]);
  result.rows = static_cast<int64_t>(shape[1]);
  result.cols = static_cast<int64_t>(shape[2] * kGroup);
  result.tensors = {blocks, scales};
  result.scales = scales;
  return result;
}

template <const Names& names>
Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  return describe_experts(context, module, names);
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& blocks = *info.tensors[0];
  const FileTensor& scales = *info.tensors[1];
  SUBBYTE_CHECK(check_scales(context, info));
  const std::size_t code_bytes = blocks.bytes.size() / info.experts;
  const std::size_t scale_bytes = scales.bytes.size() / info.experts;
  std::vector<Matrix> experts(info.experts);
  for (std::size_t e = 0; e < experts.size(); ++e) {
    MatrixView& view = experts[e].view;
    view.format = info.format;
    view.rows = info.rows;
    view.cols = info.cols;
    view.codes = blocks.bytes.subspan(e * code_bytes, code_bytes);
    view.scales = scales.bytes.subspan(e * scale_bytes, scale_bytes);
    experts[e].owners = {blocks.file, scales.file};
  }
  return experts;
}

}  // namespace

extern const Importer mxfp4_importer;
extern const Importer mxfp4_original_importer;
const Importer mxfp4_importer = {kHuggingFace.importer,
                                 kHuggingFace.blocks,
                                 matches<kHuggingFace>,
                                 describe<kHuggingFace>,
                                 import,
                                 check_scales};
const Importer mxfp4_original_importer = {kOriginal.importer,  kOriginal.blocks, matches<kOriginal>,
                                          describe<kOriginal>, import,           check_scales};

}  // namespace subbyte
