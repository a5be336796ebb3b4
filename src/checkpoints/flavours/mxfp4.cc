// MXFP4 experts as gpt-oss stores them. This is the canonical form already, so the bytes are used
// where they lie in the file.
//
//   X_blocks U8 [E, N, K/32, 16]  byte j of a block: element 2j in the low nibble, 2j+1 high
//   X_scales U8 [E, N, K/32]      E8M0: 2^(byte - 127), one for 32 elements; 255 (NaN) is refused
//
// OpenAI's own files ("original/") name them X.blocks and X.scales, as in
// block.0.mlp.mlp1_weight.blocks; all else is the same.
//
// One matrix is written as one expert, by the names of Hugging Face: OpenAI's software wants all of
// its names and a config.json of its own beside them, and no other reads them.
//
// Rows are outputs. In gate_up_proj (mlp1) gate and up rows alternate: even rows gate, odd rows up.

#include "base/quote.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/flavour.h"
#include "checkpoints/import_parts.h"
#include "quantize/quantizers.h"

namespace subbyte {

namespace {

constexpr uint64_t kGroup = 32;
constexpr WeightFormat kFormat = {Format::kE2M1, Format::kE8M0, Zero::kNone, kGroup};

struct Names {
  std::string_view name;
  bool needs_config;  // that of OpenAI's own directory does not say how weights are quantized
  std::string_view blocks;
  std::string_view scales;
};

constexpr Names kHuggingFace = {"mxfp4", true, "_blocks", "_scales"};
constexpr Names kOriginal = {"mxfp4_original", false, ".blocks", ".scales"};

template <const Names& names>
bool matches(const TensorSource& tensors, std::string_view module) {
  return find_tensor(tensors, module, names.blocks) != nullptr;
}

Result<ModuleInfo> describe_experts(const ImportContext& context, std::string_view module,
                                    const Names& names) {
  SUBBYTE_TRY(const FileTensor* blocks, require_tensor(context.tensors, module, names.blocks));
  SUBBYTE_TRY(const FileTensor* scales, require_tensor(context.tensors, module, names.scales));
  const Flavour* const said = context.config.flavour;
  if (said != &mxfp4_flavour && (said != nullptr || names.needs_config)) {
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
  result.format = kFormat;
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
  std::vector<Matrix> experts(info.experts, matrix_of(info));
  for (std::size_t e = 0; e < experts.size(); ++e) {
    MatrixView& view = experts[e].view;
    view.codes = blocks.bytes.subspan(e * code_bytes, code_bytes);
    view.scales = scales.bytes.subspan(e * scale_bytes, scale_bytes);
    experts[e].owners = {blocks.file, scales.file};
  }
  return experts;
}

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_TRY(const Blocks blocks, require_blocks(shape, module, "MXFP4", kFormat));
  const auto experts = static_cast<uint64_t>(shape.experts);
  return std::vector<ExportedTensor>{
      {"_blocks", DType::kU8, {experts, blocks.rows, blocks.groups, kGroup / 2}, {}},
      {"_scales", DType::kU8, {experts, blocks.rows, blocks.groups}, {}}};
}

/// Views of all experts, one after the other.
Result<std::vector<ExportedTensor>> write_views(std::span<const MatrixView* const> experts,
                                                std::string_view module) {
  ExportShape shape = shape_of(*experts.front());
  shape.experts = static_cast<int64_t>(experts.size());
  SUBBYTE_TRY(auto tensors, describe(shape, module));
  for (ExportedTensor& tensor : tensors) tensor.bytes.reserve(tensor.num_bytes());
  for (const MatrixView* expert : experts) {
    SUBBYTE_CHECK(require_tensor_scale_1(*expert, module));
    if (expert->format != shape.format || expert->rows != shape.rows ||
        expert->cols != shape.cols || !expert->input_order.empty()) {
      return export_error("export.experts", module,
                          fmt::format("experts of {} outputs and {} inputs and of {} and {}",
                                      shape.rows, shape.cols, expert->rows, expert->cols));
    }
    tensors[0].bytes.insert(tensors[0].bytes.end(), expert->codes.begin(), expert->codes.end());
    tensors[1].bytes.insert(tensors[1].bytes.end(), expert->scales.begin(), expert->scales.end());
  }
  return tensors;
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  const MatrixView* const one[] = {&matrix};
  return write_views(one, module);
}

Result<std::vector<ExportedTensor>> write_experts(std::span<const Matrix> experts,
                                                  std::string_view module, Executor&) {
  std::vector<const MatrixView*> views;
  for (const Matrix& expert : experts) views.push_back(&expert.view);
  if (views.empty()) return export_error("export.experts", module, "no experts");
  return write_views(views, module);
}

TargetFormat target(const ExportShape& from) {
  const bool fp4 = from.format.element == Format::kE2M1;
  return {fp4 ? kFormat : from.format, TensorFactor::kNone, false};
}

ExportedConfig config(const ExportedModel& model) {
  return {{{"quant_method", "mxfp4"}, {"modules_to_not_convert", model.kept}}};
}

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_FLAVOUR_KEY("mxfp4", "dequantize", kIgnored, "", "how it is computed"),
};

Status read(const json::Object&, QuantizationConfig&) {
  return {};
}

constexpr Importer kHuggingFaceImporter = {
    kHuggingFace.name, kHuggingFace.blocks, matches<kHuggingFace>, describe<kHuggingFace>, import,
    check_scales};
constexpr Importer kOriginalImporter = {kOriginal.name,      kOriginal.blocks, matches<kOriginal>,
                                        describe<kOriginal>, import,           check_scales};
constexpr QuantizeFormat kQuantized[] = {{.name = "mxfp4",
                                          .without_stacks = "mxfp4_pack_quantized",
                                          .bits = k4Bits,
                                          .group_sizes = kGroupsOf32,
                                          .default_group = 32,
                                          .head = false,
                                          .format = mxfp4_format,
                                          .quantize = to_mxfp4}};
/// As gpt-oss was published.
json::Value synthetic_config(int64_t) {
  return {
      {"quant_method", "mxfp4"},
      {"modules_to_not_convert",
       {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}};
}

constexpr RandomElements kRandom[] = {RandomElements::kCodes, RandomElements::kExponents};
constexpr SyntheticFormat kSynthetic[] = {{.name = kHuggingFace.name,
                                           .format = kFormat,
                                           .tensors = kRandom,
                                           .floats = DType::kF16,
                                           .config = synthetic_config}};
constexpr Exporter kExporter = {.name = kHuggingFace.name,
                                .quantized = kQuantized,
                                .synthetic = kSynthetic,
                                .describe = describe,
                                .target = target,
                                .config = config,
                                .write = write,
                                .write_experts = write_experts,
                                .readers = SUBBYTE_READERS("mxfp4", "tools transformers-mxfp4")};

}  // namespace

const Flavour mxfp4_flavour = {.name = "mxfp4",
                               .keys = kKeys,
                               .read = read,
                               .importers = {&kHuggingFaceImporter, &kOriginalImporter},
                               .exporters = {&kExporter}};

}  // namespace subbyte
