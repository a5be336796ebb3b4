// Layouts of `subbyte pack` as the tensors of one matrix: Marlin's and FlashInfer's, whose formats
// and shapes follow from the tensors. transform/packing/layouts/ has the layouts themselves.

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>

#include "base/quote.h"
#include "c_interface/errors.h"
#include "c_interface/tensors.h"
#include "matrix/recast.h"
#include "transform/packing/pack_layout.h"

namespace subbyte::c {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"marlin", "marlin-fp4", "flashinfer-mxfp4"};
constexpr std::string_view kPrefix = ".packed.";
constexpr std::initializer_list<DType> kHalves = {DType::kF16, DType::kBF16};

int64_t at(const FileTensor& tensor, std::size_t i) {
  return static_cast<int64_t>(tensor.shape[i]);
}

/// Factors beside S0E5M3 scales: what the kernels take the power of two for.
double unit_of(Format activations) {
  return activations == Format::kF16 ? 0x1p7 : 0x1p119;
}

/// The tensors of one matrix of a stack: of rank 3 where those of a matrix have 2.
Result<ReadTensors> of_expert(const ReadTensors& tensors, std::string_view first, int64_t expert) {
  const auto found = tensors.by_name.find(std::string(first));
  if (found == tensors.by_name.end() || found->second.shape.size() != 3) {
    if (expert == 0) return tensors;
    return refuse("layout.expert", "0 for tensors of one matrix", expert);
  }
  const int64_t experts = at(found->second, 0);
  if (expert < 0 || expert >= experts) {
    return refuse("layout.expert", "0 to " + std::to_string(experts - 1), expert);
  }
  ReadTensors one = tensors;
  for (auto& [name, tensor] : one.by_name) {
    if (tensor.shape.empty() || at(tensor, 0) != experts) {
      return Error{"c.tensor", "tensor " + quote_name(name) + ": expected " +
                                   std::to_string(experts) + " experts first, found " +
                                   to_string(tensor.shape)};
    }
    const std::size_t size = tensor.bytes.size() / static_cast<std::size_t>(experts);
    tensor.bytes = tensor.bytes.subspan(static_cast<std::size_t>(expert) * size, size);
    tensor.shape.erase(tensor.shape.begin());
  }
  return one;
}

/// Groups of K inputs, of which scales have `groups`; 0: one group.
Result<int64_t> group_size_of(int64_t groups, int64_t cols) {
  if (groups == 1) return 0;
  if (groups > 1 && cols % groups == 0) return cols / groups;
  return Error{"c.tensor", "tensor \"scales\": expected groups that divide " +
                               std::to_string(cols) + " inputs, found " + std::to_string(groups)};
}

Result<PackedShape> read_marlin(const ReadTensors& tensors) {
  SUBBYTE_TRY(const FileTensor* words, tensors.find("words", {DType::kI32, DType::kU32}, 2));
  SUBBYTE_TRY(const FileTensor* scales, tensors.find("scales", kHalves, 2));
  PackedShape shape;
  shape.rows = at(*scales, 1);
  shape.cols = 16 * at(*words, 0);
  const int64_t bits = shape.rows == 0 ? 0 : 2 * at(*words, 1) / shape.rows;
  if (bits != 4 && bits != 8) {
    return Error{"c.tensor",
                 "tensor \"words\": expected [K / 16, N b / 2] with b of 4 or 8, found " +
                     to_string(words->shape)};
  }
  const bool has_zeros = tensors.by_name.contains("zeros");
  WeightFormat& format = shape.format;
  format.scale = scales->dtype == DType::kF16 ? Format::kF16 : Format::kBF16;
  format.element =
      bits == 4 ? (has_zeros ? Format::kU4 : Format::kI4) : (has_zeros ? Format::kU8 : Format::kI8);
  if (has_zeros) format.zero = bits == 4 ? Zero::kU8 : Zero::kU16;
  SUBBYTE_TRY(format.group_size, group_size_of(at(*scales, 0), shape.cols));
  shape.act_order = tensors.by_name.contains("perm");
  return shape;
}

Result<PackedShape> read_marlin_fp4(const ReadTensors& tensors) {
  SUBBYTE_TRY(const FileTensor* words, tensors.find("words", {DType::kI32, DType::kU32}, 2));
  SUBBYTE_TRY(const FileTensor* scales, tensors.find("scales", {DType::kU8, DType::kI8}, 2));
  PackedShape shape;
  shape.rows = at(*scales, 1);
  shape.cols = 16 * at(*words, 0);
  shape.has_factor = tensors.by_name.contains("global");
  shape.format.element = Format::kE2M1;
  shape.format.scale = shape.has_factor ? Format::kE4M3 : Format::kE8M0;
  SUBBYTE_TRY(shape.format.group_size, group_size_of(at(*scales, 0), shape.cols));
  return shape;
}

Result<PackedShape> read_flashinfer(const subbyte_layout& layout, const ReadTensors& tensors) {
  SUBBYTE_TRY(const FileTensor* weight, tensors.find("weight", {DType::kU8, DType::kI8}, 2));
  PackedShape shape;
  shape.rows = layout.rows == 0 ? at(*weight, 0) : layout.rows;
  shape.cols = layout.cols == 0 ? 2 * at(*weight, 1) : layout.cols;
  shape.format = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  return shape;
}

/// The tile that is asked for, or the first.
Result<std::string> tile_of(const PackLayout& packed, const char* tile) {
  if (tile == nullptr || *tile == '\0') return std::string(packed.tiles.front());
  if (std::ranges::find(packed.tiles, tile) != packed.tiles.end()) return std::string(tile);
  std::string known;
  for (const std::string_view one : packed.tiles) known += (known.empty() ? "" : ", ") + quote(one);
  return refuse("layout.tile", known, quote(tile));
}

Result<Format> activations_of(const PackLayout& packed, int32_t number) {
  if (!packed.has_activations) return Format::kNone;
  if (number == SUBBYTE_NONE) return Format::kBF16;
  return float_of("layout.number", number);
}

std::string short_name(std::string_view suffix) {
  return std::string(suffix.substr(kPrefix.size()));
}

/// Checks that the tensors are those of the shape, and lists their bytes.
Result<std::vector<std::span<const std::byte>>> views_of(
    const std::vector<ExportedTensor>& described, const ReadTensors& tensors) {
  std::vector<std::span<const std::byte>> views;
  for (const ExportedTensor& expected : described) {
    const std::string name = short_name(expected.suffix);
    const bool is_word = expected.dtype == DType::kI32;
    SUBBYTE_TRY(const FileTensor* tensor,
                tensors.find(name, {expected.dtype, is_word ? DType::kU32 : DType::kI8},
                             expected.shape.size()));
    if (tensor->shape != expected.shape) {
      return Error{"c.tensor", "tensor " + quote_name(name) + ": expected " +
                                   to_string(expected.shape) + ", found " +
                                   to_string(tensor->shape)};
    }
    views.push_back(tensor->bytes);
  }
  for (const auto& [name, tensor] : tensors.by_name) {
    const auto is_of_name = [&name = name](const ExportedTensor& one) {
      return short_name(one.suffix) == name;
    };
    if (std::ranges::any_of(described, is_of_name)) continue;
    return Error{"c.tensor", "tensor " + quote_name(name) + ": the layout has none of that name"};
  }
  return views;
}

/// The bytes of a matrix in the layout.
Result<std::vector<ExportedTensor>> pack(const PackLayout& packed, const PackedShape& shape,
                                         const MatrixView& matrix) {
  std::vector<ExportedTensor> tensors = packed.describe(shape);
  std::vector<std::span<std::byte>> parts;
  for (ExportedTensor& tensor : tensors) {
    tensor.bytes.resize(tensor.num_bytes());
    parts.push_back(tensor.bytes);
  }
  SUBBYTE_CHECK(packed.pack(matrix, shape, parts));
  return tensors;
}

}  // namespace

bool is_packed_layout(std::string_view name) {
  return std::ranges::find(kNames, name) != kNames.end();
}

std::string packed_layout_names() {
  std::string names;
  for (const std::string_view name : kNames) names += std::string(name) + ", ";
  return names;
}

Result<Matrix> import_packed(const subbyte_layout& layout, const ReadTensors& all) {
  const PackLayout& packed = *find_pack_layout(layout.name);
  const bool is_flashinfer = packed.name == "flashinfer-mxfp4";
  SUBBYTE_TRY(const ReadTensors tensors,
              of_expert(all, is_flashinfer ? "weight" : "words", layout.expert));
  SUBBYTE_TRY(PackedShape shape, is_flashinfer            ? read_flashinfer(layout, tensors)
                                 : packed.has_activations ? read_marlin_fp4(tensors)
                                                          : read_marlin(tensors));
  SUBBYTE_TRY(shape.tile, tile_of(packed, layout.tile));
  SUBBYTE_TRY(shape.activations, activations_of(packed, layout.number));
  SUBBYTE_CHECK(packed.check(shape));
  SUBBYTE_TRY(const auto views, views_of(packed.describe(shape), tensors));
  SUBBYTE_TRY(Matrix matrix, packed.unpack(shape, views));
  if (shape.has_factor) {  // of what scales were multiplied by, the product counts alone
    float global = 0;
    __builtin_memcpy(&global, views.back().data(), sizeof global);
    matrix.view.tensor_scale = global / unit_of(shape.activations);
  }
  SUBBYTE_TRY(const std::vector<ExportedTensor> again, pack(packed, shape, matrix.view));
  for (std::size_t i = 0; i < again.size(); ++i) {
    if (std::ranges::equal(again[i].bytes, views[i])) continue;
    return Error{"c.tensor", "tensor " + quote_name(short_name(again[i].suffix)) +
                                 ": expected what packing gives, such as padding of 0, found "
                                 "other bytes"};
  }
  return matrix;
}

Status export_packed(const subbyte_layout& layout, const Matrix& matrix,
                     std::vector<subbyte_tensors::Tensor>& to) {
  const PackLayout& packed = *find_pack_layout(layout.name);
  const MatrixView& view = matrix.view;
  if (is_dense(view.format) || view.cols % view.group_size() != 0) {
    return Error{"layout.format", std::string(packed.name) +
                                      ": expected groups that fill the inputs, found " +
                                      to_string(view.format)};
  }
  PackedShape shape;
  shape.format = view.format;
  shape.rows = view.rows;
  shape.cols = view.cols;
  shape.symmetric = view.format.zero != Zero::kNone && is_symmetric(view);
  shape.act_order = !view.input_order.empty();
  shape.has_factor = view.tensor_scale != 1;
  SUBBYTE_TRY(shape.tile, tile_of(packed, layout.tile));
  SUBBYTE_TRY(shape.activations, activations_of(packed, layout.number));
  SUBBYTE_CHECK(packed.check(shape));
  if (packed.complete != nullptr) SUBBYTE_CHECK(packed.complete(shape, {&matrix, 1}));
  SUBBYTE_TRY(std::vector<ExportedTensor> tensors, pack(packed, shape, view));
  for (ExportedTensor& tensor : tensors) {
    std::string name = short_name(tensor.suffix);
    to.push_back({std::move(name), std::move(tensor)});
  }
  return {};
}

}  // namespace subbyte::c
