// Integers of 4 bits of ModelOpt (INT4_AWQ and INT4_BLOCKWISE, which it labels W4A16_AWQ).
//
//   weight           U8 [N/2, K]     codes of the outputs 2j (low nibble) and 2j + 1 (high) of an
//                                    input, signed, -8 to 7
//   weight_scale     F32 [N, K/G]    or BF16, F16
//   pre_quant_scale  F32 [K]         or BF16, F16; optional, see modelopt_parts.h
//   w(n, k) = q * s
//
// The canonical codes are q + 8 (i4, the offset binary of this library), row after row.

#include "checkpoints/code_stream.h"
#include "checkpoints/flavours/input_factors.h"
#include "checkpoints/flavours/modelopt.h"

namespace subbyte {
namespace {

constexpr int64_t kRowGrain = 16;
constexpr uint32_t kHalf = 8;

/// FP4 has bytes of that name, too, with scales of a byte.
bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* const codes = find_tensor(tensors, module, ".weight");
  const FileTensor* const scales = find_tensor(tensors, module, ".weight_scale");
  return codes != nullptr && codes->dtype == DType::kU8 && scales != nullptr &&
         float_format(scales->dtype) != Format::kNone &&
         find_tensor(tensors, module, ".weight_scale_2") == nullptr;
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const FileTensor* codes, require_tensor(context.tensors, module, ".weight"));
  SUBBYTE_TRY(const FileTensor* scales, require_tensor(context.tensors, module, ".weight_scale"));
  SUBBYTE_CHECK(require_modelopt(context, module, {ModeloptWeights::kInt4}));
  SUBBYTE_CHECK(require_rank(*codes, 2));
  SUBBYTE_CHECK(require_rank(*scales, 2));
  const uint64_t rows = 2 * codes->shape[0];
  const auto cols = static_cast<int64_t>(codes->shape[1]);
  SUBBYTE_CHECK(require_shape(*scales, {rows, scales->shape[1]}));
  SUBBYTE_TRY(const int64_t group, modelopt_group_size(context, module, *scales, cols, {}));
  ModuleInfo result;
  result.rows = static_cast<int64_t>(rows);
  result.cols = cols;
  result.format = {Format::kI4, float_format(scales->dtype), Zero::kNone,
                   group == cols ? 0 : group};
  result.tensors = {codes, scales};
  result.scales = scales;
  add_activations(context, module, result);
  return result;
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& packed = *info.tensors[0];
  SUBBYTE_CHECK(check_scales(context, info));
  Matrix matrix = matrix_of(info);
  MatrixView& view = matrix.view;
  view.scales = aligned_bytes(*info.scales, matrix.owners);
  const auto codes = allocate_bytes(view.rows * view.row_bytes());
  context.pool.parallel_for(view.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      std::byte* const row = codes.get() + n * view.row_bytes();
      const std::byte* const pairs = packed.bytes.data() + n / 2 * view.cols;
      for (int64_t k = 0; k < view.cols; ++k) {
        const uint32_t code = std::to_integer<uint32_t>(pairs[k]) >> (n % 2 * 4) & 0xFu;
        put_code(row, k, 4, code ^ kHalf);  // q + 8, of two's complement
      }
    }
  });
  packed.file->release(packed.bytes);
  view.codes = {codes.get(), static_cast<std::size_t>(view.rows * view.row_bytes())};
  matrix.owners.push_back(codes);
  return std::vector<Matrix>{std::move(matrix)};
}

using Module = WithInputFactors<describe, import>;

}  // namespace

const Importer modelopt_int4_importer = {"modelopt_int4",  ".weight",      matches,
                                         Module::describe, Module::import, check_scales};

}  // namespace subbyte
