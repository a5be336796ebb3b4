#pragma once
// Weights as operators get them: tensors and words for their format, "u4 g128 scale f16 zero u8",
// as to_string(WeightFormat) writes it.

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "matrix/matrix.h"
#include "torch_operators/operators.h"

namespace subbyte::torch_operators {

/// Words for a format as they were read: the format, and where rows end within a byte, so that
/// their bytes do not tell, how many columns they have: "u4 g21 scale f16 zero u8 cols 21".
struct WordedFormat {
  WeightFormat format;
  int64_t cols = 0;  // 0: not said
};
/// The inverse of to_string(WeightFormat), but for the columns; any other name of a format is its
/// usual form. Codes torch.argument, quantize.format.
Result<WordedFormat> parse_format(std::string_view text);

/// K of codes with rows of `row_size` elements: what the words say, or as many codes as there are.
/// Code torch.argument where several would have as many bytes and none has whole ones.
Result<int64_t> cols_of(const WordedFormat& worded, int64_t row_size);

/// The tensors of a canonical matrix (matrix/matrix.h), all contiguous and on one device.
///
///   codes         u8 [N, bytes of a row]; dense: f32, f16 or bf16 [N, K]
///   scales        [N, groups] of their type; u8 does for e8m0, e4m3 and e4m4
///   zeros         u8 or u16 [N, groups]; offsets f16, bf16 or f32
///   tensor_scale  f32 or f64, one number, which may be on the CPU
///   codebook      f32 [2^bits], of nfl2 to nfl5
///   input_order   i32 [K], of act-order
struct WeightTensors {
  /// Reads them from the stack in this order, after codes, scales and zeros the format.
  explicit WeightTensors(Call& call);

  Tensor codes;
  std::optional<Tensor> scales;
  std::optional<Tensor> zeros;
  std::string format;
  std::optional<Tensor> tensor_scale;
  std::optional<Tensor> codebook;
  std::optional<Tensor> input_order;

  /// All of them, for make_ready().
  std::array<const Tensor*, 6> sources() const;
};

/// Checks the call, which has these tensors and so many inputs K, or as many as codes and format
/// say; a view of the tensors. Values of codebook and input_order are checked where they are on the
/// CPU; tensor_scale is fetched from a GPU. Code argument.
Result<MatrixView> matrix_of(const WeightTensors& tensors, Call& call,
                             std::optional<int64_t> cols = std::nullopt);

}  // namespace subbyte::torch_operators
