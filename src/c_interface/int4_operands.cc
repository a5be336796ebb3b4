// The operands of aten's three int4 products. foreign_layouts/int4pack.h draws them.

#include <algorithm>
#include <array>
#include <cstring>

#include "base/quote.h"
#include "c_interface/errors.h"
#include "c_interface/tensors.h"
#include "foreign_layouts/fused_int4.h"
#include "foreign_layouts/int4pack.h"
#include "matrix/zero_points.h"

namespace subbyte::c {
namespace {

constexpr std::initializer_list<DType> kFloats = {DType::kF16, DType::kBF16, DType::kF32};

Format format_of(DType dtype) {
  return dtype == DType::kF16 ? Format::kF16 : dtype == DType::kBF16 ? Format::kBF16 : Format::kF32;
}

DType dtype_of(Format format) {
  return format == Format::kF16    ? DType::kF16
         : format == Format::kBF16 ? DType::kBF16
                                   : DType::kF32;
}

Result<CpuTile> cpu_tile(const char* name) {
  constexpr std::pair<std::string_view, CpuTile> kTiles[] = {{"64", CpuTile::kHalves64},
                                                             {"32", CpuTile::kHalves32},
                                                             {"pairs-32", CpuTile::kPairs32},
                                                             {"pairs-16", CpuTile::kPairs16}};
  for (const auto& [known, tile] : kTiles) {
    if (name != nullptr && known == name) return tile;
  }
  return refuse("layout.tile", "\"64\", \"32\", \"pairs-32\" or \"pairs-16\"",
                name == nullptr ? "NULL" : quote(name));
}

Result<int> cuda_tile(const char* name) {
  const std::string_view tile = name == nullptr ? "8" : name;
  if (tile == "2" || tile == "4" || tile == "8") return tile[0] - '0';
  return refuse("layout.tile", "\"2\", \"4\" or \"8\"", quote(tile));
}

int64_t at(const FileTensor& tensor, std::size_t i) {
  return static_cast<int64_t>(tensor.shape[i]);
}

Error shape_error(const std::string& name, const std::string& expected, const FileTensor& tensor) {
  return {"c.tensor", "tensor " + quote_name(name) + ": expected " + expected + ", found " +
                          to_string(tensor.shape)};
}

/// A matrix with codes of 4 bits, and its own bytes.
struct Int4Matrix {
  Matrix matrix;
  std::shared_ptr<std::byte[]> codes;

  Int4Matrix(int64_t rows, int64_t cols) {
    const auto size = static_cast<std::size_t>(rows * cols / 2);
    codes = allocate_bytes(size);
    matrix.view.rows = rows;
    matrix.view.cols = cols;
    matrix.view.codes = {codes.get(), size};
    matrix.owners.push_back(codes);
  }

  void set_scales(std::vector<std::byte> scales, std::vector<std::byte> zeros,
                  const WeightFormat& format) {
    auto kept = std::make_shared<std::pair<std::vector<std::byte>, std::vector<std::byte>>>(
        std::move(scales), std::move(zeros));
    matrix.view.format = format;
    matrix.view.scales = kept->first;
    matrix.view.zeros = kept->second;
    matrix.owners.push_back(kept);
  }
};

/// Groups of K inputs, of which scales have `groups`.
Result<int64_t> group_size_of(const std::string& name, const FileTensor& tensor, int64_t cols) {
  const int64_t groups = at(tensor, 0);
  if (groups > 0 && cols % groups == 0) return cols / groups;
  return shape_error(name, "groups that divide " + std::to_string(cols) + " inputs", tensor);
}

/// The weights of an operand of the CPU.
Status read_cpu(const char* tile, const ReadTensors& tensors, Int4Operand& to) {
  SUBBYTE_TRY(to.cpu_tile, cpu_tile(tile));
  SUBBYTE_TRY(to.weight, tensors.find("weight", {DType::kU8, DType::kI8}, 2));
  to.rows = at(*to.weight, 0);
  to.cols = 2 * at(*to.weight, 1);
  return check_int4pack_cpu_shape(to.rows, to.cols);
}

Status read_cuda(const ReadTensors& tensors, Int4Operand& to) {
  SUBBYTE_TRY(to.weight, tensors.find("weight", {DType::kI32, DType::kU32}, 4));
  const int64_t tiles = 2 * at(*to.weight, 3);
  to.rows = 8 * at(*to.weight, 0);
  to.cols = at(*to.weight, 1) * 16 * tiles;
  to.cuda_tiles = static_cast<int>(tiles);
  if (at(*to.weight, 2) != 32 || (tiles != 2 && tiles != 4 && tiles != 8)) {
    return shape_error("weight", "[N / 8, K / (16 T), 32, T / 2] with T of 2, 4 or 8", *to.weight);
  }
  return check_int4pack_cuda_shape(to.rows, to.cols, to.cuda_tiles);
}

/// s and z beside the codes.
Status read_scales_and_zeros(const ReadTensors& tensors, Int4Operand& to) {
  const std::string name = "scales_and_zeros";
  SUBBYTE_TRY(to.scales, tensors.find(name, kFloats, 3));
  if (at(*to.scales, 1) != to.rows || at(*to.scales, 2) != 2) {
    return shape_error(name, "[groups, " + std::to_string(to.rows) + ", 2]", *to.scales);
  }
  SUBBYTE_TRY(to.group_size, group_size_of(name, *to.scales, to.cols));
  return {};
}

Status read_xpu(const ReadTensors& tensors, Int4Operand& to) {
  SUBBYTE_TRY(to.weight, tensors.find("weight", {DType::kI32, DType::kU32}, 2));
  SUBBYTE_TRY(to.scales, tensors.find("scales", kFloats, 2));
  SUBBYTE_TRY(to.zeros, tensors.find("zeros", {DType::kI8, DType::kU8}, 2));
  to.rows = at(*to.weight, 0);
  to.cols = 8 * at(*to.weight, 1);
  if (to.rows == 0 || to.cols == 0) {
    return shape_error("weight", "outputs and inputs", *to.weight);
  }
  if (at(*to.scales, 1) != to.rows) {
    return shape_error("scales", "[groups, " + std::to_string(to.rows) + "]", *to.scales);
  }
  if (to.zeros->shape != to.scales->shape) {
    return shape_error("zeros", to_string(to.scales->shape), *to.zeros);
  }
  SUBBYTE_TRY(to.group_size, group_size_of("scales", *to.scales, to.cols));
  return {};
}

/// s and z beside the codes: zero points where z is what they make, else offsets.
Status add_scales_and_zeros(const Int4Operand& from, Int4Matrix& to) {
  const std::span<const std::byte> bytes = from.scales->bytes;
  auto integers = unpack_scales_and_zeros(bytes, from.type, from.rows, from.groups());
  if (integers.ok()) {
    to.set_scales(std::move(integers->scales), std::move(integers->zeros), from.format(false));
    return {};
  }
  if (integers.error().code != "layout.zero_range") return integers.error();
  SUBBYTE_TRY(ScalesAndZeros floats,
              unpack_scales_and_offsets(bytes, from.type, from.rows, from.groups()));
  to.set_scales(std::move(floats.scales), std::move(floats.zeros), from.format(true));
  return {};
}

Status add_xpu_groups(const Int4Operand& from, Int4Matrix& to) {
  const std::span<const std::byte> zeros = from.zeros->bytes;
  if (std::ranges::any_of(zeros, [](std::byte z) { return z > std::byte{16}; })) {
    return Error{"layout.zero_range", "tensor \"zeros\": expected 0 to 16, found another"};
  }
  std::vector<std::byte> scale_bytes(from.scales->bytes.size()), zero_bytes(zeros.size());
  unpack_int4_xpu_groups(scale_bytes.data(), from.scales->bytes.data(), from.rows, from.groups(),
                         info(from.type).bits / 8);
  unpack_int4_xpu_groups(zero_bytes.data(), zeros.data(), from.rows, from.groups(), 1);
  to.set_scales(std::move(scale_bytes), std::move(zero_bytes), from.format(false));
  return {};
}

Shape shape_of(std::initializer_list<int64_t> sizes) {
  Shape shape;
  for (const int64_t size : sizes) shape.push_back(static_cast<uint64_t>(size));
  return shape;
}

}  // namespace

WeightFormat Int4Operand::format(bool has_offsets) const {
  if (!has_offsets) return {Format::kU4, type, Zero::kU8, group_size};
  return {Format::kI4, type, zero_of_offsets(type), group_size};
}

Result<Int4Operand> read_int4pack(std::string_view layout, const char* tile,
                                  const ReadTensors& tensors) {
  Int4Operand to;
  if (layout == "int4pack-xpu") {
    SUBBYTE_CHECK(read_xpu(tensors, to));
  } else {
    SUBBYTE_CHECK(layout == "int4pack-cpu" ? read_cpu(tile, tensors, to) : read_cuda(tensors, to));
    SUBBYTE_CHECK(read_scales_and_zeros(tensors, to));
  }
  to.type = format_of(to.scales->dtype);
  return to;
}

Result<Matrix> import_int4pack(const Int4Operand& from) {
  Int4Matrix made(from.rows, from.cols);
  const std::byte* const words = from.weight->bytes.data();
  if (from.zeros != nullptr) {
    std::ranges::copy(from.weight->bytes, made.codes.get());
    SUBBYTE_CHECK(add_xpu_groups(from, made));
    return std::move(made.matrix);
  }
  if (from.cuda_tiles > 0) {
    unpack_int4_cuda(made.codes.get(), words, from.rows, from.cols, from.cuda_tiles);
  } else {
    unpack_int4_cpu(made.codes.get(), words, from.rows, from.cols, from.cpu_tile);
  }
  SUBBYTE_CHECK(add_scales_and_zeros(from, made));
  return std::move(made.matrix);
}

Status check_int4pack_order(const MatrixView& matrix) {
  if (matrix.input_order.empty()) return {};
  return Error{"layout.input_order",
               "int4pack: expected inputs in their own order, found them sorted (act-order)"};
}

Result<Int4Target> plan_int4pack(std::string_view layout, const char* tile, Format number,
                                 const MatrixView& from) {
  const WeightFormat& f = from.format;
  const bool is_int4 = !is_dense(f) && (f.element == Format::kU4 || f.element == Format::kI4);
  if (!is_int4) {
    return Error{"layout.format", "int4pack: expected integers of 4 bits, found " + to_string(f)};
  }
  if (from.tensor_scale != 1 || from.cols % from.group_size() != 0) {
    return Error{"layout.format", "int4pack: expected no factor and groups that fill the inputs"};
  }
  SUBBYTE_CHECK(check_int4pack_order(from));
  Int4Target to;
  to.type = number == Format::kNone ? f.scale : number;
  const int64_t rows = from.rows, cols = from.cols, groups = from.groups();
  to.groups_shape = shape_of({groups, rows, 2});
  if (layout == "int4pack-xpu") {
    to.is_xpu = true;
    to.weight_shape = shape_of({rows, cols / 8});
    to.groups_shape = shape_of({groups, rows});
  } else if (layout == "int4pack-cpu") {
    SUBBYTE_TRY(to.cpu_tile, cpu_tile(tile));
    SUBBYTE_CHECK(check_int4pack_cpu_shape(rows, cols));
    to.weight_dtype = DType::kU8;
    to.weight_shape = shape_of({rows, cols / 2});
  } else {
    SUBBYTE_TRY(to.cuda_tiles, cuda_tile(tile));
    SUBBYTE_CHECK(check_int4pack_cuda_shape(rows, cols, to.cuda_tiles));
    to.weight_shape = shape_of({rows / 8, cols / (16 * to.cuda_tiles), 32, to.cuda_tiles / 2});
  }
  to.groups_dtype = dtype_of(to.type);
  return to;
}

Status export_int4pack(const Int4Target& target, const MatrixView& from,
                       std::vector<subbyte_tensors::Tensor>& to) {
  const bool has_offsets = is_offset(from.format.zero);
  const Matrix matrix = has_offsets ? Matrix{from, {}} : with_zero_points(Matrix{from, {}});
  const MatrixView& view = matrix.view;
  const int64_t rows = view.rows, cols = view.cols;
  if (target.is_xpu) {
    SUBBYTE_TRY(FusedXpuInt4 fused, transform_xpu(view, target.type));
    to.push_back(
        {"weight", {"", target.weight_dtype, target.weight_shape, std::move(fused.weight)}});
    to.push_back(
        {"scales", {"", target.groups_dtype, target.groups_shape, std::move(fused.scales)}});
    to.push_back({"zeros", {"", DType::kI8, target.groups_shape, std::move(fused.zeros)}});
    return {};
  }
  std::vector<std::byte> words(view.codes.size());
  if (target.cuda_tiles > 0) {
    pack_int4_cuda(words.data(), view.codes.data(), rows, cols, target.cuda_tiles);
  } else {
    pack_int4_cpu(words.data(), view.codes.data(), rows, cols, target.cpu_tile);
  }
  SUBBYTE_TRY(std::vector<std::byte> numbers,
              target.type == view.format.scale
                  ? pack_scales_and_zeros(view)
                  : pack_scales_and_zeros(view, target.type, OffsetScale::kRounded));
  to.push_back({"weight", {"", target.weight_dtype, target.weight_shape, std::move(words)}});
  to.push_back(
      {"scales_and_zeros", {"", target.groups_dtype, target.groups_shape, std::move(numbers)}});
  return {};
}

}  // namespace subbyte::c
