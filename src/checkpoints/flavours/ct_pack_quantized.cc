// compressed-tensors, format "pack-quantized": integers of 2 to 8 bits, packed along the inputs.
//
//   weight_packed      I32 [N, words(K)]  row n holds the codes of its inputs; pack_quantized.h
//                                         draws the two packings, which the width tells apart
//   weight_scale       F16 [N, K/G]       or BF16, F32; [N, 1] for strategy "channel", [1] for
//                                         "tensor"; the last group may be short
//   weight_shape       I64 [2]            N, K
//   weight_zero_point  I32 [words(N), K/G]  when asymmetric: column g holds the zero points of the
//                                         outputs, packed as the weights are; I8 [1] for "tensor"
//   weight_g_idx       I32 [K]            group of each input, with actorder "group" only
//   w(n, k) = (q - z) * s
//
// Both q and z are signed and stored with 2^(b-1) added. Symmetric weights have z = 0, which makes
// them iN, the offset binary of this library; the others become uN, with the stored z beside them.
// Rows of 4 or 8 bits (and of others, when they fill their words) are used where they lie.

#include "checkpoints/flavours/ct_pack_quantized.h"

#include <optional>

#include "base/quote.h"
#include "checkpoints/act_order.h"
#include "checkpoints/code_stream.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/ct_parts.h"
#include "checkpoints/import_parts.h"

namespace subbyte {
namespace {

constexpr GroupIndexCodes kGroupIndexCodes = {"pack_quantized.g_idx_range",
                                              "pack_quantized.g_idx_counts"};

struct Parts {
  const FileTensor* packed;
  const FileTensor* scale;
  const FileTensor* shape;
  const FileTensor* zero_point;  // nullptr when absent
  const FileTensor* g_idx;       // nullptr when absent
  int64_t rows, cols, groups;    // groups_of_rows()
};

/// The tensors have it, unless they are FP4, whose bytes have the same name.
bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* packed = find_tensor(tensors, module, ".weight_packed");
  return packed != nullptr && packed->dtype != DType::kU8;
}

Status read_shape(Parts& parts) {
  SUBBYTE_CHECK(require_dtype(*parts.shape, DType::kI64));
  SUBBYTE_CHECK(require_shape(*parts.shape, {2}));
  int64_t sizes[2];
  __builtin_memcpy(sizes, parts.shape->bytes.data(), sizeof sizes);
  const Shape& packed = parts.packed->shape;
  // A word holds at most 16 codes.
  const bool fits = sizes[0] == static_cast<int64_t>(packed[0]) && sizes[1] > 0 &&
                    static_cast<uint64_t>(sizes[1] - 1) / 16 < packed[1];
  if (!fits) {
    return tensor_error("import.shape", *parts.shape,
                        fmt::format("says [{}, {}], but weight_packed has shape {}", sizes[0],
                                    sizes[1], to_string(packed)));
  }
  parts.rows = sizes[0];
  parts.cols = sizes[1];
  return {};
}

Result<Parts> find_parts(const TensorSource& tensors, std::string_view module) {
  Parts parts = {};
  SUBBYTE_TRY(parts.packed, require_tensor(tensors, module, ".weight_packed"));
  SUBBYTE_TRY(parts.scale, require_tensor(tensors, module, ".weight_scale"));
  SUBBYTE_TRY(parts.shape, require_tensor(tensors, module, ".weight_shape"));
  parts.zero_point = find_tensor(tensors, module, ".weight_zero_point");
  parts.g_idx = find_tensor(tensors, module, ".weight_g_idx");
  SUBBYTE_CHECK(require_dtype(*parts.packed, DType::kI32));
  SUBBYTE_CHECK(require_rank(*parts.packed, 2));
  SUBBYTE_CHECK(read_shape(parts));
  SUBBYTE_CHECK(require_float(*parts.scale));
  SUBBYTE_TRY(parts.groups, groups_of_rows(*parts.scale, parts.packed->shape[0]));
  if (parts.zero_point != nullptr) {
    const bool of_tensor = parts.groups == kOneForTensor;
    SUBBYTE_CHECK(require_dtype(*parts.zero_point, of_tensor ? DType::kI8 : DType::kI32));
    if (of_tensor) SUBBYTE_CHECK(require_shape(*parts.zero_point, {1}));
  }
  return parts;
}

Packing packing_of(const FileTensor& packed, int64_t cols, int bits) {
  const auto words = static_cast<int64_t>(packed.shape[1]);
  return words == packed_words(cols, bits, Packing::kDense) ? Packing::kDense : Packing::kLanes;
}

bool agrees(const CompressedScheme& scheme, const Parts& parts) {
  const auto bits = static_cast<int>(scheme.bits);
  const auto words = static_cast<int64_t>(parts.packed->shape[1]);
  return scheme.format == CompressedScheme::Format::kPackQuantized &&
         groups_of_rows(scheme, parts.cols) == parts.groups &&
         scheme.symmetric == (parts.zero_point == nullptr) &&
         scheme.act_order == (parts.g_idx != nullptr) &&
         (words == packed_words(parts.cols, bits, Packing::kDense) ||
          words == packed_words(parts.cols, bits, Packing::kLanes));
}

/// The config group that the tensors agree with: of several that which names the module.
Result<CompressedScheme> find_scheme(const ImportContext& context, std::string_view module,
                                     const Parts& parts) {
  SUBBYTE_TRY(const auto* const said,
              require_state<CompressedState>(context, module, compressed_tensors_flavour.name));
  const CompressedScheme* const named = said->named_scheme(module);
  const bool is_told = named != nullptr && agrees(*named, parts);
  std::optional<CompressedScheme> found;
  for (const CompressedScheme& scheme : said->schemes) {
    if (is_told ? &scheme != named : !agrees(scheme, parts)) continue;
    if (is_ambiguous(parts.cols, static_cast<int>(scheme.bits)) ||
        (found && found->bits != scheme.bits)) {
      return tensor_error("pack_quantized.packing", *parts.packed,
                          fmt::format("{} words for {} inputs fit several packings of the bits "
                                      "that {} names",
                                      parts.packed->shape[1], parts.cols, context.config.where));
    }
    found = scheme;
  }
  if (found) return *found;
  return Error{
      "import.config",
      fmt::format("{}: the weights are {}, but {} has {} words and {} for {} inputs, {} zero "
                  "points and {} g_idx",
                  context.config.where, list_of(said->schemes), quote_name(module),
                  parts.packed->shape[1], groups_text(parts.groups), parts.cols,
                  parts.zero_point == nullptr ? "no" : "with",
                  parts.g_idx == nullptr ? "no" : "a")};
}

Status check_zero_point(const Parts& parts, int bits) {
  if (parts.groups == kOneForTensor) return {};
  const Packing packing = packing_of(*parts.packed, parts.cols, bits);
  return require_shape(*parts.zero_point,
                       {static_cast<uint64_t>(packed_words(parts.rows, bits, packing)),
                        static_cast<uint64_t>(parts.groups)});
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const Parts parts, find_parts(context.tensors, module));
  SUBBYTE_TRY(const CompressedScheme scheme, find_scheme(context, module, parts));
  ModuleInfo result;
  result.rows = parts.rows;
  result.cols = parts.cols;
  result.tensors = {parts.packed, parts.scale, parts.shape};
  result.scales = parts.scale;
  result.format = integers_of(scheme, *parts.scale, parts.groups, parts.zero_point != nullptr);
  if (parts.zero_point != nullptr) {
    result.tensors.push_back(parts.zero_point);
    SUBBYTE_CHECK(check_zero_point(parts, static_cast<int>(scheme.bits)));
  }
  if (parts.g_idx != nullptr) {
    result.tensors.push_back(parts.g_idx);
    SUBBYTE_TRY(const auto order, input_order(*parts.g_idx, parts.cols, parts.groups,
                                              result.format.group_size, kGroupIndexCodes));
    result.act_order = !order.empty();
  }
  return result;
}

/// Rows of words as rows of canonical codes, with column k from input order[k] (or k).
std::shared_ptr<std::byte[]> unpack_rows(const FileTensor& packed, const MatrixView& view,
                                         std::span<const uint32_t> order, Executor& pool) {
  const int bits = info(view.format.element).bits;
  const Packing packing = packing_of(packed, view.cols, bits);
  const auto words = static_cast<int64_t>(packed.shape[1]);
  auto codes = allocate_bytes(view.rows * view.row_bytes());
  pool.parallel_for(view.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      std::byte* row = codes.get() + n * view.row_bytes();
      const auto word = [&](int64_t i) { return load_u32(packed, n * words + i); };
      for (int64_t k = 0; k < view.cols; ++k) {
        const int64_t input = order.empty() ? k : order[k];
        put_code(row, k, bits, packed_code(word, input, bits, packing));
      }
    }
  });
  packed.file->release(packed.bytes);
  return codes;
}

/// Refuses a zero point of the tensor (I8) that codes of so many bits do not have.
Status check_tensor_zero(const FileTensor& zero_point, int bits) {
  if (zero_point.dtype != DType::kI8) return {};
  const int half = 1 << (bits - 1);
  const int zero = std::to_integer<int8_t>(zero_point.bytes.front());
  if (zero >= -half && zero < half) return {};
  return tensor_error(
      "pack_quantized.range", zero_point,
      fmt::format("expected {} to {}, which {} bits hold, found {}", -half, half - 1, bits, zero));
}

std::shared_ptr<std::byte[]> unpack_zeros(const FileTensor& zero_point, const FileTensor& packed,
                                          const MatrixView& view) {
  const int bits = info(view.format.element).bits;
  const int width = zero_bytes(view.format.zero);
  const int64_t groups = view.groups();
  const Packing packing = packing_of(packed, view.cols, bits);
  auto zeros = allocate_bytes(view.rows * groups * width);
  if (zero_point.dtype == DType::kI8) {  // one for the tensor, not packed
    const int zero = std::to_integer<int8_t>(zero_point.bytes.front()) + (1 << (bits - 1));
    const auto stored = static_cast<uint16_t>(zero);
    for (int64_t n = 0; n < view.rows; ++n) {
      __builtin_memcpy(zeros.get() + n * width, &stored, width);
    }
    return zeros;
  }
  for (int64_t g = 0; g < groups; ++g) {
    const auto word = [&](int64_t i) { return load_u32(zero_point, i * groups + g); };
    for (int64_t n = 0; n < view.rows; ++n) {
      const auto zero = static_cast<uint16_t>(packed_code(word, n, bits, packing));
      __builtin_memcpy(zeros.get() + (n * groups + g) * width, &zero, width);
    }
  }
  return zeros;
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& packed = *info.tensors[0];
  const FileTensor& scale = *info.tensors[1];
  SUBBYTE_CHECK(check_scales(context, info));
  Matrix matrix = matrix_of(info);
  MatrixView& view = matrix.view;
  view.scales = scales_of_rows(scale, info.rows, matrix.owners);
  if (info.act_order) {
    SUBBYTE_TRY(auto order, input_order(*info.tensors.back(), info.cols, view.groups(),
                                        info.format.group_size, kGroupIndexCodes));
    const auto shared = std::make_shared<const std::vector<uint32_t>>(std::move(order));
    view.input_order = *shared;
    matrix.owners.push_back(shared);
  }
  const int bits = subbyte::info(info.format.element).bits;
  const bool fills_words = info.cols * bits % 32 == 0;
  if (fills_words && !info.act_order && packing_of(packed, info.cols, bits) == Packing::kDense) {
    view.codes = packed.bytes;
    matrix.owners.push_back(packed.file);
  } else {
    const auto codes = unpack_rows(packed, view, view.input_order, context.pool);
    view.codes = {codes.get(), static_cast<std::size_t>(view.rows * view.row_bytes())};
    matrix.owners.push_back(codes);
  }
  if (info.format.zero != Zero::kNone) {
    SUBBYTE_CHECK(check_tensor_zero(*info.tensors[3], bits));
    const auto zeros = unpack_zeros(*info.tensors[3], packed, view);
    view.zeros = {zeros.get(), static_cast<std::size_t>(view.rows * view.groups() *
                                                        zero_bytes(info.format.zero))};
    matrix.owners.push_back(zeros);
  }
  return std::vector<Matrix>{std::move(matrix)};
}

}  // namespace

const Importer pack_quantized_importer = {"pack_quantized", ".weight_packed", matches,
                                          describe,         import,           check_scales};

}  // namespace subbyte
