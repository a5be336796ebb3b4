// compressed-tensors, formats "naive-quantized" and "int-quantized": integers of 2 to 8 bits, a
// byte each; and those of 8 bits of ModelOpt.
//
//   weight             I8 [N, K]    the codes q, signed, -2^(b-1) to 2^(b-1) - 1
//   weight_scale       F16 [N, K/G] or BF16, F32; [N, 1] for strategy "channel", [1] for "tensor";
//                                   ModelOpt: [N]. The last group may be short
//   weight_zero_point  I8 [N, K/G]  when asymmetric, signed as the codes are
//   input_scale        of activations, which stay floats here: left aside
//   pre_quant_scale    ModelOpt's SmoothQuant: see modelopt_parts.h
//   w(n, k) = (q - z) * s
//
// The canonical codes are q + 2^(b-1), of b bits: symmetric weights become iN, the offset binary of
// this library, the others uN with z + 2^(b-1) beside them, as in ct_pack_quantized.cc.

#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "base/quote.h"
#include "checkpoints/code_stream.h"
#include "checkpoints/flavours/ct_parts.h"
#include "checkpoints/flavours/modelopt_parts.h"

namespace subbyte {
namespace {

constexpr int64_t kRowGrain = 16;

struct Parts {
  const FileTensor* weight;
  const FileTensor* scale;
  const FileTensor* zero_point;  // nullptr when absent
  int64_t rows, cols, groups;    // groups_of_rows()
};

/// bitsandbytes has bytes of that name, too, without such a scale.
bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* weight = find_tensor(tensors, module, ".weight");
  return weight != nullptr && weight->dtype == DType::kI8 &&
         find_tensor(tensors, module, ".weight_scale") != nullptr;
}

Result<Parts> find_parts(const TensorSource& tensors, std::string_view module) {
  Parts parts = {};
  SUBBYTE_TRY(parts.weight, require_tensor(tensors, module, ".weight"));
  SUBBYTE_TRY(parts.scale, require_tensor(tensors, module, ".weight_scale"));
  parts.zero_point = find_tensor(tensors, module, ".weight_zero_point");
  SUBBYTE_CHECK(require_rank(*parts.weight, 2));
  SUBBYTE_TRY(parts.groups, groups_of_rows(*parts.scale, parts.weight->shape[0]));
  if (parts.zero_point != nullptr) {
    SUBBYTE_CHECK(require_dtype(*parts.zero_point, DType::kI8));
    SUBBYTE_CHECK(require_shape(*parts.zero_point, parts.scale->shape));
  }
  parts.rows = static_cast<int64_t>(parts.weight->shape[0]);
  parts.cols = static_cast<int64_t>(parts.weight->shape[1]);
  return parts;
}

bool agrees(const CompressedScheme& scheme, const Parts& parts) {
  return scheme.format == CompressedScheme::Format::kNaive &&
         groups_of_rows(scheme, parts.cols) == parts.groups &&
         scheme.symmetric == (parts.zero_point == nullptr) && !scheme.act_order;
}

/// Bytes do not tell how many of their bits are used, so several that could be meant are refused.
Result<CompressedScheme> find_scheme(const ImportContext& context, std::string_view module,
                                     const Parts& parts) {
  if (context.config.method == QuantizationConfig::Method::kModelopt) {
    SUBBYTE_CHECK(require_modelopt(context, module, {ModeloptWeights::kInt8}));
    const int64_t block_rows = parts.groups == kOneForTensor ? -1 : 1;
    const CompressedScheme rows = {
        CompressedScheme::Format::kNaive, 8, true, -1, false, block_rows};
    if (agrees(rows, parts)) return rows;
    return tensor_error("import.shape", *parts.scale, "expected a scale for each row of 8 bits");
  }
  SUBBYTE_CHECK(require_scheme(context, module, CompressedScheme::Format::kNaive));
  std::optional<CompressedScheme> found;
  for (const CompressedScheme& scheme : context.config.schemes) {
    if (!agrees(scheme, parts)) continue;
    if (found && found->bits != scheme.bits) {
      return tensor_error("naive_quantized.bits", *parts.weight,
                          fmt::format("{} has groups of {} and of {} bits for such tensors",
                                      context.config.where, found->bits, scheme.bits));
    }
    found = scheme;
  }
  if (found) return *found;
  return Error{"import.config",
               fmt::format("{}: the weights are {}, but {} has {} for {} inputs and {} zero points",
                           context.config.where, list_of(context.config.schemes),
                           quote_name(module), groups_text(parts.groups), parts.cols,
                           parts.zero_point == nullptr ? "no" : "with")};
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const Parts parts, find_parts(context.tensors, module));
  SUBBYTE_TRY(const CompressedScheme scheme, find_scheme(context, module, parts));
  ModuleInfo result;
  result.importer = "naive_quantized";
  result.rows = parts.rows;
  result.cols = parts.cols;
  result.tensors = {parts.weight, parts.scale};
  result.scales = parts.scale;
  result.format = integers_of(scheme, *parts.scale, parts.groups, parts.zero_point != nullptr);
  if (parts.zero_point != nullptr) result.tensors.push_back(parts.zero_point);
  modelopt::add_activations(context, module, result);
  return result;
}

/// Refuses numbers beyond so many bits.
Status check_range(const FileTensor& tensor, int bits) {
  const int half = 1 << (bits - 1);
  const auto is_beyond = [half](std::byte byte) {
    const int value = static_cast<int8_t>(byte);
    return value < -half || value >= half;
  };
  const auto found = std::ranges::find_if(tensor.bytes, is_beyond);
  if (found == tensor.bytes.end()) return {};
  return tensor_error(
      "naive_quantized.range", tensor,
      fmt::format("expected {} to {}, which {} bits hold, found {} at index {}", -half, half - 1,
                  bits, static_cast<int8_t>(*found), found - tensor.bytes.begin()));
}

std::shared_ptr<std::byte[]> pack_codes(const FileTensor& weight, const MatrixView& view,
                                        Executor& pool) {
  const int bits = info(view.format.element).bits;
  const int half = 1 << (bits - 1);
  auto codes = allocate_bytes(view.rows * view.row_bytes());
  pool.parallel_for(view.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      std::byte* row = codes.get() + n * view.row_bytes();
      const std::byte* from = weight.bytes.data() + n * view.cols;
      for (int64_t k = 0; k < view.cols; ++k) {
        put_code(row, k, bits, static_cast<uint32_t>(static_cast<int8_t>(from[k]) + half));
      }
    }
  });
  weight.file->release(weight.bytes);
  return codes;
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& weight = *info.tensors[0];
  const int bits = subbyte::info(info.format.element).bits;
  SUBBYTE_CHECK(check_scales(context, info));
  SUBBYTE_CHECK(check_range(weight, bits));
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.format = info.format;
  view.rows = info.rows;
  view.cols = info.cols;
  view.scales = scales_of_rows(*info.scales, info.rows, matrix.owners);
  const auto codes = pack_codes(weight, view, context.pool);
  view.codes = {codes.get(), static_cast<std::size_t>(view.rows * view.row_bytes())};
  matrix.owners.push_back(codes);
  if (info.format.zero == Zero::kNone) return std::vector<Matrix>{std::move(matrix)};
  const FileTensor& zero_point = *info.tensors[2];
  SUBBYTE_CHECK(check_range(zero_point, bits));
  const int width = zero_bytes(info.format.zero);
  const auto count = static_cast<std::size_t>(view.rows * view.groups());
  const auto zeros = allocate_bytes(count * width);
  const bool is_one = zero_point.bytes.size() == 1;  // for the tensor
  for (std::size_t i = 0; i < count; ++i) {
    const int zero = static_cast<int8_t>(zero_point.bytes[is_one ? 0 : i]) + (1 << (bits - 1));
    const auto stored = static_cast<uint16_t>(zero);
    __builtin_memcpy(zeros.get() + i * width, &stored, width);
  }
  view.zeros = {zeros.get(), count * width};
  matrix.owners.push_back(zeros);
  return std::vector<Matrix>{std::move(matrix)};
}

using Module = modelopt::WithInputFactors<describe, import>;

}  // namespace

extern const Importer naive_quantized_importer;
const Importer naive_quantized_importer = {"naive_quantized", ".weight",      matches,
                                           Module::describe,  Module::import, check_scales};

}  // namespace subbyte
