#include "quantize/quantizers.h"

#include "formats/rotation.h"
#include "quantize/fp8.h"
#include "quantize/kbit.h"
#include "quantize/mxfp4.h"
#include "quantize/nf4.h"
#include "quantize/nvfp4.h"
#include "quantize/round_to_nearest.h"
#include "quantize/vq.h"

namespace subbyte {

WeightFormat integer_format(const QuantizeForm& form) {
  const int step = form.bits - 2;
  const Format first = form.symmetric ? Format::kI2 : Format::kU2;
  const Zero zero = form.bits == 8 ? Zero::kU16 : Zero::kU8;
  return {static_cast<Format>(static_cast<int>(first) + step), Format::kF16,
          form.symmetric ? Zero::kNone : zero, form.group_size};
}

namespace {

Result<Matrix> to_integers(const QuantizeInput& input, const QuantizeForm& form, int least_zero,
                           Executor& pool) {
  const auto& [rows, cols, read_row, largest] = input;
  if (form.symmetric) {
    return quantize_symmetric(rows, cols, form.group_size, form.bits, read_row, pool);
  }
  return quantize_min_max(rows, cols, form.group_size, form.bits, read_row, pool, least_zero);
}

}  // namespace

Result<Matrix> to_integers(const QuantizeInput& input, const QuantizeForm& form, Executor& pool) {
  return to_integers(input, form, 0, pool);
}

Result<Matrix> to_integers_from_1(const QuantizeInput& input, const QuantizeForm& form,
                                  Executor& pool) {
  return to_integers(input, form, 1, pool);
}

WeightFormat mxfp4_format(const QuantizeForm& form) {
  return {Format::kE2M1, Format::kE8M0, Zero::kNone, form.group_size};
}

Result<Matrix> to_mxfp4(const QuantizeInput& input, const QuantizeForm&, Executor& pool) {
  return quantize_mxfp4(input.rows, input.cols, input.read_row, pool);
}

WeightFormat nvfp4_format(const QuantizeForm& form) {
  return {Format::kE2M1, Format::kE4M3, Zero::kNone, form.group_size};
}

Result<Matrix> to_nvfp4_divided(const QuantizeInput& input, const QuantizeForm&, Executor& pool) {
  return quantize_nvfp4(input.rows, input.cols, {input.largest, TensorFactor::kDivides},
                        input.read_row, pool);
}

Result<Matrix> to_nvfp4_multiplied(const QuantizeInput& input, const QuantizeForm&,
                                   Executor& pool) {
  return quantize_nvfp4(input.rows, input.cols, {input.largest, TensorFactor::kMultiplies},
                        input.read_row, pool);
}

WeightFormat nf4_format(const QuantizeForm& form) {
  return {Format::kNF4, Format::kF32, Zero::kNone, form.group_size};
}

Result<Matrix> to_nf4(const QuantizeInput& input, const QuantizeForm& form, Executor& pool) {
  return quantize_nf4(input.rows, input.cols, form.group_size, input.read_row, pool);
}

WeightFormat fp8_format(const QuantizeForm& form) {
  return {Format::kE4M3, Format::kF32, Zero::kNone, form.group_size};
}

Result<Matrix> to_fp8(const QuantizeInput& input, const QuantizeForm&, Executor& pool) {
  return quantize_fp8(input.rows, input.cols, input.read_row, pool);
}

namespace {

/// Of kbit and vq.
Format kbit_scale(const QuantizeForm& form) {
  return form.scale == Format::kNone ? Format::kE4M4 : form.scale;
}

}  // namespace

WeightFormat kbit_format(const QuantizeForm& form) {
  return {kbit_element(form.bits), kbit_scale(form), Zero::kNone, kKbitBlock};
}

Result<Matrix> to_kbit(const QuantizeInput& input, const QuantizeForm& form, Executor& pool) {
  KbitOptions options;
  options.bits = form.bits;
  options.rule = KbitRule::kLeastError;
  options.scales = {kbit_scale(form), kbit_factor(input.largest)};
  return quantize_kbit(input.rows, input.cols, options, input.read_row, pool);
}

WeightFormat vq_format(const QuantizeForm& form) {
  return {vq_element(form.bits), kbit_scale(form), Zero::kNone, kKbitBlock};
}

Result<Matrix> to_vq(const QuantizeInput& input, const QuantizeForm& form, Executor& pool) {
  VqOptions options;
  options.bits = form.bits;
  options.rotation = rotation_of(input.cols, kLargestRotation);
  options.scales = {kbit_scale(form), kbit_factor(input.largest)};
  return quantize_vq(input.rows, input.cols, options, input.read_row, pool);
}

}  // namespace subbyte
