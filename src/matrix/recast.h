#pragma once
// The same weights in another format: other types of scales and zero points, other groups. Nothing
// is rounded unless it is asked for, so that weight_at() gives the same bits before and after; what
// cannot be recast is refused, saying where and why.
//
//   symmetric integers     iN                  <->  uN with zero points 2^(N-1)
//   type of the scales     f32 scales that are numbers of f16, E8M0 as E4M3 and a factor, ...
//   group size             smaller: scales repeated; larger: where neighbours are equal
//   act-order              inputs back in their order, where groups still lie in runs of 8 or more
//   factor of the tensor   folded into the scales, or as a float that multiplies or divides

#include <optional>

#include "base/status.h"
#include "matrix/matrix.h"

namespace subbyte {

/// How a flavour stores MatrixView::tensor_scale: not at all, or in a float.
enum class TensorFactor : uint8_t { kNone, kMultiplies, kDivides };

/// Format that a matrix is to get.
struct TargetFormat {
  WeightFormat format;
  TensorFactor factor = TensorFactor::kNone;
  bool act_order = false;  // whether inputs may be sorted by group
  /// The largest |scale| of all matrices that shall have one factor, where scales become others
  /// and a factor; less than that of the matrix: it has one of its own.
  double largest_scale = 0;

  bool operator==(const TargetFormat&) const = default;
};

/// kRounded lets scales and the tensor's factor be rounded to nearest even; all else stays exact.
enum class Rounded : uint8_t { kNever, kScales };

/// `matrix` as `target` says. Codes: those of the functions below, recast.element when the codes
/// themselves would have to change, recast.rotation when they are rotated otherwise.
Result<Matrix> recast(Matrix matrix, const TargetFormat& target, Rounded rounded = Rounded::kNever);

/// Undoes act-order; groups become as small as the runs of inputs that share one. Code
/// recast.act_order when these are not multiples of 8.
Result<Matrix> with_inputs_in_order(Matrix matrix);

/// uN with zero points, or iN without. Code recast.zero_point when one is not 2^(N-1), and where
/// float zero points (offsets) would have to become others or the others offsets.
Result<Matrix> with_zero_rule(Matrix matrix, Zero zero);

/// Inputs that share a scale, 0 for the whole row. Code recast.group_size when neither size
/// divides the other, or when groups that would become one differ.
Result<Matrix> with_group_size(Matrix matrix, int64_t group_size);

/// Scales of `scale`, and the factor where `factor` puts it. Codes recast.scale when a scale is no
/// number of that type, recast.factor when the factor is no float, or none was to be left, or it
/// would have to go into offsets.
Result<Matrix> with_scales(Matrix matrix, Format scale, TensorFactor factor,
                           Rounded rounded = Rounded::kNever, double largest_scale = 0);

/// The largest |scale|, without the factor of the tensor; 0 for dense matrices.
double largest_scale(const MatrixView& matrix);

/// The format that holds matrices of both to the bit, with `cols` inputs: groups that divide both,
/// the wider scales, zero points where one has them. nullopt where their codes or kinds of scales
/// differ.
std::optional<WeightFormat> common_format(const WeightFormat& a, const WeightFormat& b,
                                          int64_t cols);

/// Says whether codes lie around a zero of their own: everything but uN with some zero point that
/// is not 2^(N-1).
bool is_symmetric(const MatrixView& matrix);

/// u4 for i4 and so on, i4 for u4; other elements stay what they are.
Format unsigned_element(Format element);
Format signed_element(Format element);

}  // namespace subbyte
