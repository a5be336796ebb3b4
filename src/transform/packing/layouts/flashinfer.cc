// MXFP4 weights of FlashInfer's grouped GEMM. The layout is drawn in foreign_layouts/flashinfer.h.
//
//   MODULE.packed.weight  U8 [N', K'/2]   N in 8s, K in 128s, padding 0
//   MODULE.packed.scales  U8 [R, K'/32]   swizzled: R is N in 128s, or in 8s with 8x4

#include "foreign_layouts/flashinfer.h"

#include "foreign_layouts/scale_swizzle.h"
#include "transform/packing/layouts/parts.h"

namespace subbyte {
namespace {

using packing::sizes;

constexpr std::string_view kTiles[] = {"128x4", "8x4"};
constexpr int64_t kGroup = 32;

ScaleSwizzle swizzle_of(const PackedShape& shape) {
  return shape.tile == "8x4" ? ScaleSwizzle::k8x4 : ScaleSwizzle::k128x4;
}

FlashinferShape weights_of(const PackedShape& shape) {
  return {shape.rows, shape.cols};
}

Status check(const PackedShape& shape) {
  const WeightFormat& format = shape.format;
  if (format.element != Format::kE2M1 || format.scale != Format::kE8M0 ||
      format.zero != Zero::kNone || shape.act_order || shape.has_factor) {
    return packing::format_error("flashinfer-mxfp4", "MXFP4", shape);
  }
  SUBBYTE_CHECK(packing::check_groups("flashinfer-mxfp4", shape, {kGroup}));
  return check_flashinfer_shape(weights_of(shape));
}

std::vector<ExportedTensor> describe(const PackedShape& shape) {
  const FlashinferShape weights = weights_of(shape);
  const int64_t scale_rows = swizzled_rows(shape.rows, swizzle_of(shape));
  return {
      {".packed.weight", DType::kU8, sizes({weights.padded_rows(), weights.padded_cols() / 2}), {}},
      {".packed.scales", DType::kU8, sizes({scale_rows, swizzled_groups(shape.groups())}), {}}};
}

Status pack(const MatrixView& matrix, const PackedShape& shape, PackedParts to) {
  pack_flashinfer_codes(to[0].data(), matrix.codes.data(), weights_of(shape));
  swizzle_scales(to[1].data(), matrix.scales.data(), shape.rows, shape.groups(), swizzle_of(shape));
  return {};
}

Result<Matrix> unpack(const PackedShape& shape, PackedViews from) {
  packing::OwnMatrix own = packing::make_matrix(shape);
  unpack_flashinfer_codes(own.codes, from[0].data(), weights_of(shape));
  unswizzle_scales(own.scales, from[1].data(), shape.rows, shape.groups(), swizzle_of(shape));
  return std::move(own.matrix);
}

}  // namespace

extern const PackLayout flashinfer_mxfp4_pack_layout;
const PackLayout flashinfer_mxfp4_pack_layout = {.name = "flashinfer-mxfp4",
                                                 .tiles = kTiles,
                                                 .check = check,
                                                 .describe = describe,
                                                 .pack = pack,
                                                 .unpack = unpack};

}  // namespace subbyte
