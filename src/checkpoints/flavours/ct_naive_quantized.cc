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
#include "checkpoints/export_parts.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/ct_parts.h"
#include "checkpoints/flavours/input_factors.h"

namespace subbyte {
namespace {

constexpr int64_t kRowGrain = 16;

/// bitsandbytes has bytes of that name, too, without such a scale.
bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* weight = find_tensor(tensors, module, ".weight");
  return weight != nullptr && weight->dtype == DType::kI8 &&
         find_tensor(tensors, module, ".weight_scale") != nullptr;
}

Result<ByteIntegers> find_tensors(const TensorSource& tensors, std::string_view module) {
  ByteIntegers parts = {};
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

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const ByteIntegers parts, find_tensors(context.tensors, module));
  SUBBYTE_TRY(const auto* const said,
              require_state<SaysByteIntegers>(context, module, compressed_tensors_flavour.name));
  SUBBYTE_TRY(const CompressedScheme scheme, said->scheme_of(context, module, parts));
  ModuleInfo result;
  result.rows = parts.rows;
  result.cols = parts.cols;
  result.tensors = {parts.weight, parts.scale};
  result.scales = parts.scale;
  result.format = integers_of(scheme, *parts.scale, parts.groups, parts.zero_point != nullptr);
  if (parts.zero_point != nullptr) result.tensors.push_back(parts.zero_point);
  add_activations(context, module, result);
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
  Matrix matrix = matrix_of(info);
  MatrixView& view = matrix.view;
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

using Module = WithInputFactors<describe, import>;

Error wrong_format(const ExportShape& shape, std::string_view module) {
  return not_held(module, "naive-quantized holds integers of 2 to 8 bits", shape.format);
}

/// Bits of integers that it holds, 0 for other formats.
int naive_bits(const WeightFormat& format) {
  const bool is_signed = format.element >= Format::kI2 && format.element <= Format::kI8;
  const bool is_unsigned = format.element >= Format::kU2 && format.element <= Format::kU8;
  const bool has_zeros = format.zero == Zero::kU8 || format.zero == Zero::kU16;
  const bool fits = (is_signed && format.zero == Zero::kNone) || (is_unsigned && has_zeros);
  return fits ? info(format.element).bits : 0;
}

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_plain(shape, module));
  if (naive_bits(shape.format) == 0) return wrong_format(shape, module);
  SUBBYTE_TRY(const DType scale, scale_dtype(shape.format.scale, module));
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  const auto rows = static_cast<uint64_t>(shape.rows);
  const Shape of_groups = {rows, static_cast<uint64_t>(groups)};
  std::vector<ExportedTensor> tensors = {
      {".weight", DType::kI8, {rows, static_cast<uint64_t>(shape.cols)}, {}},
      {".weight_scale", scale, of_groups, {}}};
  if (shape.format.zero != Zero::kNone) {
    tensors.push_back({".weight_zero_point", DType::kI8, of_groups, {}});
  }
  return tensors;
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor& pool) {
  SUBBYTE_TRY(auto tensors, allocate(describe(shape_of(matrix), module), matrix, module));
  const int bits = naive_bits(matrix.format);
  const uint32_t half = 1u << (bits - 1);
  pool.parallel_for(matrix.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      const std::byte* const row = matrix.codes.data() + n * matrix.row_bytes();
      std::byte* const to = tensors[0].bytes.data() + n * matrix.cols;
      for (int64_t k = 0; k < matrix.cols; ++k) {
        to[k] = static_cast<std::byte>(stream_code(row, k, bits) - half);
      }
    }
  });
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  if (matrix.zeros.empty()) return tensors;
  for (int64_t i = 0; i < std::ssize(tensors[2].bytes); ++i) {
    const uint32_t zero = load_zero(matrix, i / matrix.groups(), i % matrix.groups());
    if (zero >= 2 * half) return wrong_format(shape_of(matrix), module);
    tensors[2].bytes[static_cast<std::size_t>(i)] = static_cast<std::byte>(zero - half);
  }
  return tensors;
}

}  // namespace

bool ByteIntegers::agree_with(const CompressedScheme& scheme) const {
  return scheme.format == CompressedScheme::Format::kNaive &&
         groups_of_rows(scheme, cols) == groups && scheme.symmetric == (zero_point == nullptr) &&
         !scheme.act_order;
}

Result<CompressedScheme> CompressedState::scheme_of(const ImportContext& context,
                                                    std::string_view module,
                                                    const ByteIntegers& tensors) const {
  SUBBYTE_CHECK(require_scheme(context, module, CompressedScheme::Format::kNaive));
  std::optional<CompressedScheme> found;
  for (const CompressedScheme& scheme : schemes) {
    if (!tensors.agree_with(scheme)) continue;
    if (found && found->bits != scheme.bits) {
      return tensor_error("naive_quantized.bits", *tensors.weight,
                          fmt::format("{} has groups of {} and of {} bits for such tensors",
                                      context.config.where, found->bits, scheme.bits));
    }
    found = scheme;
  }
  if (found) return *found;
  return Error{"import.config",
               fmt::format("{}: the weights are {}, but {} has {} for {} inputs and {} zero points",
                           context.config.where, list_of(schemes), quote_name(module),
                           groups_text(tensors.groups), tensors.cols,
                           tensors.zero_point == nullptr ? "no" : "with")};
}

const Importer naive_quantized_importer = {"naive_quantized", ".weight",      matches,
                                           Module::describe,  Module::import, check_scales};
const Exporter naive_quantized_exporter = {
    .name = "naive_quantized", .describe = describe, .write = write};

}  // namespace subbyte
