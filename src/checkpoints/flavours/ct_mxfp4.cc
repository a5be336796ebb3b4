// compressed-tensors, format "mxfp4-pack-quantized": one matrix of MXFP4, in bytes as gpt-oss has
// them.
//
//   weight_packed U8 [N, K/2]   element 2j in the low nibble of byte j, 2j+1 in the high one
//   weight_scale  U8 [N, K/32]  E8M0: 2^(byte - 127), one for 32 elements; 255 (NaN) is refused
//   w(n, k) = e * s
//
// This is the canonical form already, so the bytes are used where they lie in the file. ModelOpt
// (quant_algo mxfp4, W4A8_MXFP4_FP8) calls the codes weight.

#include "checkpoints/export_parts.h"
#include "checkpoints/flavours/ct_parts.h"
#include "checkpoints/flavours/input_factors.h"
#include "checkpoints/flavours/modelopt.h"
#include "quantize/quantizers.h"

namespace subbyte {
namespace {

constexpr uint64_t kGroup = 32;
constexpr WeightFormat kFormat = {Format::kE2M1, Format::kE8M0, Zero::kNone, kGroup};

struct Names {
  std::string_view name;
  std::string_view codes;
  bool codes_tell;  // codes alone say that it is MXFP4, with no look at the scales
  Status (*check)(const ImportContext& context, std::string_view module);
};

Status check_compressed(const ImportContext& context, std::string_view module) {
  SUBBYTE_CHECK(require_scheme(context, module, CompressedScheme::Format::kMxfp4));
  return {};
}

Status check_modelopt(const ImportContext& context, std::string_view module) {
  return require_modelopt(context, module, {ModeloptWeights::kMxfp4});
}

constexpr Names kCompressedTensors = {"mxfp4_pack_quantized", ".weight_packed", true,
                                      check_compressed};
constexpr Names kModelopt = {"modelopt_mxfp4", ".weight", false, check_modelopt};

/// Tried after NVFP4 of compressed-tensors, which has the same names and one more.
template <const Names& names>
bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* codes = find_tensor(tensors, module, names.codes);
  if (codes == nullptr || codes->dtype != DType::kU8) return false;
  if (names.codes_tell) return true;
  const FileTensor* scales = find_tensor(tensors, module, ".weight_scale");
  return scales != nullptr && scales->dtype == DType::kU8;
}

template <const Names& names>
Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const FileTensor* packed, require_tensor(context.tensors, module, names.codes));
  SUBBYTE_TRY(const FileTensor* scales, require_tensor(context.tensors, module, ".weight_scale"));
  SUBBYTE_CHECK(names.check(context, module));
  SUBBYTE_CHECK(require_rank(*packed, 2));
  const uint64_t rows = packed->shape[0];
  const uint64_t row_bytes = packed->shape[1];
  if (row_bytes % (kGroup / 2) != 0) {
    return tensor_error("import.shape", *packed,
                        fmt::format("{} inputs are not a multiple of 32", 2 * row_bytes));
  }
  SUBBYTE_CHECK(require_dtype(*scales, DType::kU8));
  SUBBYTE_CHECK(require_shape(*scales, {rows, row_bytes / (kGroup / 2)}));
  ModuleInfo result;
  result.format = kFormat;
  result.rows = static_cast<int64_t>(rows);
  result.cols = static_cast<int64_t>(row_bytes * 2);
  result.tensors = {packed, scales};
  result.scales = scales;
  if (const FileTensor* unused = find_tensor(context.tensors, module, ".input_scale")) {
    result.tensors.push_back(unused);  // of activations, which stay floats here
  }
  return result;
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& packed = *info.tensors[0];
  const FileTensor& scales = *info.tensors[1];
  SUBBYTE_CHECK(check_scales(context, info));
  Matrix matrix = matrix_of(info);
  matrix.view.codes = packed.bytes;
  matrix.view.scales = scales.bytes;
  matrix.owners = {packed.file, scales.file};
  return std::vector<Matrix>{std::move(matrix)};
}

template <const Names& names>
Result<std::vector<ExportedTensor>> describe_tensors(const ExportShape& shape,
                                                     std::string_view module) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  SUBBYTE_TRY(const Blocks blocks, require_blocks(shape, module, "MXFP4", kFormat));
  return std::vector<ExportedTensor>{
      {names.codes, DType::kU8, {blocks.rows, blocks.groups * kGroup / 2}, {}},
      {".weight_scale", DType::kU8, {blocks.rows, blocks.groups}, {}}};
}

template <const Names& names>
Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  SUBBYTE_TRY(auto tensors,
              allocate(describe_tensors<names>(shape_of(matrix), module), matrix, module));
  std::ranges::copy(matrix.codes, tensors[0].bytes.begin());
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  return tensors;
}

TargetFormat target(const ExportShape& from) {
  const bool fp4 = from.format.element == Format::kE2M1;
  return {fp4 ? kFormat : from.format, TensorFactor::kNone, false};
}

ExportedConfig config(const ExportedModel& model) {
  return compressed_config(model, "mxfp4-pack-quantized");
}

constexpr QuantizeFormat kQuantized[] = {{.name = kCompressedTensors.name,
                                          .is_meant_by_text = false,
                                          .bits = k4Bits,
                                          .group_sizes = kGroupsOf32,
                                          .default_group = 32,
                                          .format = mxfp4_format,
                                          .quantize = to_mxfp4}};

using ModeloptModule = WithInputFactors<describe<kModelopt>, import>;

}  // namespace

const Importer mxfp4_pack_quantized_importer = {kCompressedTensors.name,
                                                kCompressedTensors.codes,
                                                matches<kCompressedTensors>,
                                                describe<kCompressedTensors>,
                                                import,
                                                check_scales};
const Importer modelopt_mxfp4_importer = {kModelopt.name,         kModelopt.codes,
                                          matches<kModelopt>,     ModeloptModule::describe,
                                          ModeloptModule::import, check_scales};
const Exporter mxfp4_pack_quantized_exporter = {
    .name = kCompressedTensors.name,
    .quantized = kQuantized,
    .says_kv_cache = says_compressed_kv_cache,
    .describe = describe_tensors<kCompressedTensors>,
    .target = target,
    .config = config,
    .write = write<kCompressedTensors>,
    .readers = SUBBYTE_READERS("mxfp4_pack_quantized", "tools transformers-auto")};
const Exporter modelopt_mxfp4_exporter = {
    .name = kModelopt.name, .describe = describe_tensors<kModelopt>, .write = write<kModelopt>};

}  // namespace subbyte
