// NVFP4: E2M1 elements, an E4M3 scale for 16 of them, and one more factor for the whole tensor.
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

#include <cmath>

#include "checkpoints/compressed_tensors.h"
#include "checkpoints/export_parts.h"

namespace subbyte {
namespace {

using Method = QuantizationConfig::Method;

constexpr uint64_t kGroup = 16;
constexpr WeightFormat kFormat = {Format::kE2M1, Format::kE4M3, Zero::kNone, kGroup};

struct Names {
  std::string_view importer;
  std::string_view codes;
  std::string_view factor;
  std::string_view activations;
};

constexpr Names kCompressed = {"nvfp4_pack_quantized", ".weight_packed", ".weight_global_scale",
                               ".input_global_scale"};
constexpr Names kModelopt = {"modelopt_nvfp4", ".weight", ".weight_scale_2", ".input_scale"};

const Tensor* find(const TensorSource& tensors, std::string_view module, std::string_view suffix) {
  return tensors.find(fmt::format("{}{}", module, suffix));
}

bool matches_compressed(const TensorSource& tensors, std::string_view module) {
  const Tensor* codes = find(tensors, module, kCompressed.codes);
  if (codes == nullptr || codes->dtype != DType::kU8) return false;
  const Tensor* scale = find(tensors, module, ".weight_scale");
  return find(tensors, module, kCompressed.factor) != nullptr ||
         (scale != nullptr && scale->dtype == DType::kF8E4M3);
}

bool matches_modelopt(const TensorSource& tensors, std::string_view module) {
  const Tensor* codes = find(tensors, module, kModelopt.codes);
  return codes != nullptr && codes->dtype == DType::kU8 &&
         find(tensors, module, ".weight_scale") != nullptr;
}

/// One positive number; 0 only where it is multiplied by.
Status check_factor(const Tensor& tensor, bool divides) {
  SUBBYTE_CHECK(require_dtype(tensor, DType::kF32));
  if (!tensor.shape.empty()) SUBBYTE_CHECK(require_shape(tensor, {1}));
  float factor = 0;
  __builtin_memcpy(&factor, tensor.bytes.data(), 4);
  if (std::isfinite(factor) && factor >= 0 && (factor > 0 || !divides)) return {};
  return tensor_error("import.scale_not_finite", tensor,
                      fmt::format("expected a positive number, found {}", factor));
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module,
                            const Names& names) {
  const TensorSource& tensors = context.tensors;
  SUBBYTE_TRY(const Tensor* codes, require_tensor(tensors, module, names.codes));
  SUBBYTE_TRY(const Tensor* scales, require_tensor(tensors, module, ".weight_scale"));
  SUBBYTE_TRY(const Tensor* factor, require_tensor(tensors, module, names.factor));
  SUBBYTE_CHECK(require_dtype(*codes, DType::kU8));
  SUBBYTE_CHECK(require_rank(*codes, 2));
  const uint64_t rows = codes->shape[0];
  const uint64_t row_bytes = codes->shape[1];
  if (row_bytes % (kGroup / 2) != 0) {
    return tensor_error("import.shape", *codes,
                        fmt::format("{} inputs are not a multiple of 16", 2 * row_bytes));
  }
  SUBBYTE_CHECK(require_dtype(*scales, DType::kF8E4M3));
  SUBBYTE_CHECK(require_shape(*scales, {rows, row_bytes / (kGroup / 2)}));
  SUBBYTE_CHECK(check_factor(*factor, &names == &kCompressed));
  ModuleInfo result;
  result.importer = names.importer;
  result.format = kFormat;
  result.rows = static_cast<int64_t>(rows);
  result.cols = static_cast<int64_t>(row_bytes * 2);
  result.tensors = {codes, scales, factor};
  if (const Tensor* unused = find(tensors, module, names.activations)) {
    result.tensors.push_back(unused);
  }
  return result;
}

Result<ModuleInfo> describe_compressed(const ImportContext& context, std::string_view module) {
  SUBBYTE_CHECK(require_scheme(context, module, CompressedScheme::Format::kNvfp4));
  return describe(context, module, kCompressed);
}

Result<ModuleInfo> describe_modelopt(const ImportContext& context, std::string_view module) {
  SUBBYTE_CHECK(require_method(context, module, Method::kModelopt));
  return describe(context, module, kModelopt);
}

Result<std::vector<Matrix>> import(const ImportContext&, const ModuleInfo& info) {
  const Tensor& codes = *info.tensors[0];
  const Tensor& scales = *info.tensors[1];
  SUBBYTE_CHECK(check_e4m3_scales(scales));
  float factor = 0;
  __builtin_memcpy(&factor, info.tensors[2]->bytes.data(), 4);
  Matrix matrix;
  matrix.view.format = info.format;
  matrix.view.rows = info.rows;
  matrix.view.cols = info.cols;
  matrix.view.codes = codes.bytes;
  matrix.view.scales = scales.bytes;
  matrix.view.tensor_scale = info.importer == kCompressed.importer ? 1.0 / factor : factor;
  matrix.owners = {codes.file, scales.file};
  return std::vector<Matrix>{std::move(matrix)};
}

Result<std::vector<ExportedTensor>> describe_tensors(const ExportShape& shape,
                                                     std::string_view module, const Names& names) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  SUBBYTE_CHECK(require_input_order(shape, module));
  if (shape.format != kFormat) {
    return export_error(
        "export.format", module,
        fmt::format("NVFP4 is {}, not {}", to_string(kFormat), to_string(shape.format)));
  }
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto num_groups = static_cast<uint64_t>(groups);
  const bool divides = &names == &kCompressed;
  return std::vector<ExportedTensor>{{names.codes, DType::kU8, {rows, num_groups * kGroup / 2}, {}},
                                     {".weight_scale", DType::kF8E4M3, {rows, num_groups}, {}},
                                     {names.factor, DType::kF32, divides ? Shape{1} : Shape{}, {}}};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          const Names& names) {
  SUBBYTE_TRY(auto tensors, describe_tensors(shape_of(matrix), module, names));
  const bool divides = &names == &kCompressed;
  const auto factor = static_cast<float>(divides ? 1 / matrix.tensor_scale : matrix.tensor_scale);
  const bool lost = factor == 0 && matrix.tensor_scale != 0;
  if (!std::isfinite(factor) || factor < 0 || lost) {
    return export_error("export.tensor_scale", module,
                        fmt::format("a factor of {} is beyond what F32 holds as {}",
                                    matrix.tensor_scale, names.factor));
  }
  allocate(tensors);
  std::ranges::copy(matrix.codes, tensors[0].bytes.begin());
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  __builtin_memcpy(tensors[2].bytes.data(), &factor, 4);
  return tensors;
}

template <const Names& names>
MatrixForm form(const ExportShape& from) {
  const bool divides = &names == &kCompressed;
  const bool fp4 = from.format.element == Format::kE2M1;
  return {fp4 ? kFormat : from.format, divides ? TensorFactor::kDivides : TensorFactor::kMultiplies,
          false};
}

ExportedConfig config_compressed(const ExportedModel& model) {
  return compressed_config(model, "nvfp4-pack-quantized");
}

/// Activations stay floats, so it is W4A16.
ExportedConfig config_modelopt(const ExportedModel& model) {
  const json::Value producer = {{"name", "modelopt"}, {"version", "subbyte"}};
  const json::Value quantization = {{"quant_algo", "W4A16_NVFP4"},
                                    {"kv_cache_quant_algo", nullptr},
                                    {"group_size", kGroup},
                                    {"exclude_modules", model.kept}};
  json::Value section = {{"quant_method", "modelopt"}};
  section.update(quantization);
  section["ignore"] = model.kept;
  section["producer"] = producer;
  return {
      section, "hf_quant_config.json", {{"producer", producer}, {"quantization", quantization}}};
}

template <const Names& names>
Result<std::vector<ExportedTensor>> describe_export(const ExportShape& shape,
                                                    std::string_view module) {
  return describe_tensors(shape, module, names);
}

template <const Names& names>
Result<std::vector<ExportedTensor>> write_export(const MatrixView& matrix, std::string_view module,
                                                 Executor&) {
  return write(matrix, module, names);
}

}  // namespace

extern const Importer nvfp4_pack_quantized_importer;
extern const Importer modelopt_nvfp4_importer;
extern const Exporter nvfp4_pack_quantized_exporter;
extern const Exporter modelopt_nvfp4_exporter;
const Importer nvfp4_pack_quantized_importer = {kCompressed.importer, kCompressed.codes,
                                                matches_compressed, describe_compressed, import};
const Importer modelopt_nvfp4_importer = {kModelopt.importer, kModelopt.codes, matches_modelopt,
                                          describe_modelopt, import};
const Exporter nvfp4_pack_quantized_exporter = {.name = kCompressed.importer,
                                                .describe = describe_export<kCompressed>,
                                                .form = form<kCompressed>,
                                                .config = config_compressed,
                                                .write = write_export<kCompressed>};
const Exporter modelopt_nvfp4_exporter = {.name = kModelopt.importer,
                                          .describe = describe_export<kModelopt>,
                                          .form = form<kModelopt>,
                                          .config = config_modelopt,
                                          .write = write_export<kModelopt>};

}  // namespace subbyte
