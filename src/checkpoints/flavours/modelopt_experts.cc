// Experts of gpt-oss in NVFP4 by ModelOpt: one parameter that holds all of them, as transformers
// has it, inputs before outputs. See nvfp4_parts.h for the numbers.
//
//   X                 U8 [E, K/2, N]       byte (e, j, n): input 2j of output n in the low nibble,
//                                          input 2j + 1 in the high one
//   X_weight_scale    F8_E4M3 [E, K/16, N]
//   X_weight_scale_2  F32 []               one for all experts
//   X_input_scale     F32 []               of the activations, which stay floats here; optional
//   X_pre_quant_scale float [K]            optional, see modelopt_parts.h
//
// The canonical matrix has rows of outputs, so codes and scales are transposed byte by byte.

#include "checkpoints/flavours/input_factors.h"
#include "checkpoints/flavours/modelopt.h"
#include "checkpoints/flavours/nvfp4_parts.h"
#include "checkpoints/transpose.h"

namespace subbyte {
namespace {

constexpr uint64_t kGroup = 16;
constexpr WeightFormat kFormat = {Format::kE2M1, Format::kE4M3, Zero::kNone, kGroup};
constexpr std::string_view kScales = "_weight_scale";

bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* codes = tensors.find(module);
  return codes != nullptr && codes->dtype == DType::kU8 && codes->shape.size() == 3 &&
         find_tensor(tensors, module, kScales) != nullptr;
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_CHECK(require_modelopt(context, module, {ModeloptWeights::kNvfp4}));
  SUBBYTE_TRY(const FileTensor* codes, require_tensor(context.tensors, module, ""));
  SUBBYTE_TRY(const FileTensor* scales, require_tensor(context.tensors, module, kScales));
  SUBBYTE_TRY(const FileTensor* factor, require_tensor(context.tensors, module, "_weight_scale_2"));
  const uint64_t row_bytes = codes->shape[1];
  if (row_bytes % (kGroup / 2) != 0) {
    return tensor_error("import.shape", *codes,
                        fmt::format("{} inputs are not a multiple of 16", 2 * row_bytes));
  }
  SUBBYTE_CHECK(require_dtype(*scales, DType::kF8E4M3));
  SUBBYTE_CHECK(
      require_shape(*scales, {codes->shape[0], row_bytes / (kGroup / 2), codes->shape[2]}));
  SUBBYTE_CHECK(nvfp4::check_factor(*factor, false));
  ModuleInfo result;
  result.format = kFormat;
  result.experts = static_cast<int64_t>(codes->shape[0]);
  result.rows = static_cast<int64_t>(codes->shape[2]);
  result.cols = static_cast<int64_t>(row_bytes * 2);
  result.tensors = {codes, scales, factor};
  result.scales = scales;
  if (const FileTensor* unused = find_tensor(context.tensors, module, "_input_scale")) {
    result.tensors.push_back(unused);
  }
  return result;
}

/// The bytes of one expert, [rows][cols] in the file, as [cols][rows].
std::span<const std::byte> transposed(const FileTensor& tensor, int64_t expert, Executor& pool,
                                      Matrix& matrix) {
  const std::size_t size = tensor.bytes.size() / tensor.shape[0];
  const auto from = tensor.bytes.subspan(static_cast<std::size_t>(expert) * size, size);
  const auto bytes = allocate_bytes(size);
  transpose(bytes.get(), from.data(), static_cast<int64_t>(tensor.shape[1]),
            static_cast<int64_t>(tensor.shape[2]), 1, pool, tensor.file.get());
  tensor.file->release(from);
  matrix.owners.push_back(bytes);
  return {bytes.get(), size};
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  SUBBYTE_CHECK(check_scales(context, info));
  float factor = 0;
  __builtin_memcpy(&factor, info.tensors[2]->bytes.data(), 4);
  std::vector<Matrix> experts(static_cast<std::size_t>(info.experts), matrix_of(info));
  for (std::size_t e = 0; e < experts.size(); ++e) {
    MatrixView& view = experts[e].view;
    const auto expert = static_cast<int64_t>(e);
    view.codes = transposed(*info.tensors[0], expert, context.pool, experts[e]);
    view.scales = transposed(*info.tensors[1], expert, context.pool, experts[e]);
    view.tensor_scale = factor;
  }
  return experts;
}

using Module = WithInputFactors<describe, import>;

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_TRY(const Blocks blocks, require_blocks(shape, module, "NVFP4", kFormat));
  const auto experts = static_cast<uint64_t>(shape.experts);
  return std::vector<ExportedTensor>{
      {"", DType::kU8, {experts, blocks.groups * 8, blocks.rows}, {}},
      {kScales, DType::kF8E4M3, {experts, blocks.groups, blocks.rows}, {}}};
}

/// The factor of all experts stays a tensor of its own.
Result<std::vector<ExportedTensor>> write_experts(std::span<const Matrix> experts,
                                                  std::string_view module, Executor& pool) {
  ExportShape shape = shape_of(experts.front().view);
  shape.experts = std::ssize(experts);
  SUBBYTE_TRY(auto tensors, describe(shape, module));
  allocate(tensors);
  std::byte* codes = tensors[0].bytes.data();
  std::byte* scales = tensors[1].bytes.data();
  for (const Matrix& expert : experts) {
    const MatrixView& view = expert.view;
    transpose(codes, view.codes.data(), view.rows, view.row_bytes(), 1, pool);
    transpose(scales, view.scales.data(), view.rows, view.groups(), 1, pool);
    codes += view.codes.size();
    scales += view.scales.size();
  }
  return tensors;
}

}  // namespace

const Importer modelopt_experts_importer = {"modelopt_experts", kScales,        matches,
                                            Module::describe,   Module::import, check_scales};
const Exporter modelopt_experts_exporter = {
    .name = "modelopt_experts", .describe = describe, .write_experts = write_experts};

}  // namespace subbyte
