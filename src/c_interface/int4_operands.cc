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
  constexpr std::array<std::string_view, 4> kTiles = {"64", "32", "pairs-32", "pairs-16"};
  for (std::size_t i = 0; name != nullptr && i < kTiles.size(); ++i) {
    if (kTiles[i] == name) return static_cast<CpuTile>(i);
  }
  return refuse("layout.tile", "\"64\", \"32\", \"pairs-32\" or \"pairs-16\"",
                name == nullptr ? "NULL" : quote(name));
}

static_assert(static_cast<int>(CpuTile::kPairs16) == 3);

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

/// s and z beside the codes: zero points where z is what they make, else offsets.
Status add_scales_and_zeros(const ReadTensors& tensors, Int4Matrix& to) {
  const std::string name = "scales_and_zeros";
  SUBBYTE_TRY(const FileTensor* tensor, tensors.find(name, kFloats, 3));
  const int64_t rows = to.matrix.view.rows;
  if (at(*tensor, 1) != rows || at(*tensor, 2) != 2) {
    return shape_error(name, "[groups, " + std::to_string(rows) + ", 2]", *tensor);
  }
  SUBBYTE_TRY(const int64_t group, group_size_of(name, *tensor, to.matrix.view.cols));
  const Format type = format_of(tensor->dtype);
  auto integers = unpack_scales_and_zeros(tensor->bytes, type, rows, at(*tensor, 0));
  if (integers.ok()) {
    to.set_scales(std::move(integers->scales), std::move(integers->zeros),
                  {Format::kU4, type, Zero::kU8, group});
    return {};
  }
  if (type == Format::kF32 || integers.error().code != "layout.zero_range") {
    return integers.error();
  }
  SUBBYTE_TRY(ScalesAndZeros floats,
              unpack_scales_and_offsets(tensor->bytes, type, rows, at(*tensor, 0)));
  to.set_scales(std::move(floats.scales), std::move(floats.zeros),
                {Format::kI4, type, type == Format::kF16 ? Zero::kF16 : Zero::kBF16, group});
  return {};
}

Result<Matrix> import_cpu(const char* tile, const ReadTensors& tensors) {
  SUBBYTE_TRY(const CpuTile of, cpu_tile(tile));
  SUBBYTE_TRY(const FileTensor* weight, tensors.find("weight", {DType::kU8, DType::kI8}, 2));
  const int64_t rows = at(*weight, 0), cols = 2 * at(*weight, 1);
  SUBBYTE_CHECK(check_int4pack_cpu_shape(rows, cols));
  Int4Matrix made(rows, cols);
  unpack_int4_cpu(made.codes.get(), weight->bytes.data(), rows, cols, of);
  SUBBYTE_CHECK(add_scales_and_zeros(tensors, made));
  return std::move(made.matrix);
}

Result<Matrix> import_cuda(const ReadTensors& tensors) {
  SUBBYTE_TRY(const FileTensor* weight, tensors.find("weight", {DType::kI32, DType::kU32}, 4));
  const int64_t tiles = 2 * at(*weight, 3);
  const int64_t rows = 8 * at(*weight, 0), cols = at(*weight, 1) * 16 * tiles;
  if (at(*weight, 2) != 32 || (tiles != 2 && tiles != 4 && tiles != 8)) {
    return shape_error("weight", "[N / 8, K / (16 T), 32, T / 2] with T of 2, 4 or 8", *weight);
  }
  SUBBYTE_CHECK(check_int4pack_cuda_shape(rows, cols, static_cast<int>(tiles)));
  Int4Matrix made(rows, cols);
  unpack_int4_cuda(made.codes.get(), weight->bytes.data(), rows, cols, static_cast<int>(tiles));
  SUBBYTE_CHECK(add_scales_and_zeros(tensors, made));
  return std::move(made.matrix);
}

Result<Matrix> import_xpu(const ReadTensors& tensors) {
  SUBBYTE_TRY(const FileTensor* weight, tensors.find("weight", {DType::kI32, DType::kU32}, 2));
  SUBBYTE_TRY(const FileTensor* scales, tensors.find("scales", kFloats, 2));
  SUBBYTE_TRY(const FileTensor* zeros, tensors.find("zeros", {DType::kI8, DType::kU8}, 2));
  const int64_t rows = at(*weight, 0), cols = 8 * at(*weight, 1);
  if (rows == 0 || cols == 0) return shape_error("weight", "outputs and inputs", *weight);
  if (at(*scales, 1) != rows) {
    return shape_error("scales", "[groups, " + std::to_string(rows) + "]", *scales);
  }
  if (zeros->shape != scales->shape) {
    return shape_error("zeros", to_string(scales->shape), *zeros);
  }
  SUBBYTE_TRY(const int64_t group, group_size_of("scales", *scales, cols));
  if (std::ranges::any_of(zeros->bytes, [](std::byte z) { return z > std::byte{16}; })) {
    return Error{"layout.zero_range", "tensor \"zeros\": expected 0 to 16, found another"};
  }
  Int4Matrix made(rows, cols);
  std::ranges::copy(weight->bytes, made.codes.get());
  std::vector<std::byte> scale_bytes(scales->bytes.size()), zero_bytes(zeros->bytes.size());
  const Format type = format_of(scales->dtype);
  unpack_int4_xpu_groups(scale_bytes.data(), scales->bytes.data(), rows, at(*scales, 0),
                         info(type).bits / 8);
  unpack_int4_xpu_groups(zero_bytes.data(), zeros->bytes.data(), rows, at(*scales, 0), 1);
  made.set_scales(std::move(scale_bytes), std::move(zero_bytes),
                  {Format::kU4, type, Zero::kU8, group});
  return std::move(made.matrix);
}

Shape shape_of(std::initializer_list<int64_t> sizes) {
  Shape shape;
  for (const int64_t size : sizes) shape.push_back(static_cast<uint64_t>(size));
  return shape;
}

/// Checks what the packing functions take for granted.
Status check_source(const MatrixView& matrix) {
  const WeightFormat& f = matrix.format;
  const bool is_int4 = !is_dense(f) && (f.element == Format::kU4 || f.element == Format::kI4);
  if (!is_int4) {
    return Error{"layout.format", "int4pack: expected integers of 4 bits, found " + to_string(f)};
  }
  if (matrix.tensor_scale == 1 && matrix.cols % matrix.group_size() == 0) return {};
  return Error{"layout.format", "int4pack: expected no factor and groups that fill the inputs"};
}

}  // namespace

Result<Matrix> import_int4pack(std::string_view layout, const char* tile,
                               const ReadTensors& tensors) {
  if (layout == "int4pack-cpu") return import_cpu(tile, tensors);
  if (layout == "int4pack-cuda") return import_cuda(tensors);
  return import_xpu(tensors);
}

Status export_int4pack(std::string_view layout, const char* tile, Format number,
                       const MatrixView& from, std::vector<subbyte_tensors::Tensor>& to) {
  SUBBYTE_CHECK(check_source(from));
  const bool has_offsets = is_offset(from.format.zero);
  const Matrix matrix = has_offsets ? Matrix{from, {}} : with_zero_points(Matrix{from, {}});
  const MatrixView& view = matrix.view;
  const Format type = number == Format::kNone ? view.format.scale : number;
  const int64_t rows = view.rows, cols = view.cols, groups = view.groups();
  if (layout == "int4pack-xpu") {
    SUBBYTE_TRY(FusedXpuInt4 fused, transform_xpu(view, type));
    to.push_back(
        {"weight", {"", DType::kI32, shape_of({rows, cols / 8}), std::move(fused.weight)}});
    to.push_back(
        {"scales", {"", dtype_of(type), shape_of({groups, rows}), std::move(fused.scales)}});
    to.push_back({"zeros", {"", DType::kI8, shape_of({groups, rows}), std::move(fused.zeros)}});
    return {};
  }
  std::vector<std::byte> words(view.codes.size());
  Shape shape = shape_of({rows, cols / 2});
  if (layout == "int4pack-cpu") {
    SUBBYTE_TRY(const CpuTile of, cpu_tile(tile));
    SUBBYTE_CHECK(check_int4pack_cpu_shape(rows, cols));
    pack_int4_cpu(words.data(), view.codes.data(), rows, cols, of);
  } else {
    SUBBYTE_TRY(const int tiles, cuda_tile(tile));
    SUBBYTE_CHECK(check_int4pack_cuda_shape(rows, cols, tiles));
    pack_int4_cuda(words.data(), view.codes.data(), rows, cols, tiles);
    shape = shape_of({rows / 8, cols / (16 * tiles), 32, tiles / 2});
  }
  SUBBYTE_TRY(std::vector<std::byte> numbers,
              type == view.format.scale ? pack_scales_and_zeros(view)
                                        : pack_scales_and_zeros(view, type, OffsetScale::kRounded));
  const DType dtype = layout == "int4pack-cpu" ? DType::kU8 : DType::kI32;
  to.push_back({"weight", {"", dtype, std::move(shape), std::move(words)}});
  to.push_back(
      {"scales_and_zeros", {"", dtype_of(type), shape_of({groups, rows, 2}), std::move(numbers)}});
  return {};
}

}  // namespace subbyte::c
