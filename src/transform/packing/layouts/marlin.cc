// Marlin of vLLM, SGLang and GPTQModel: 4 and 8 bits, and FP4. The layouts are drawn in
// foreign_layouts/marlin.h.
//
//   MODULE.packed.words   I32 [K/16, N b/2]
//   MODULE.packed.scales  F16 or BF16 [G, N]; of FP4 U8 [G, N]
//   MODULE.packed.zeros   I32 [G, N b/32], where codes have zero points that are not in the middle
//   MODULE.packed.perm    I32 [K], MODULE.packed.g_idx I32 [K], where inputs are sorted by group
//   MODULE.packed.global  F32 []: of NVFP4, what the kernel multiplies by
//   MODULE.packed.bias    [N], where the layer has one

#include <cmath>

#include "foreign_layouts/marlin.h"
#include "foreign_layouts/marlin_act_order.h"
#include "foreign_layouts/marlin_int8.h"
#include "transform/packing/layouts/parts.h"

namespace subbyte {
namespace {

using packing::sizes;

constexpr std::string_view kTiles[] = {"16x64"};
constexpr std::string_view kActOrder =
    "vLLM's Marlin no longer takes inputs sorted by group (act-order) since September 2026: perm "
    "and g_idx are for older programs (vLLM up to 0.27, GPTQModel, SGLang)";

bool has_zeros(const PackedShape& shape) {
  return shape.format.zero != Zero::kNone && !shape.symmetric;
}

Status check_integers(const PackedShape& shape) {
  const Format scale = shape.format.scale;
  const bool known = packing::is_4_bits(shape.format) || packing::is_8_bits(shape.format);
  if (!known || (scale != Format::kF16 && scale != Format::kBF16) || shape.has_factor) {
    return packing::format_error("marlin", "integers of 4 or 8 bits with scales in f16 or bf16",
                                 shape);
  }
  SUBBYTE_CHECK(packing::check_groups("marlin", shape, {0, 32, 64, 128}));
  return check_marlin_shape(shape.rows, shape.cols);
}

std::vector<ExportedTensor> describe_integers(const PackedShape& shape) {
  const int64_t bits = info(shape.format.element).bits;
  std::vector<ExportedTensor> tensors = {
      {".packed.words", DType::kI32, sizes({shape.cols / 16, shape.rows * bits / 2}), {}},
      {".packed.scales",
       packing::float_dtype(shape.format.scale),
       sizes({shape.groups(), shape.rows}),
       {}}};
  if (has_zeros(shape)) {
    tensors.push_back(
        {".packed.zeros", DType::kI32, sizes({shape.groups(), shape.rows * bits / 32}), {}});
  }
  if (shape.act_order) {
    tensors.push_back({".packed.perm", DType::kI32, sizes({shape.cols}), {}});
    tensors.push_back({".packed.g_idx", DType::kI32, sizes({shape.cols}), {}});
  }
  return tensors;
}

Status pack_integers(const MatrixView& matrix, const PackedShape& shape, PackedParts to) {
  const int64_t rows = shape.rows;
  const int64_t groups = shape.groups();
  const bool wide = info(shape.format.element).bits == 8;
  (wide ? pack_marlin_int8 : pack_marlin)(to[0].data(), matrix.codes.data(), rows, shape.cols);
  pack_marlin_scales(to[1].data(), matrix.scales.data(), rows, groups, 2);
  std::size_t next = 2;
  if (has_zeros(shape)) {
    SUBBYTE_CHECK((wide ? pack_marlin_int8_zeros : pack_marlin_zeros)(
        to[next++].data(), matrix.zeros.data(), rows, groups));
  }
  if (!shape.act_order) return {};
  packing::put_order(to[next++], matrix);
  for (int64_t k = 0; k < shape.cols; ++k) {
    const auto group = static_cast<int32_t>(k / shape.group_size());
    __builtin_memcpy(to[next].data() + 4 * k, &group, 4);
  }
  return {};
}

Result<Matrix> unpack_integers(const PackedShape& shape, PackedViews from) {
  std::vector<uint32_t> order;
  if (shape.act_order) {
    MarlinActOrder parts = {std::vector<int32_t>(shape.cols), std::vector<int32_t>(shape.cols)};
    __builtin_memcpy(parts.perm.data(), from[from.size() - 2].data(), 4 * shape.cols);
    __builtin_memcpy(parts.g_idx.data(), from[from.size() - 1].data(), 4 * shape.cols);
    SUBBYTE_TRY(order, input_order_of(parts, shape.group_size()));
  }
  packing::OwnMatrix own = packing::make_matrix(shape, std::move(order));
  const int64_t groups = shape.groups();
  const bool wide = info(shape.format.element).bits == 8;
  (wide ? unpack_marlin_int8 : unpack_marlin)(own.codes, from[0].data(), shape.rows, shape.cols);
  unpack_marlin_scales(own.scales, from[1].data(), shape.rows, groups, 2);
  if (has_zeros(shape)) {
    (wide ? unpack_marlin_int8_zeros : unpack_marlin_zeros)(own.zeros, from[2].data(), shape.rows,
                                                            groups);
  }
  return std::move(own.matrix);
}

bool is_nvfp4(const PackedShape& shape) {
  return shape.format.scale == Format::kE4M3;
}

Status check_fp4(const PackedShape& shape) {
  const WeightFormat& format = shape.format;
  const bool mxfp4 = format.scale == Format::kE8M0 && !shape.has_factor;
  if (format.element != Format::kE2M1 || format.zero != Zero::kNone || shape.act_order ||
      (!mxfp4 && !is_nvfp4(shape))) {
    return packing::format_error("marlin-fp4", "MXFP4 and NVFP4", shape);
  }
  SUBBYTE_CHECK(packing::check_groups("marlin-fp4", shape, {mxfp4 ? 32 : 16}));
  if (shape.groups() == 1) {
    return Error{
        "pack.group_size",
        fmt::format("marlin-fp4 needs more than one group in a row, found one of {}", shape.cols)};
  }
  if (shape.activations != Format::kBF16 && (mxfp4 || shape.activations != Format::kF16)) {
    return Error{"pack.activations",
                 fmt::format("expected {} for the type of the activations, found {}",
                             mxfp4 ? "bf16 (the kernel for MXFP4 has no other)" : "bf16 or f16",
                             info(shape.activations).name)};
  }
  return check_marlin_shape(shape.rows, shape.cols);
}

std::vector<ExportedTensor> describe_fp4(const PackedShape& shape) {
  std::vector<ExportedTensor> tensors = {
      {".packed.words", DType::kI32, sizes({shape.cols / 16, shape.rows * 2}), {}},
      {".packed.scales", DType::kU8, sizes({shape.groups(), shape.rows}), {}}};
  if (is_nvfp4(shape)) tensors.push_back({".packed.global", DType::kF32, {}, {}});
  return tensors;
}

Status complete_fp4(PackedShape& shape, std::span<const Matrix> matrices) {
  if (!is_nvfp4(shape)) return {};
  float smallest = 0;
  for (const Matrix& matrix : matrices) {
    SUBBYTE_TRY(const float factor, marlin_e4m3_factor(matrix.view.scales, shape.activations));
    smallest = smallest == 0 ? factor : std::min(smallest, factor);
  }
  shape.scale_factor = smallest;
  return {};
}

Status pack_fp4(const MatrixView& matrix, const PackedShape& shape, PackedParts to) {
  const int64_t groups = shape.groups();
  pack_marlin(to[0].data(), matrix.codes.data(), shape.rows, shape.cols);
  if (!is_nvfp4(shape)) {
    pack_marlin_e8m0(to[1].data(), matrix.scales.data(), shape.rows, groups);
    return {};
  }
  const int64_t lost =
      pack_marlin_e4m3(shape.scale_factor, to[1].data(), matrix.scales.data(), shape.rows, groups);
  if (lost > 0) {
    return Error{"pack.scale_range",
                 fmt::format("{} of {} scales are below 2^-6 of what Marlin multiplies by for {} "
                             "activations, where its kernels have 0",
                             lost, matrix.scales.size(), info(shape.activations).name)};
  }
  const float global = marlin_global_scale(static_cast<float>(matrix.tensor_scale),
                                           shape.scale_factor, shape.activations);
  if (!std::isfinite(global)) {
    return Error{"pack.scale_range",
                 fmt::format("the factor {} of the tensor is beyond what Marlin's f32 holds for {}",
                             matrix.tensor_scale, info(shape.activations).name)};
  }
  __builtin_memcpy(to[2].data(), &global, 4);
  return {};
}

Result<Matrix> unpack_fp4(const PackedShape& shape, PackedViews from) {
  packing::OwnMatrix own = packing::make_matrix(shape);
  unpack_marlin(own.codes, from[0].data(), shape.rows, shape.cols);
  if (is_nvfp4(shape)) {
    SUBBYTE_CHECK(unpack_marlin_e4m3(own.scales, from[1].data(), shape.rows, shape.groups(),
                                     shape.scale_factor));
  } else {
    unpack_marlin_e8m0(own.scales, from[1].data(), shape.rows, shape.groups());
  }
  return std::move(own.matrix);
}

}  // namespace

extern const PackLayout marlin_pack_layout;
extern const PackLayout marlin_fp4_pack_layout;
const PackLayout marlin_pack_layout = {.name = "marlin",
                                       .tiles = kTiles,
                                       .permutes_bias = true,
                                       .act_order = kActOrder,
                                       .check = check_integers,
                                       .describe = describe_integers,
                                       .pack = pack_integers,
                                       .unpack = unpack_integers};
const PackLayout marlin_fp4_pack_layout = {.name = "marlin-fp4",
                                           .tiles = kTiles,
                                           .permutes_bias = true,
                                           .has_activations = true,
                                           .check = check_fp4,
                                           .describe = describe_fp4,
                                           .complete = complete_fp4,
                                           .pack = pack_fp4,
                                           .unpack = unpack_fp4};

}  // namespace subbyte
