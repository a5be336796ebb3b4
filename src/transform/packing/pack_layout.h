#pragma once
// The layouts that `pack` writes: each is a bijection between a canonical matrix and a few tensors
// of a packed directory, over src/foreign_layouts/. A new one is one object in layouts/ and one
// line in pack_layouts.def.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/exporter.h"
#include "matrix/matrix.h"

namespace subbyte {

/// All that decides which tensors there are, and what is in them beside the numbers of the matrix.
struct PackedShape {
  WeightFormat format;  // of the canonical matrix
  int64_t rows = 0;     // N, outputs
  int64_t cols = 0;     // K, inputs
  /// All zero points are in the middle of the codes, and a layout that knows such codes leaves them
  /// out; of a format with zero points alone.
  bool symmetric = false;
  bool act_order = false;
  bool has_factor = false;             // whether the tensor's factor may be another number than 1
  std::string tile = {};               // one of PackLayout::tiles
  Format activations = Format::kNone;  // f16 or bf16 where the bytes depend on it
  float scale_factor = 1;              // a power of two by which scales are multiplied (NVFP4)

  int64_t group_size() const { return format.group_size == 0 ? cols : format.group_size; }
  int64_t groups() const { return cols / group_size(); }
};

using PackedParts = std::span<const std::span<std::byte>>;
using PackedViews = std::span<const std::span<const std::byte>>;

struct PackLayout {
  std::string_view name;  // "marlin"
  /// Values of --tile; the first is taken where none is given, unless `needs_tile`.
  std::span<const std::string_view> tiles;
  bool needs_tile = false;
  bool permutes_bias = false;          // whether biases have Marlin's order
  bool has_activations = false;        // whether a type of activations may be chosen
  std::string_view remark = {};        // for who packs, empty: none
  std::string_view act_order = {};     // the same where inputs are sorted by group
  std::string_view other_scales = {};  // and where scales are no bf16
  /// Codes: pack.format, pack.group_size, pack.act_order, layout.shape. Any shape may be given.
  Status (*check)(const PackedShape& shape) = nullptr;
  /// The tensors of one matrix, without bytes; suffixes follow the module's name. The shape has
  /// been checked, here and below.
  std::vector<ExportedTensor> (*describe)(const PackedShape& shape) = nullptr;
  /// Finds what all matrices of a stack share (PackedShape::scale_factor); nullptr: nothing is.
  /// Codes: those of src/foreign_layouts.
  Status (*complete)(PackedShape& shape, std::span<const Matrix> matrices) = nullptr;
  /// Fills the tensors of describe(), in its order. Codes: those of src/foreign_layouts, and
  /// pack.scale_range where a scale would not come back.
  Status (*pack)(const MatrixView& matrix, const PackedShape& shape, PackedParts to) = nullptr;
  /// The matrix, but for its factor. Codes: those of src/foreign_layouts.
  Result<Matrix> (*unpack)(const PackedShape& shape, PackedViews from) = nullptr;
};

std::span<const PackLayout* const> all_pack_layouts();
std::vector<std::string> pack_layout_names();

/// nullptr when there is none of that name.
const PackLayout* find_pack_layout(std::string_view name);

}  // namespace subbyte
