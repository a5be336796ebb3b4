// Writes compressed-tensors, format "pack-quantized". The layout is drawn in ct_pack_quantized.cc,
// whose inverse this is.
//
//   pack_quantized        0.18 and later pack 3, 5, 6 and 7 bits so; 0.19 and later (August 2026)
//                         refuse "actorder": "group", so there is no g_idx
//   pack_quantized_lanes  0.17 and earlier, with "actorder": "group" and g_idx where there is an
//                         order; of 2, 4 and 8 bits all releases read the same words

#include "checkpoints/act_order.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/flavours/ct_pack_quantized.h"
#include "checkpoints/flavours/ct_parts.h"
#include "quantize/quantizers.h"

namespace subbyte {
namespace {

constexpr uint32_t kMaxZero = 255;

/// iN without zero points, or uN with them, N from 2 to 8.
bool holds(const WeightFormat& format) {
  const Format e = format.element;
  if (format.zero == Zero::kNone) return e >= Format::kI2 && e <= Format::kI8;
  const Zero zero = e == Format::kU8 ? Zero::kU16 : Zero::kU8;
  return e >= Format::kU2 && e <= Format::kU8 && format.zero == zero;
}

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module,
                                             Packing packing) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  if (packing == Packing::kDense) SUBBYTE_CHECK(require_input_order(shape, module));
  const WeightFormat& format = shape.format;
  if (!holds(format)) {
    return not_held(module, "pack-quantized holds i2 to i8, or u2 to u8 with zero points", format);
  }
  SUBBYTE_TRY(const DType scale, scale_dtype(format.scale, module));
  const int bits = info(format.element).bits;
  if (shape.rows <= 0 || is_ambiguous(shape.cols, bits)) {
    return export_error("export.shape", module,
                        fmt::format("{} inputs of {} bits would take as many words in the packing "
                                    "of other versions, so that readers could not tell",
                                    shape.cols, bits));
  }
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto cols = static_cast<uint64_t>(shape.cols);
  const auto num_groups = static_cast<uint64_t>(shape.groups());
  const auto words = [&](int64_t count) {
    return static_cast<uint64_t>(packed_words(count, bits, packing));
  };
  std::vector<ExportedTensor> tensors = {
      {".weight_packed", DType::kI32, {rows, words(shape.cols)}, {}},
      {".weight_scale", scale, {rows, num_groups}, {}},
      {".weight_shape", DType::kI64, {2}, {}}};
  if (format.zero != Zero::kNone) {
    tensors.push_back({".weight_zero_point", DType::kI32, {words(shape.rows), num_groups}, {}});
  }
  if (shape.act_order) tensors.push_back({".weight_g_idx", DType::kI32, {cols}, {}});
  return tensors;
}

void or_u32(std::byte* to, uint32_t bits) {
  store_u32(to, load_u32(to) | bits);
}

void pack_rows(ExportedTensor& packed, const MatrixView& matrix, Packing packing, Executor& pool) {
  const int bits = info(matrix.format.element).bits;
  const auto words = static_cast<int64_t>(packed.shape[1]);
  pool.parallel_for(matrix.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      std::byte* row = packed.bytes.data() + n * words * 4;
      const auto or_word = [&](int64_t i, uint32_t value) { or_u32(row + 4 * i, value); };
      for (int64_t k = 0; k < matrix.cols; ++k) {
        const int64_t input = matrix.input_order.empty() ? k : matrix.input_order[k];
        put_packed_code(or_word, input, bits, packing, code_at(matrix, n, k));
      }
    }
  });
}

Status pack_zeros(ExportedTensor& packed, const MatrixView& matrix, Packing packing,
                  std::string_view module) {
  const int bits = info(matrix.format.element).bits;
  const uint32_t max = kMaxZero >> (8 - bits);
  const int64_t groups = matrix.groups();
  for (int64_t g = 0; g < groups; ++g) {
    const auto or_word = [&](int64_t i, uint32_t value) {
      or_u32(packed.bytes.data() + (i * groups + g) * 4, value);
    };
    for (int64_t n = 0; n < matrix.rows; ++n) {
      const uint32_t zero = load_zero(matrix, n, g);
      if (zero > max) {
        return export_error("export.zero_range", module,
                            fmt::format("zero point {} of output {}, group {}: pack-quantized "
                                        "stores 0 to {}",
                                        zero, n, g, max));
      }
      put_packed_code(or_word, n, bits, packing, zero);
    }
  }
  return {};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor& pool, Packing packing) {
  SUBBYTE_TRY(auto tensors, allocate(describe(shape_of(matrix), module, packing), matrix, module));
  pack_rows(tensors[0], matrix, packing, pool);
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  const int64_t sizes[2] = {matrix.rows, matrix.cols};
  __builtin_memcpy(tensors[2].bytes.data(), sizes, sizeof sizes);
  if (matrix.format.zero != Zero::kNone) {
    SUBBYTE_CHECK(pack_zeros(tensors[3], matrix, packing, module));
  }
  if (!matrix.input_order.empty()) write_group_indices(tensors.back().bytes.data(), matrix);
  return tensors;
}

/// Symmetric weights have no zero points here, which is what the fast kernels of readers want.
template <Packing packing>
TargetFormat target(const ExportShape& from) {
  TargetFormat result = {from.format, TensorFactor::kNone, packing == Packing::kLanes};
  const Format element = signed_element(from.format.element);
  if (from.symmetric && element != from.format.element) {
    result.format.element = element;
    result.format.zero = Zero::kNone;
  }
  return result;
}

ExportedConfig config(const ExportedModel& model) {
  return compressed_config(model, "pack-quantized");
}

constexpr int kBits[] = {2, 3, 4, 5, 6, 7, 8};
constexpr QuantizeFormat kQuantized[] = {{.name = "compressed-tensors",
                                          .other_name = "w4a16",
                                          .other_bits = 4,
                                          .bits = kBits,
                                          .whole_rows = true,
                                          .symmetry = Symmetry::kByDefault,
                                          .mixed = true,
                                          .embedding = true,
                                          .format = integer_format,
                                          .quantize = to_integers},
                                         {.name = "int8",
                                          .other_name = "w8a16",
                                          .other_bits = 8,
                                          .bits = k8Bits,
                                          .default_bits = 8,
                                          .default_group = 0,
                                          .whole_rows = true,
                                          .symmetry = Symmetry::kByDefault,
                                          .embedding = true,
                                          .format = integer_format,
                                          .quantize = to_integers}};

template <Packing packing>
constexpr Exporter make_exporter(std::string_view name) {
  constexpr bool is_dense = packing == Packing::kDense;
  return {.name = name,
          .other_name = is_dense ? "w4a16" : "",
          .quantized = is_dense ? std::span<const QuantizeFormat>(kQuantized)
                                : std::span<const QuantizeFormat>(),
          .tells_symmetry = true,
          .keeps_act_order = is_dense ? "pack_quantized_lanes" : "",
          .says_kv_cache = says_compressed_kv_cache,
          .describe = [](const ExportShape& shape,
                         std::string_view module) { return describe(shape, module, packing); },
          .target = target<packing>,
          .config = config,
          .write = [](const MatrixView& matrix, std::string_view module,
                      Executor& pool) { return write(matrix, module, pool, packing); },
          .readers = is_dense
                         ? SUBBYTE_READERS("pack_quantized",
                                           "tools transformers, tools transformers-dequantized")
                         : SUBBYTE_READERS("pack_quantized_lanes", "ct17 transformers")};
}

}  // namespace

const Exporter pack_quantized_exporter = make_exporter<Packing::kDense>("pack_quantized");
const Exporter pack_quantized_lanes_exporter =
    make_exporter<Packing::kLanes>("pack_quantized_lanes");

}  // namespace subbyte
