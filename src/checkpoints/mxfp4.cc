// MXFP4 experts as gpt-oss stores them. This is the canonical form already, so the bytes are used
// where they lie in the file.
//
//   X_blocks U8 [E, N, K/32, 16]  byte j of a block: element 2j in the low nibble, 2j+1 high
//   X_scales U8 [E, N, K/32]      E8M0: 2^(byte - 127), one for 32 elements; 255 (NaN) is refused
//
// Rows are outputs. In gate_up_proj gate and up rows alternate: even rows gate, odd rows up.

#include <cstring>

#include "checkpoints/import_parts.h"

namespace subbyte {
namespace {

constexpr uint64_t kGroup = 32;

bool matches(const TensorSource& tensors, std::string_view module) {
  return tensors.find(fmt::format("{}_blocks", module)) != nullptr;
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const Tensor* blocks, require_tensor(context.tensors, module, "_blocks"));
  SUBBYTE_TRY(const Tensor* scales, require_tensor(context.tensors, module, "_scales"));
  if (context.config.method != QuantizationConfig::Method::kMxfp4) {
    return Error{"import.config",
                 fmt::format("{}: the method is \"{}\", but '{}' has MXFP4 blocks",
                             context.config.where, context.config.method_name(), module)};
  }
  SUBBYTE_CHECK(require_dtype(*blocks, DType::kU8));
  SUBBYTE_CHECK(require_dtype(*scales, DType::kU8));
  SUBBYTE_CHECK(require_rank(*blocks, 4));
  const Shape& shape = blocks->shape;
  SUBBYTE_CHECK(require_shape(*blocks, {shape[0], shape[1], shape[2], kGroup / 2}));
  SUBBYTE_CHECK(require_shape(*scales, {shape[0], shape[1], shape[2]}));
  ModuleInfo result;
  result.importer = "mxfp4";
  result.format = {Format::kE2M1, Format::kE8M0, Zero::kNone, static_cast<int64_t>(kGroup)};
  result.experts = static_cast<int64_t>(shape[0]);
  result.rows = static_cast<int64_t>(shape[1]);
  result.cols = static_cast<int64_t>(shape[2] * kGroup);
  result.tensors = {blocks, scales};
  return result;
}

Result<std::vector<Matrix>> import(const ImportContext&, const ModuleInfo& info) {
  const Tensor& blocks = *info.tensors[0];
  const Tensor& scales = *info.tensors[1];
  const void* nan = std::memchr(scales.bytes.data(), 0xFF, scales.bytes.size());
  if (nan != nullptr) {
    const auto index = static_cast<const std::byte*>(nan) - scales.bytes.data();
    return tensor_error("import.scale_not_finite", scales,
                        fmt::format("scale byte 0xFF (NaN) at index {}", index));
  }
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
const Importer mxfp4_importer = {"mxfp4", "_blocks", matches, describe, import};

}  // namespace subbyte
