// The five int4 operators of aten with their arguments, on any device: those that aten has for CPUs
// alone, with the tiles of this process, and those for CUDA and XPU with the words of these
// (foreign_layouts/int4pack.h draws them).

#include <algorithm>
#include <array>

#include "device/conversions.h"
#include "foreign_layouts/int4pack.h"
#include "torch_operators/gpu.h"
#include "torch_operators/operators.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

/// The tile of this process in aten, whose choice of instructions subbyte.torch hands over.
CpuTile tile_of_aten = CpuTile::kHalves32;

struct Packing {
  Tensor codes;
  int64_t inner_k_tiles;
};

/// Codes of i32, one each, as canonical bytes.
Result<std::vector<std::byte>> nibbles_of(const Tensor& codes) {
  const std::span<const int32_t> from = codes.span<const int32_t>();
  std::vector<std::byte> to(from.size() / 2);
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] < 0 || from[i] > 15)
      return refuse("self", "codes of 0 to 15", std::to_string(from[i]));
    to[i / 2] |= std::byte{static_cast<unsigned char>(from[i] << (4 * (i % 2)))};
  }
  return to;
}

/// Codes of u8 with the even input in the high half, or an i32 each. False: the host has to say
/// what is wrong.
Result<bool> convert_on_gpu(const Tensor& from, const cuda::Int4Codes& shape, const Tensor& out) {
  SUBBYTE_TRY(const device::Gpu gpu, gpu_of(from));
  cuda::NibbleCodes codes;
  codes.count = out.num_bytes();
  if (from.dtype() == numbers().i32) {
    codes.words = from.data<const int32_t>();
  } else {
    codes.bytes = from.data<const uint8_t>();
  }
  return device::convert_int4(codes, out.data(), shape, gpu);
}

Status convert_for_cpu(Call& call) {
  const Packing in = {call.tensor(), call.integer()};
  SUBBYTE_CHECK(call.check());
  const int64_t rows = in.codes.size(0);
  const int64_t cols = in.codes.size(1);
  SUBBYTE_CHECK(check_int4pack_cpu_shape(rows, cols));
  SUBBYTE_TRY(Tensor out, call.result());
  if (!in.codes.on_cpu()) {
    constexpr std::array kOrders = {cuda::Int4Order::kHalves64, cuda::Int4Order::kHalves32,
                                    cuda::Int4Order::kPairs32, cuda::Int4Order::kPairs16};
    const cuda::Int4Order order = kOrders[static_cast<std::size_t>(tile_of_aten)];
    SUBBYTE_TRY(const bool is_done, convert_on_gpu(in.codes, {order, rows, cols}, out));
    if (is_done) {
      return call.add(std::move(out));
    }
  }
  SUBBYTE_TRY(const std::vector<std::byte> canonical, nibbles_of(in.codes.host()));
  Tensor host = Tensor::empty_on_cpu(out.sizes(), out.dtype());
  pack_int4_cpu(host.data(), canonical.data(), rows, cols, tile_of_aten);
  return call.add(std::move(host).to_device_of(in.codes));
}

/// Bytes with the halves changed: aten's words for CUDA come from bytes with the even input high.
std::vector<std::byte> swap_nibbles(std::span<const std::byte> from) {
  std::vector<std::byte> to(from.size());
  std::ranges::transform(from, to.begin(), [](std::byte b) { return b << 4 | b >> 4; });
  return to;
}

Status convert(Call& call) {
  const Packing in = {call.tensor(), call.integer()};
  SUBBYTE_CHECK(call.check());
  const int64_t rows = in.codes.size(0);
  const int64_t cols = in.codes.size(1) * 2;
  const int tiles = static_cast<int>(std::clamp<int64_t>(in.inner_k_tiles, 0, 64));
  SUBBYTE_CHECK(check_int4pack_cuda_shape(rows, cols, tiles));
  SUBBYTE_TRY(Tensor out, call.result());
  if (in.codes.on_cpu()) {
    pack_int4_cuda(out.data(), swap_nibbles(in.codes.span()).data(), rows, cols, tiles);
  } else {
    const auto order = tiles == 2   ? cuda::Int4Order::kTiles2
                       : tiles == 4 ? cuda::Int4Order::kTiles4
                                    : cuda::Int4Order::kTiles8;
    SUBBYTE_CHECK(convert_on_gpu(in.codes, {order, rows, cols}, out));
  }
  return call.add(std::move(out));
}

struct Product {
  int64_t rows() const { return scales.size(1); }
  int64_t cols() const { return x.size(1); }
  int64_t groups() const { return cols() / group; }

  Tensor x;
  Tensor weight;
  int64_t group;
  Tensor scales;
};

Status check_common(const Product& in) {
  if (in.cols() > 0 && in.cols() % in.group == 0) return {};
  return refuse("qGroupSize", "32, 64, 128 or 256 that divides " + std::to_string(in.cols()),
                std::to_string(in.group));
}

/// Numbers of [K/g, N, 2], or of [K/g, N], as [N][K/g]: scales, or with `first` = 1 the z after
/// each of them.
void copy_groups(const Product& in, int64_t first, std::byte* to) {
  const int64_t width = bytes_of(in.scales.dtype());
  const int64_t stride = in.scales.dim() == 3 ? 2 : 1;
  for (int64_t n = 0; n < in.rows(); ++n) {
    for (int64_t g = 0; g < in.groups(); ++g, to += width) {
      std::copy_n(in.scales.host().data() + ((g * in.rows() + n) * stride + first) * width, width,
                  to);
    }
  }
}

/// i4 codes with scales of x's type, unpacked by `unpack`.
template <typename Unpack>
Result<Matrix> codes_and_scales(const Product& in, const Unpack& unpack) {
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.format = {Format::kI4, in.x.format(), Zero::kNone, in.group};
  view.rows = in.rows();
  view.cols = in.cols();
  unpack(allocate_part(matrix, view.codes, view.rows * view.row_bytes()));
  copy_groups(
      in, 0,
      allocate_part(matrix, view.scales, view.rows * view.groups() * bytes_of(in.scales.dtype())));
  return matrix;
}

/// z of [K/g, N, 2] as a dense matrix [N][K/g].
Result<Matrix> offsets_of(const Product& in) {
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.format.element = in.x.format();
  view.rows = in.rows();
  view.cols = in.groups();
  copy_groups(in, 1,
              allocate_part(matrix, view.codes, view.rows * view.cols * bytes_of(in.x.dtype())));
  return matrix;
}

/// Kernels for GPUs add the zero points themselves.
template <typename Unpack>
Status multiply_on_gpu(const Product& in, const char* name, const Unpack& unpack, Tensor& out) {
  const std::array sources = {&in.weight, &in.scales};
  const auto make = [&]() -> Result<Matrix> {
    SUBBYTE_TRY(Matrix matrix, codes_and_scales(in, unpack));
    SUBBYTE_TRY(Matrix offsets, offsets_of(in));
    matrix.view.format.zero = in.x.format() == Format::kBF16 ? Zero::kBF16 : Zero::kF16;
    matrix.view.zeros = offsets.view.codes;
    matrix.owners.push_back(std::move(offsets.owners.front()));
    return matrix;
  };
  return multiply_kept(in.x, {name, {in.rows(), in.cols(), in.group}, {}}, sources, make,
                       std::nullopt, out);
}

template <typename Unpack>
Status multiply_with_offsets(const Product& in, const char* name, const Unpack& unpack,
                             Call& call) {
  SUBBYTE_TRY(Tensor out, call.result());
  if (!in.x.on_cpu()) {
    SUBBYTE_CHECK(multiply_on_gpu(in, name, unpack, out));
  } else if (in.x.size(0) > 0) {
    SUBBYTE_TRY(Machine machine, Machine::borrow(in.x.count() * in.rows()));
    const auto make = [&]() -> Result<WithOffsets> {
      SUBBYTE_TRY(Matrix codes, codes_and_scales(in, unpack));
      SUBBYTE_TRY(Matrix offsets, offsets_of(in));
      return WithOffsets{std::move(codes), std::move(offsets), in.group};
    };
    const std::array sources = {&in.weight, &in.scales};
    SUBBYTE_TRY(const auto ready,
                keep_ready(machine, {name, {in.rows(), in.cols(), in.group}, {}}, sources, make));
    SUBBYTE_CHECK(multiply(machine, in.x, *ready, std::nullopt, out));
  }
  return call.add(std::move(out));
}

Status product_for_cpu(Call& call) {
  const Product in = {call.tensor(), call.tensor(), call.integer(), call.tensor()};
  SUBBYTE_CHECK(call.check());
  SUBBYTE_CHECK(check_common(in));
  SUBBYTE_CHECK(check_int4pack_cpu_shape(in.rows(), in.cols()));
  const auto unpack = [&](std::byte* codes) {
    unpack_int4_cpu(codes, in.weight.host().data(), in.rows(), in.cols(), tile_of_aten);
  };
  return multiply_with_offsets(in, "int4 of CPUs", unpack, call);
}

Status product(Call& call) {
  const Product in = {call.tensor(), call.tensor(), call.integer(), call.tensor()};
  SUBBYTE_CHECK(call.check());
  SUBBYTE_CHECK(check_common(in));
  const int64_t tiles = in.weight.size(3) * 2;
  SUBBYTE_CHECK(check_int4pack_cuda_shape(in.rows(), in.cols(),
                                          static_cast<int>(std::min<int64_t>(tiles, 64))));
  const auto unpack = [&](std::byte* codes) {
    unpack_int4_cuda(codes, in.weight.host().data(), in.rows(), in.cols(), static_cast<int>(tiles));
  };
  return multiply_with_offsets(in, "int4 of CUDA", unpack, call);
}

/// z of XPU: w = s (q - z), with z of any signed byte.
Result<Matrix> xpu_matrix(const Product& in, const Tensor& zeros) {
  SUBBYTE_TRY(Matrix matrix, codes_and_scales(in, [&](std::byte* codes) {
                std::ranges::copy(in.weight.host().span(), codes);
              }));
  MatrixView& view = matrix.view;
  view.format.element = Format::kU4;
  view.format.zero = Zero::kU8;
  const int64_t count = view.rows * view.groups();
  std::byte* const to = allocate_part(matrix, view.zeros, count);
  unpack_int4_xpu_groups(to, zeros.host().data(), view.rows, view.groups(), 1);
  for (int64_t i = 0; i < count; ++i) {
    const int zero = static_cast<int8_t>(to[i]);
    if (zero < 0 || zero > 16) return refuse(zeros.name(), "0 to 16", zero);
  }
  return matrix;
}

Status product_with_zeros(Call& call) {
  const Product in = {call.tensor(), call.tensor(), call.integer(), call.tensor()};
  const Tensor zeros = call.tensor();
  SUBBYTE_CHECK(call.check());
  SUBBYTE_CHECK(check_common(in));
  SUBBYTE_TRY(Tensor out, call.result());
  SUBBYTE_CHECK(multiply_kept(
      in.x, {"int4 of XPU", {in.rows(), in.cols(), in.group}, {}},
      std::array{&in.weight, &in.scales, &zeros}, [&] { return xpu_matrix(in, zeros); },
      std::nullopt, out));
  return call.add(std::move(out));
}

#define SUBBYTE_PRODUCT(weight) \
  "(Tensor self{floats [M=, K=]}, Tensor mat2{" weight "}, int qGroupSize{32|64|128|256}, "
#define SUBBYTE_SCALES "Tensor qScaleAndZeros{self [K // qGroupSize, N=, 2]}) -> "
#define SUBBYTE_Y "Tensor{self [M, N]}"

constexpr Operator kOperators[] = {
    {"_convert_weight_to_int4pack_for_cpu(Tensor self{i32 [N=, K=]}, int innerKTiles) -> "
     "Tensor{u8 [N, K // 2]}",
     convert_for_cpu},
    {"_convert_weight_to_int4pack(Tensor self{u8 [N=, B=]}, int innerKTiles{2|4|8}) -> "
     "Tensor{i32 [N // 8, B // (innerKTiles * 8), 32, innerKTiles // 2]}",
     convert},
    {"_weight_int4pack_mm_for_cpu" SUBBYTE_PRODUCT("u8 [N, K // 2]") SUBBYTE_SCALES SUBBYTE_Y,
     product_for_cpu},
    {"_weight_int4pack_mm" SUBBYTE_PRODUCT("i32 [N // 8, K // (t * 32), 32, t=]")
         SUBBYTE_SCALES SUBBYTE_Y,
     product},
    {"_weight_int4pack_mm_with_scales_and_zeros" SUBBYTE_PRODUCT(
         "i32 [N, K // 8]") "Tensor qScale{self [K // qGroupSize, N=]}, Tensor qZeros{i8 [K // "
                            "qGroupSize, N]}) -> " SUBBYTE_Y,
     product_with_zeros},
};

}  // namespace

void set_int4_tile(std::string_view capability) {
  tile_of_aten = capability == "AVX512" ? CpuTile::kHalves64
                 : capability == "AVX2" ? CpuTile::kHalves32
                                        : CpuTile::kPairs32;
}

std::span<const Operator> int4_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
