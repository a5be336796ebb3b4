// Quantizers of weights: from floats [N, K] to the tensors of a canonical matrix.

#include <algorithm>
#include <array>

#include "codebook/kbit_codes.h"
#include "device/conversions.h"
#include "kernels/quantized_blocks.h"
#include "matrix/codebook.h"
#include "quantize/fp8.h"
#include "quantize/kbit.h"
#include "quantize/loss.h"
#include "quantize/mxfp4.h"
#include "quantize/nf4.h"
#include "quantize/nvfp4.h"
#include "quantize/quantize_rows.h"
#include "quantize/round_to_nearest.h"
#include "torch_operators/gpu.h"
#include "torch_operators/operators.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

/// The weights to quantize, rows of which a quantizer reads as floats.
struct Weights {
  explicit Weights(Call& call) : tensor(call.tensor()) {}

  int64_t rows() const { return tensor.size(0); }
  int64_t cols() const { return tensor.size(1); }
  RowReader reader() const {
    return [this, &host = tensor.host()](int64_t row, float* out) {
      const int64_t width = info(tensor.format()).bits / 8;
      load_numbers(out, host.data() + row * cols() * width, cols(), tensor.format());
    };
  }

  Tensor tensor;
};

/// codes, scales and, where there are any, zero points; where `factor`, the tensor's.
Status add(Call& call, const MatrixView& view, const Tensor& like, bool factor) {
  const double value = view.tensor_scale;
  std::vector<std::span<const std::byte>> parts = {view.codes, view.scales};
  if (view.format.zero != Zero::kNone) parts.push_back(view.zeros);
  if (factor) parts.push_back(std::as_bytes(std::span(&value, 1)));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    SUBBYTE_TRY(Tensor to, call.result(i, like.host().device()));
    std::ranges::copy(parts[i], to.data());
    SUBBYTE_CHECK(call.add(std::move(to).to_device_of(like)));
  }
  return {};
}

/// Says whether a scale of a GPU is so small that f16 may leave little of the weights. In a
/// capture, which lets nothing be waited for, nobody looks.
bool has_small_scales(const Tensor& scales) {
  constexpr uint16_t kSmall = 64;  // as the code of f16, 2^-18
  if (scales.dtype() != numbers().f16 || is_captured(scales)) return false;
  return std::ranges::any_of(scales.host().span<const uint16_t>(),
                             [](uint16_t scale) { return scale < kSmall; });
}

/// Quantizes weights that lie on a GPU there. False: nothing was done, as they do not, or as the
/// host has to say what is wrong with them.
Result<bool> quantize_there(const Weights& weights, const WeightRounding& how, Call& call) {
  const Tensor& like = weights.tensor;
  MatrixView view;
  view.format = how.format;
  view.rows = weights.rows();
  view.cols = weights.cols();
  if (like.on_cpu() || view.rows < 1 || view.cols < 1 || view.format.group_size < 0) return false;
  if (how.rule != WeightRule::kFp8 && view.cols % view.group_size() != 0) return false;
  SUBBYTE_TRY(Tensor codes, call.result(0));
  SUBBYTE_TRY(Tensor scales, call.result(1));
  cuda::WeightBuffers buffers;
  buffers.weights = like.data();
  buffers.element = element_of(like.format());
  buffers.rows = view.rows;
  buffers.cols = view.cols;
  buffers.codes = codes.data<uint8_t>();
  buffers.scales = scales.data<uint8_t>();
  std::optional<Tensor> zeros, factor;
  if (view.format.zero != Zero::kNone) {
    SUBBYTE_TRY(zeros, call.result(2));
    buffers.zeros = zeros->data<uint8_t>();
  }
  if (how.rule == WeightRule::kNvfp4 || how.rule == WeightRule::kNfl) {
    SUBBYTE_TRY(factor, call.result(2));
    buffers.factor = factor->data<double>();
  }
  SUBBYTE_TRY(const device::Gpu gpu, gpu_of(like));
  SUBBYTE_TRY(const bool is_done, device::quantize_weights(how, buffers, gpu));
  if (!is_done || has_small_scales(scales)) return false;
  SUBBYTE_CHECK(call.add(std::move(codes)));
  SUBBYTE_CHECK(call.add(std::move(scales)));
  if (zeros) SUBBYTE_CHECK(call.add(std::move(*zeros)));
  if (factor) SUBBYTE_CHECK(call.add(std::move(*factor)));
  return true;
}

/// Refuses what f16, which scales are in, leaves little of. Other quantizers have scales or a
/// factor that reach as far as floats do.
Result<Matrix> quantize_integers(const Weights& weights, int64_t group_size, int bits,
                                 bool symmetric) {
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  const RowReader reader = weights.reader();
  SUBBYTE_TRY(Matrix matrix, symmetric
                                 ? quantize_symmetric(weights.rows(), weights.cols(), group_size,
                                                      bits, reader, machine.executor())
                                 : quantize_min_max(weights.rows(), weights.cols(), group_size,
                                                    bits, reader, machine.executor()));
  SUBBYTE_CHECK(check_loss(matrix.view, reader, machine.executor()));
  return matrix;
}

Status quantize_int(Call& call) {
  const Weights weights(call);
  const int64_t bits = call.integer();
  const int64_t group_size = call.integer();
  const bool symmetric = call.boolean();
  SUBBYTE_CHECK(call.check());
  const std::string element = (symmetric ? "i" : "u") + std::to_string(bits);
  const Zero zero = symmetric ? Zero::kNone : bits == 8 ? Zero::kU16 : Zero::kU8;
  SUBBYTE_TRY(const bool is_done,
              quantize_there(weights,
                             {symmetric ? WeightRule::kSymmetric : WeightRule::kMinMax,
                              {*find_format(element), Format::kF16, zero, group_size}},
                             call));
  if (!is_done) {
    SUBBYTE_TRY(const Matrix matrix,
                quantize_integers(weights, group_size, static_cast<int>(bits), symmetric));
    SUBBYTE_CHECK(add(call, matrix.view, weights.tensor, false));
  }
  if (!symmetric) return {};
  SUBBYTE_TRY(Tensor none, call.result(2));  // one number of results for both
  return call.add(std::move(none));
}

Status quantize_mxfp4_op(Call& call) {
  const Weights weights(call);
  const std::string rule = call.text();
  SUBBYTE_CHECK(call.check());
  WeightRounding how = {WeightRule::kMxfp4, {Format::kE2M1, Format::kE8M0, Zero::kNone, 32}};
  how.searches = rule == "search";
  if (!how.searches) {
    SUBBYTE_TRY(how.scale_rule, find_scale_rule(rule));
  }
  SUBBYTE_TRY(const bool is_done, quantize_there(weights, how, call));
  if (is_done) return {};
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_TRY(
      const Matrix matrix,
      how.searches
          ? quantize_mxfp4(weights.rows(), weights.cols(), weights.reader(), machine.executor())
          : quantize_mxfp4(weights.rows(), weights.cols(), how.scale_rule, Rounding::kNearestEven,
                           weights.reader(), machine.executor()));
  return add(call, matrix.view, weights.tensor, false);
}

Status quantize_nvfp4_op(Call& call) {
  const Weights weights(call);
  Nvfp4Options options;
  options.four_over_six = call.boolean();
  SUBBYTE_CHECK(call.check());
  WeightRounding how = {WeightRule::kNvfp4, {Format::kE2M1, Format::kE4M3, Zero::kNone, 16}};
  how.searches = options.four_over_six;
  SUBBYTE_TRY(const bool is_done, quantize_there(weights, how, call));
  if (is_done) return {};
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_TRY(const Matrix matrix, quantize_nvfp4(weights.rows(), weights.cols(), options,
                                                  weights.reader(), machine.executor()));
  return add(call, matrix.view, weights.tensor, true);
}

Status quantize_nf4_op(Call& call) {
  const Weights weights(call);
  const int64_t block = call.integer();
  SUBBYTE_CHECK(call.check());
  SUBBYTE_TRY(
      const bool is_done,
      quantize_there(weights, {WeightRule::kNf4, {Format::kNF4, Format::kF32, Zero::kNone, block}},
                     call));
  if (is_done) return {};
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_TRY(const Matrix matrix, quantize_nf4(weights.rows(), weights.cols(), block,
                                                weights.reader(), machine.executor()));
  return add(call, matrix.view, weights.tensor, false);
}

Status quantize_nfl_op(Call& call) {
  const Weights weights(call);
  KbitOptions options;
  const int64_t bits = call.integer();
  const std::optional<Tensor> codebook = call.optional_tensor();
  SUBBYTE_CHECK(call.check());
  options.bits = static_cast<int>(bits);
  if (codebook) {
    options.codebook = codebook->host().span<const float>();
  }
  const Format element = kbit_element(options.bits);
  WeightRounding how = {WeightRule::kNfl, {element, Format::kE4M4, Zero::kNone, kKbitBlock}};
  const std::vector<float> values = default_codebook(element);
  SUBBYTE_TRY(how.thresholds, codebook::kbit_thresholds(
                                  codebook ? options.codebook : std::span(values), options.bits));
  SUBBYTE_TRY(const bool is_done, quantize_there(weights, how, call));
  if (is_done) return {};
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  const int64_t rows = weights.rows();
  options.scales.factor =
      kbit_factor(largest_magnitude(rows, weights.cols(), weights.reader(), machine.executor()));
  SUBBYTE_TRY(const Matrix matrix,
              quantize_kbit(rows, weights.cols(), options, weights.reader(), machine.executor()));
  return add(call, matrix.view, weights.tensor, true);
}

Status quantize_fp8_op(Call& call) {
  const Weights weights(call);
  SUBBYTE_CHECK(call.check());
  SUBBYTE_TRY(const bool is_done,
              quantize_there(
                  weights,
                  {WeightRule::kFp8, {Format::kE4M3, Format::kF32, Zero::kNone, kFp8Block}}, call));
  if (is_done) return {};
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_TRY(const Matrix matrix,
              quantize_fp8(weights.rows(), weights.cols(), weights.reader(), machine.executor()));
  return add(call, matrix.view, weights.tensor, false);
}

#define SUBBYTE_WEIGHTS "Tensor weights{floats [N=, K=]}"

constexpr Operator kOperators[] = {
    {"quantize_int(" SUBBYTE_WEIGHTS ", int bits{2..8}, int group_size, bool symmetric=False) -> "
     "(Tensor{u8 [N, per(K * bits, 8)]}, Tensor{f16 [N, groups(K, group_size)]}, "
     "Tensor{u8|u16 [N, 0 if symmetric else groups(K, group_size)] @ bits // 8 * (1 - symmetric)})",
     quantize_int},
    {"quantize_mxfp4(" SUBBYTE_WEIGHTS ", str rule=\"ceil\") -> "
     "(Tensor{u8 [N, per(K, 2)]}, Tensor{u8 [N, per(K, 32)]})",
     quantize_mxfp4_op},
    {"quantize_nvfp4(" SUBBYTE_WEIGHTS ", bool four_over_six=True) -> "
     "(Tensor{u8 [N, per(K, 2)]}, Tensor{u8 [N, per(K, 16)]}, Tensor{f64 []})",
     quantize_nvfp4_op},
    {"quantize_nf4(" SUBBYTE_WEIGHTS ", int block=64) -> "
     "(Tensor{u8 [N, per(K, 2)]}, Tensor{f32 [N, groups(K, block)]})",
     quantize_nf4_op},
    {"quantize_nfl(" SUBBYTE_WEIGHTS ", int bits{2..5}, Tensor? codebook{anywhere f32}=None) -> "
     "(Tensor{u8 [N, per(K * bits, 8)]}, Tensor{u8 [N, per(K, 32)]}, Tensor{f64 []})",
     quantize_nfl_op},
    {"quantize_fp8(" SUBBYTE_WEIGHTS ") -> "
     "(Tensor{u8 [N, K]}, Tensor{f32 [N, per(K, 128)]})",
     quantize_fp8_op},
};

}  // namespace

std::span<const Operator> quantize_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
