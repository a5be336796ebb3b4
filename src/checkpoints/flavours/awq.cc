// AWQ, version "gemm" (AutoAWQ): 4 bits, packed along the outputs.
//
//   qweight I32 [K, N/8]    one word holds eight neighbouring outputs of one input:
//
//     bits   28..31 24..27 20..23 16..19 12..15  8..11   4..7   0..3
//     output  8c+7   8c+5   8c+3   8c+1   8c+6   8c+4   8c+2   8c
//
//   qzeros  I32 [K/G, N/8]  the same order, zero points as they are
//   scales  F16 [K/G, N]
//   w(n, k) = (q - z) * s;  there is no g_idx; with "zero_point": false all z are 8
//
// The canonical matrix has rows of outputs, so this is a transposition of nibbles.

#include <algorithm>

#include "base/quote.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/transpose.h"

namespace subbyte {
namespace {

bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* qweight = find_tensor(tensors, module, ".qweight");
  const FileTensor* scales = find_tensor(tensors, module, ".scales");
  // GPTQ packs along the inputs: its words are as many as the outputs, and it may have g_idx.
  return qweight != nullptr && find_tensor(tensors, module, ".g_idx") == nullptr &&
         (scales == nullptr || scales->shape.empty() || qweight->shape.empty() ||
          qweight->shape.back() != scales->shape.back());
}

/// AutoRound says zero_point: false of symmetric weights and writes zero points of 8 all the same.
Status check_zero_point(const QuantizationConfig& config, const FileTensor& qzeros) {
  if (config.zero_point) return {};
  constexpr std::byte kMiddle{0x88};
  const auto other = std::ranges::find_if(qzeros.bytes, [](std::byte b) { return b != kMiddle; });
  if (other == qzeros.bytes.end()) return {};
  return tensor_error(
      "import.config", qzeros,
      fmt::format("{} says that zero_point is false, so that all are 8, but byte "
                  "{} holds 0x{:02X}",
                  config.where, other - qzeros.bytes.begin(), std::to_integer<int>(*other)));
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const FileTensor* qweight, require_tensor(context.tensors, module, ".qweight"));
  SUBBYTE_TRY(const FileTensor* qzeros, require_tensor(context.tensors, module, ".qzeros"));
  SUBBYTE_TRY(const FileTensor* scales, require_tensor(context.tensors, module, ".scales"));
  SUBBYTE_CHECK(require_dtype(*qweight, DType::kI32));
  SUBBYTE_CHECK(require_rank(*qweight, 2));
  SUBBYTE_CHECK(require_rank(*scales, 2));
  SUBBYTE_CHECK(require_float(*scales));
  const uint64_t cols = qweight->shape[0];
  const uint64_t words = qweight->shape[1];
  const uint64_t groups = scales->shape[0];
  SUBBYTE_CHECK(check_config(context, module, QuantizationConfig::Method::kAwq, 4,
                             static_cast<int64_t>(cols), static_cast<int64_t>(groups)));
  SUBBYTE_CHECK(require_shape(*scales, {groups, words * 8}));
  SUBBYTE_CHECK(require_dtype(*qzeros, DType::kI32));
  SUBBYTE_CHECK(require_shape(*qzeros, {groups, words}));
  SUBBYTE_CHECK(check_zero_point(context.config, *qzeros));
  if (cols % 8 != 0) {
    return tensor_error("import.shape", *qweight,
                        fmt::format("{} inputs are not a multiple of 8", cols));
  }
  SUBBYTE_TRY(const int64_t group_size, group_size_of(context, *scales, static_cast<int64_t>(cols),
                                                      static_cast<int64_t>(groups)));
  ModuleInfo result;
  result.importer = "awq";
  result.format = {Format::kU4, float_format(scales->dtype), Zero::kU8, group_size};
  result.rows = static_cast<int64_t>(words * 8);
  result.cols = static_cast<int64_t>(cols);
  result.tensors = {qweight, qzeros, scales};
  result.scales = scales;
  return result;
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& qweight = *info.tensors[0];
  const FileTensor& qzeros = *info.tensors[1];
  const FileTensor& scales = *info.tensors[2];
  const std::size_t num_scales = scales.shape[0] * scales.shape[1];
  SUBBYTE_TRY(auto transposed_scales, transpose_scales(scales, context.pool));
  auto codes = allocate_bytes(qweight.bytes.size());
  auto zeros = allocate_bytes(num_scales);
  const auto words = static_cast<int64_t>(qweight.shape[1]);
  transpose_awq_nibbles(codes.get(), qweight.bytes.data(), info.cols, words, context.pool,
                        qweight.file.get());
  transpose_awq_nibbles_to_bytes(zeros.get(), qzeros.bytes.data(),
                                 static_cast<int64_t>(qzeros.shape[0]), words, context.pool);

  Matrix matrix;
  matrix.view.format = info.format;
  matrix.view.rows = info.rows;
  matrix.view.cols = info.cols;
  matrix.view.codes = {codes.get(), qweight.bytes.size()};
  matrix.view.scales = {transposed_scales.get(), scales.bytes.size()};
  matrix.view.zeros = {zeros.get(), num_scales};
  matrix.owners = {codes, transposed_scales, zeros};
  for (const FileTensor* tensor : info.tensors) tensor->file->release(tensor->bytes);
  return std::vector<Matrix>{std::move(matrix)};
}

}  // namespace

extern const Importer awq_importer;
const Importer awq_importer = {"awq", ".qweight", matches, describe, import, check_scales};

}  // namespace subbyte
