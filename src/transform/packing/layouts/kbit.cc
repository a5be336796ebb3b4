// The kbit operators of bitsandbytes. The layout is drawn in foreign_layouts/kbit.h; codes of other
// formats are refused, as nothing is quantized here.
//
//   MODULE.packed.planes    I32 [blocks * k]   k words for 32 inputs of an output
//   MODULE.packed.absmax    U8 (E4M4) or F16 [blocks]
//   MODULE.packed.codebook  F32 [2^k]
//   MODULE.packed.factor    F32 [], where the matrix has one that is not 1

#include "foreign_layouts/kbit.h"

#include <algorithm>

#include "matrix/codebook.h"
#include "transform/packing/layouts/parts.h"

namespace subbyte {
namespace {

using packing::sizes;

constexpr std::string_view kTiles[] = {"tiled", "flat"};
constexpr int64_t kBlock = 32;

KbitShape buffer_of(const PackedShape& shape) {
  return {shape.rows, shape.cols, info(shape.format.element).bits,
          shape.tile == "flat" ? KbitOrder::kFlat : KbitOrder::kTiled};
}

int scale_width(const PackedShape& shape) {
  return info(shape.format.scale).bits / 8;
}

Status check(const PackedShape& shape) {
  const WeightFormat& format = shape.format;
  const bool codes = format.element == Format::kNFL2 || format.element == Format::kNFL3 ||
                     format.element == Format::kNFL4 || format.element == Format::kNFL5;
  if (!codes || (format.scale != Format::kE4M4 && format.scale != Format::kF16) ||
      format.zero != Zero::kNone || shape.act_order) {
    Error error = packing::format_error("kbit", "kbit codes", shape);
    error = {error.code, error.message + "; `subbyte quantize --format kbit4` makes them"};
    return error;
  }
  SUBBYTE_CHECK(packing::check_groups("kbit", shape, {kBlock}));
  return check_kbit_shape(buffer_of(shape));
}

std::vector<ExportedTensor> describe(const PackedShape& shape) {
  const KbitShape buffer = buffer_of(shape);
  const int64_t blocks = kbit_blocks(buffer);
  std::vector<ExportedTensor> tensors = {
      {".packed.planes", DType::kI32, sizes({blocks * buffer.bits}), {}},
      {".packed.absmax",
       shape.format.scale == Format::kF16 ? DType::kF16 : DType::kU8,
       sizes({blocks}),
       {}},
      {".packed.codebook", DType::kF32, sizes({int64_t{1} << buffer.bits}), {}}};
  if (shape.has_factor) tensors.push_back({".packed.factor", DType::kF32, {}, {}});
  return tensors;
}

Status pack(const MatrixView& matrix, const PackedShape& shape, PackedParts to) {
  const KbitShape buffer = buffer_of(shape);
  pack_kbit(to[0].data(), matrix.codes.data(), buffer);
  pack_kbit_scales(to[1].data(), matrix.scales.data(), buffer, scale_width(shape));
  std::vector<float> values(matrix.codebook.begin(), matrix.codebook.end());
  if (values.empty()) values = default_codebook(shape.format.element);
  __builtin_memcpy(to[2].data(), values.data(), to[2].size());
  if (!shape.has_factor) return {};
  const auto factor = static_cast<float>(matrix.tensor_scale);
  __builtin_memcpy(to[3].data(), &factor, 4);
  return {};
}

Result<Matrix> unpack(const PackedShape& shape, PackedViews from) {
  const KbitShape buffer = buffer_of(shape);
  packing::OwnMatrix own = packing::make_matrix(shape);
  unpack_kbit(own.codes, from[0].data(), buffer);
  unpack_kbit_scales(own.scales, from[1].data(), buffer, scale_width(shape));
  auto values = std::make_shared<std::vector<float>>(std::size_t{1} << buffer.bits);
  __builtin_memcpy(values->data(), from[2].data(), from[2].size());
  if (const std::string fault = codebook_fault(*values, shape.format.element); !fault.empty()) {
    return Error{"layout.format", "expected " + fault + " in the codebook"};
  }
  if (*values != default_codebook(shape.format.element)) {
    own.matrix.view.codebook = *values;
    own.matrix.owners.push_back(std::move(values));
  }
  return std::move(own.matrix);
}

}  // namespace

extern const PackLayout kbit_pack_layout;
const PackLayout kbit_pack_layout = {.name = "kbit",
                                     .tiles = kTiles,
                                     .check = check,
                                     .describe = describe,
                                     .pack = pack,
                                     .unpack = unpack};

}  // namespace subbyte
