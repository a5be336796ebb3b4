// AWQ, version "gemm" (AutoAWQ): 4 bits, packed along the outputs.
//
//   qweight I32 [K, N/8]    one word holds eight neighbouring outputs of one input:
//
//     bits   28..31 24..27 20..23 16..19 12..15  8..11   4..7   0..3
//     output  8c+7   8c+5   8c+3   8c+1   8c+6   8c+4   8c+2   8c
//
//   qzeros  I32 [K/G, N/8]  the same order, zero points as they are
//   scales  F16 [K/G, N]
//   w(n, k) = (q - z) * s;  there is no g_idx
//
// The canonical matrix has rows of outputs, so this is a transposition of nibbles.

#include <array>

#include "checkpoints/import_parts.h"

namespace subbyte {
namespace {

constexpr int64_t kWordsPerTile = 16;  // a cache line of qweight
constexpr std::array<int, 8> kNibbleOfOutput = {0, 4, 1, 5, 2, 6, 3, 7};

bool matches(const TensorSource& tensors, std::string_view module) {
  const Tensor* qweight = tensors.find(fmt::format("{}.qweight", module));
  const Tensor* scales = tensors.find(fmt::format("{}.scales", module));
  // GPTQ packs along the inputs: its words are as many as the outputs, and it may have g_idx.
  return qweight != nullptr && tensors.find(fmt::format("{}.g_idx", module)) == nullptr &&
         (scales == nullptr || scales->shape.empty() || qweight->shape.empty() ||
          qweight->shape.back() != scales->shape.back());
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const Tensor* qweight, require_tensor(context.tensors, module, ".qweight"));
  SUBBYTE_TRY(const Tensor* qzeros, require_tensor(context.tensors, module, ".qzeros"));
  SUBBYTE_TRY(const Tensor* scales, require_tensor(context.tensors, module, ".scales"));
  SUBBYTE_CHECK(require_dtype(*qweight, DType::kI32));
  SUBBYTE_CHECK(require_rank(*qweight, 2));
  SUBBYTE_CHECK(require_rank(*scales, 2));
  SUBBYTE_CHECK(require_float(*scales));
  const uint64_t cols = qweight->shape[0];
  const uint64_t words = qweight->shape[1];
  const uint64_t groups = scales->shape[0];
  SUBBYTE_CHECK(check_config(context, module, QuantizationConfig::Method::kAwq, 4,
                             static_cast<int64_t>(cols), static_cast<int64_t>(groups)));
  if (!context.config.zero_point) {
    return Error{"import.config", fmt::format("{}: zero_point is false, but '{}' has qzeros",
                                              context.config.where, module)};
  }
  SUBBYTE_CHECK(require_shape(*scales, {groups, words * 8}));
  SUBBYTE_CHECK(require_dtype(*qzeros, DType::kI32));
  SUBBYTE_CHECK(require_shape(*qzeros, {groups, words}));
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
  return result;
}

/// The bytes of an 4x4 matrix of bytes, one word a row, transposed.
void transpose_bytes(std::array<uint32_t, 4>& m) {
  const uint32_t a = (m[0] & 0x00FF00FFu) | ((m[1] & 0x00FF00FFu) << 8);
  const uint32_t b = ((m[0] >> 8) & 0x00FF00FFu) | (m[1] & 0xFF00FF00u);
  const uint32_t c = (m[2] & 0x00FF00FFu) | ((m[3] & 0x00FF00FFu) << 8);
  const uint32_t d = ((m[2] >> 8) & 0x00FF00FFu) | (m[3] & 0xFF00FF00u);
  m[0] = (a & 0xFFFFu) | (c << 16);
  m[2] = (a >> 16) | (c & 0xFFFF0000u);
  m[1] = (b & 0xFFFFu) | (d << 16);
  m[3] = (b >> 16) | (d & 0xFFFF0000u);
}

/// Eight words (inputs k .. k+7 of one column of words) to eight words (outputs 8c .. 8c+7), in
/// each of which nibble j is input k+j.
std::array<uint32_t, 8> transpose_nibbles(const std::array<uint32_t, 8>& words) {
  std::array<uint32_t, 4> low;   // bytes: outputs 0, 4, 1, 5 of the input pairs
  std::array<uint32_t, 4> high;  // bytes: outputs 2, 6, 3, 7
  for (int pair = 0; pair < 4; ++pair) {
    const uint32_t even = words[2 * pair];
    const uint32_t odd = words[2 * pair + 1];
    low[pair] = (even & 0x0F0F0F0Fu) | ((odd & 0x0F0F0F0Fu) << 4);
    high[pair] = ((even >> 4) & 0x0F0F0F0Fu) | (odd & 0xF0F0F0F0u);
  }
  transpose_bytes(low);
  transpose_bytes(high);
  return {low[0], low[2], high[0], high[2], low[1], low[3], high[1], high[3]};
}

void transpose_codes(std::byte* codes, const Tensor& qweight, Executor& pool) {
  const auto cols = static_cast<int64_t>(qweight.shape[0]);
  const auto words = static_cast<int64_t>(qweight.shape[1]);
  pool.parallel_for(words, kWordsPerTile, [&](int64_t begin, int64_t end, int) {
    for (int64_t first = begin; first < end; first += kWordsPerTile) {
      const int64_t last = std::min(first + kWordsPerTile, end);
      for (int64_t k = 0; k < cols; k += 8) {
        for (int64_t c = first; c < last; ++c) {
          std::array<uint32_t, 8> tile;
          for (int64_t i = 0; i < 8; ++i) tile[i] = load_u32(qweight, (k + i) * words + c);
          tile = transpose_nibbles(tile);
          for (int64_t e = 0; e < 8; ++e) {
            __builtin_memcpy(codes + (8 * c + e) * (cols / 2) + k / 2, &tile[e], 4);
          }
        }
      }
    }
  });
}

void transpose_zeros(std::byte* zeros, const Tensor& qzeros) {
  const std::size_t groups = qzeros.shape[0];
  const std::size_t words = qzeros.shape[1];
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t c = 0; c < words; ++c) {
      const uint32_t word = load_u32(qzeros, g * words + c);
      for (std::size_t e = 0; e < 8; ++e) {
        zeros[(8 * c + e) * groups + g] = std::byte((word >> (4 * kNibbleOfOutput[e])) & 0xFu);
      }
    }
  }
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const Tensor& qweight = *info.tensors[0];
  const Tensor& qzeros = *info.tensors[1];
  const Tensor& scales = *info.tensors[2];
  const std::size_t num_scales = scales.shape[0] * scales.shape[1];
  SUBBYTE_TRY(auto transposed_scales, transpose_scales(scales));
  auto codes = allocate_bytes(qweight.bytes.size());
  auto zeros = allocate_bytes(num_scales);
  transpose_codes(codes.get(), qweight, context.pool);
  transpose_zeros(zeros.get(), qzeros);

  Matrix matrix;
  matrix.view.format = info.format;
  matrix.view.rows = info.rows;
  matrix.view.cols = info.cols;
  matrix.view.codes = {codes.get(), qweight.bytes.size()};
  matrix.view.scales = {transposed_scales.get(), scales.bytes.size()};
  matrix.view.zeros = {zeros.get(), num_scales};
  matrix.owners = {codes, transposed_scales, zeros};
  for (const Tensor* tensor : info.tensors) tensor->file->release(tensor->bytes);
  return std::vector<Matrix>{std::move(matrix)};
}

}  // namespace

extern const Importer awq_importer;
const Importer awq_importer = {"awq", ".qweight", matches, describe, import};

}  // namespace subbyte
