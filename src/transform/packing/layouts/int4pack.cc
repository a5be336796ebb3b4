// PyTorch's int4 products on CPUs, CUDA and XPU. The layouts are drawn in
// foreign_layouts/int4pack.h.
//
//   CPU    MODULE.packed.weight  U8 [N, K/2] in tiles of a kind of machine
//   CUDA   MODULE.packed.weight  I32 [N/8, K/(16 T), 32, T/2], T the tile (inner_k_tiles)
//   both   MODULE.packed.scales_and_zeros  in the type of the scales [G, N, 2]
//   XPU    MODULE.packed.weight  I32 [N, K/8], MODULE.packed.scales [G, N],
//          MODULE.packed.zeros   I8 [G, N]
//   all    MODULE.packed.input_order  I32 [K] where inputs are sorted by group: the activations are
//                                     gathered by it

#include <algorithm>

#include "foreign_layouts/int4pack.h"
#include "matrix/zero_points.h"
#include "transform/packing/layouts/parts.h"

namespace subbyte {
namespace {

using packing::sizes;

constexpr std::string_view kCpuTiles[] = {"64", "32", "pairs-32", "pairs-16"};
constexpr CpuTile kCpuTileOf[] = {CpuTile::kHalves64, CpuTile::kHalves32, CpuTile::kPairs32,
                                  CpuTile::kPairs16};
constexpr std::string_view kCudaTiles[] = {"8", "4", "2"};
constexpr std::string_view kXpuTiles[] = {"rows"};
constexpr int kMaxXpuZero = 15;
constexpr std::string_view kActOrder =
    "inputs are sorted by group (act-order): x is to be gathered by input_order before the product";

constexpr std::string_view kOtherScales =
    "PyTorch's product on CUDA takes scales_and_zeros in bf16, and these are in the type of the "
    "model's scales: whoever loads them rounds them";

CpuTile cpu_tile(const PackedShape& shape) {
  const auto found = std::ranges::find(kCpuTiles, shape.tile);
  return kCpuTileOf[found == std::end(kCpuTiles) ? 0 : found - std::begin(kCpuTiles)];
}

int inner_k_tiles(const PackedShape& shape) {
  return shape.tile == "2" ? 2 : shape.tile == "4" ? 4 : 8;
}

Status check_format(std::string_view layout, const PackedShape& shape) {
  const Format scale = shape.format.scale;
  const bool floats = scale == Format::kF16 || scale == Format::kBF16 || scale == Format::kF32;
  if (packing::is_4_bits(shape.format) && floats && !shape.has_factor) return {};
  return packing::format_error(layout, "integers of 4 bits with scales in f16, bf16 or f32", shape);
}

Status check_cpu(const PackedShape& shape) {
  SUBBYTE_CHECK(check_format("int4pack-cpu", shape));
  SUBBYTE_CHECK(packing::check_groups("int4pack-cpu", shape, {32, 64, 128, 256}));
  return check_int4pack_cpu_shape(shape.rows, shape.cols);
}

Status check_cuda(const PackedShape& shape) {
  SUBBYTE_CHECK(check_format("int4pack-cuda", shape));
  SUBBYTE_CHECK(packing::check_groups("int4pack-cuda", shape, {32, 64, 128, 256}));
  return check_int4pack_cuda_shape(shape.rows, shape.cols, inner_k_tiles(shape));
}

Status check_xpu(const PackedShape& shape) {
  SUBBYTE_CHECK(check_format("int4pack-xpu", shape));
  if (shape.rows > 0 && shape.cols > 0 && shape.group_size() % 32 == 0 &&
      shape.cols % shape.group_size() == 0) {
    return {};
  }
  return Error{"pack.group_size",
               fmt::format("int4pack-xpu has groups in 32s that fill the rows, found groups of {} "
                           "for {} inputs",
                           shape.group_size(), shape.cols)};
}

void add_order(std::vector<ExportedTensor>& tensors, const PackedShape& shape) {
  if (shape.act_order) {
    tensors.push_back({".packed.input_order", DType::kI32, sizes({shape.cols}), {}});
  }
}

std::vector<ExportedTensor> with_scales_and_zeros(ExportedTensor weight, const PackedShape& shape) {
  std::vector<ExportedTensor> tensors = {std::move(weight),
                                         {".packed.scales_and_zeros",
                                          packing::float_dtype(shape.format.scale),
                                          sizes({shape.groups(), shape.rows, 2}),
                                          {}}};
  add_order(tensors, shape);
  return tensors;
}

std::vector<ExportedTensor> describe_cpu(const PackedShape& shape) {
  return with_scales_and_zeros(
      {".packed.weight", DType::kU8, sizes({shape.rows, shape.cols / 2}), {}}, shape);
}

std::vector<ExportedTensor> describe_cuda(const PackedShape& shape) {
  const int64_t tiles = inner_k_tiles(shape);
  return with_scales_and_zeros({".packed.weight",
                                DType::kI32,
                                sizes({shape.rows / 8, shape.cols / (16 * tiles), 32, tiles / 2}),
                                {}},
                               shape);
}

std::vector<ExportedTensor> describe_xpu(const PackedShape& shape) {
  std::vector<ExportedTensor> tensors = {
      {".packed.weight", DType::kI32, sizes({shape.rows, shape.cols / 8}), {}},
      {".packed.scales",
       packing::float_dtype(shape.format.scale),
       sizes({shape.groups(), shape.rows}),
       {}},
      {".packed.zeros", DType::kI8, sizes({shape.groups(), shape.rows}), {}}};
  add_order(tensors, shape);
  return tensors;
}

/// u4 with zero points; the codes stay where they are.
Matrix unsigned_codes(const MatrixView& matrix) {
  return with_zero_points(Matrix{matrix, {}});
}

/// Scales, zero points and the order of the inputs.
Status pack_numbers(const MatrixView& matrix, const PackedShape& shape, PackedParts to) {
  const Matrix codes = unsigned_codes(matrix);
  SUBBYTE_TRY(const auto numbers, pack_scales_and_zeros(codes.view));
  std::ranges::copy(numbers, to[1].begin());
  if (shape.act_order) packing::put_order(to[2], matrix);
  return {};
}

Status pack_cpu(const MatrixView& matrix, const PackedShape& shape, PackedParts to) {
  pack_int4_cpu(to[0].data(), matrix.codes.data(), shape.rows, shape.cols, cpu_tile(shape));
  return pack_numbers(matrix, shape, to);
}

Status pack_cuda(const MatrixView& matrix, const PackedShape& shape, PackedParts to) {
  pack_int4_cuda(to[0].data(), matrix.codes.data(), shape.rows, shape.cols, inner_k_tiles(shape));
  return pack_numbers(matrix, shape, to);
}

Status pack_xpu(const MatrixView& matrix, const PackedShape& shape, PackedParts to) {
  const Matrix codes = unsigned_codes(matrix);
  const auto zeros = codes.view.zeros;
  const auto large = std::ranges::find_if(
      zeros, [](std::byte zero) { return std::to_integer<int>(zero) > kMaxXpuZero; });
  if (large != zeros.end()) {
    const int64_t index = large - zeros.begin();
    return Error{"layout.zero_range",
                 fmt::format("zero point {} of output {}, group {}: expected 0 to {}",
                             std::to_integer<int>(*large), index / shape.groups(),
                             index % shape.groups(), kMaxXpuZero)};
  }
  const int width = info(shape.format.scale).bits / 8;
  std::ranges::copy(matrix.codes, to[0].begin());
  pack_int4_xpu_groups(to[1].data(), matrix.scales.data(), shape.rows, shape.groups(), width);
  pack_int4_xpu_groups(to[2].data(), zeros.data(), shape.rows, shape.groups(), 1);
  if (shape.act_order) packing::put_order(to[3], matrix);
  return {};
}

/// A matrix with its order of inputs, which is in the last tensor.
Result<packing::OwnMatrix> ordered_matrix(const PackedShape& shape, PackedViews from) {
  std::vector<uint32_t> order;
  if (shape.act_order) {
    SUBBYTE_TRY(order, packing::get_order(from.back()));
  }
  return packing::make_matrix(shape, std::move(order));
}

/// Zero points where the format has them; i4 has them all in the middle.
Status take_zeros(packing::OwnMatrix& own, std::span<const std::byte> zeros, int64_t groups) {
  if (own.zeros != nullptr) {
    std::ranges::copy(zeros, own.zeros);
    return {};
  }
  const auto other =
      std::ranges::find_if(zeros, [](std::byte zero) { return zero != std::byte{8}; });
  if (other == zeros.end()) return {};
  const int64_t index = other - zeros.begin();
  return Error{"layout.zero_range",
               fmt::format("zero point {} of output {}, group {}: expected 8 for codes without "
                           "zero points",
                           std::to_integer<int>(*other), index / groups, index % groups)};
}

Result<Matrix> with_numbers(packing::OwnMatrix own, const PackedShape& shape, PackedViews from) {
  SUBBYTE_TRY(const ScalesAndZeros numbers,
              unpack_scales_and_zeros(from[1], shape.format.scale, shape.rows, shape.groups()));
  std::ranges::copy(numbers.scales, own.scales);
  SUBBYTE_CHECK(take_zeros(own, numbers.zeros, shape.groups()));
  return std::move(own.matrix);
}

Result<Matrix> unpack_cpu(const PackedShape& shape, PackedViews from) {
  SUBBYTE_TRY(packing::OwnMatrix own, ordered_matrix(shape, from));
  unpack_int4_cpu(own.codes, from[0].data(), shape.rows, shape.cols, cpu_tile(shape));
  return with_numbers(std::move(own), shape, from);
}

Result<Matrix> unpack_cuda(const PackedShape& shape, PackedViews from) {
  SUBBYTE_TRY(packing::OwnMatrix own, ordered_matrix(shape, from));
  unpack_int4_cuda(own.codes, from[0].data(), shape.rows, shape.cols, inner_k_tiles(shape));
  return with_numbers(std::move(own), shape, from);
}

Result<Matrix> unpack_xpu(const PackedShape& shape, PackedViews from) {
  SUBBYTE_TRY(packing::OwnMatrix own, ordered_matrix(shape, from));
  std::ranges::copy(from[0], own.codes);
  const int width = info(shape.format.scale).bits / 8;
  unpack_int4_xpu_groups(own.scales, from[1].data(), shape.rows, shape.groups(), width);
  std::vector<std::byte> zeros(from[2].size());
  unpack_int4_xpu_groups(zeros.data(), from[2].data(), shape.rows, shape.groups(), 1);
  SUBBYTE_CHECK(take_zeros(own, zeros, shape.groups()));
  return std::move(own.matrix);
}

}  // namespace

extern const PackLayout int4pack_cpu_pack_layout;
extern const PackLayout int4pack_cuda_pack_layout;
extern const PackLayout int4pack_xpu_pack_layout;
const PackLayout int4pack_cpu_pack_layout = {
    .name = "int4pack-cpu",
    .tiles = kCpuTiles,
    .needs_tile = true,
    .remark =
        "these files are for machines of one kind: PyTorch's tile depends on the "
        "instructions that a processor has",
    .act_order = kActOrder,
    .check = check_cpu,
    .describe = describe_cpu,
    .pack = pack_cpu,
    .unpack = unpack_cpu};
const PackLayout int4pack_cuda_pack_layout = {.name = "int4pack-cuda",
                                              .tiles = kCudaTiles,
                                              .act_order = kActOrder,
                                              .other_scales = kOtherScales,
                                              .check = check_cuda,
                                              .describe = describe_cuda,
                                              .pack = pack_cuda,
                                              .unpack = unpack_cuda};
const PackLayout int4pack_xpu_pack_layout = {.name = "int4pack-xpu",
                                             .tiles = kXpuTiles,
                                             .act_order = kActOrder,
                                             .check = check_xpu,
                                             .describe = describe_xpu,
                                             .pack = pack_xpu,
                                             .unpack = unpack_xpu};

}  // namespace subbyte
