// Quantizers of weights: from floats [N, K] to the tensors of a canonical matrix.

#include <algorithm>
#include <array>

#include "bitsandbytes/kbit_codes.h"
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
  explicit Weights(Arguments& arguments) : tensor(arguments.packed_tensor("weights")) {}

  Status check() const {
    SUBBYTE_CHECK(check_floats(tensor));
    return check_dim(tensor, 2);
  }
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

/// Bytes are u8 whatever they mean: not every torch has a type for E8M0, and none for E4M4.
int32_t dtype_of_scales(const WeightFormat& format) {
  return info(format.scale).bits == 8 ? numbers().u8 : dtype_of(format.scale);
}

int32_t dtype_of_zeros(const WeightFormat& format) {
  return format.zero == Zero::kU16 ? numbers().u16 : numbers().u8;
}

Tensor tensor_from(std::span<const std::byte> bytes, std::span<const int64_t> sizes, int32_t dtype,
                   const Tensor& like) {
  Tensor tensor = Tensor::empty(sizes, dtype, like.host());
  std::ranges::copy(bytes, tensor.data());
  return std::move(tensor).to_device_of(like);
}

/// codes, scales and, where there are any, zero points; where `factor`, the tensor's.
void add(Results& results, const MatrixView& view, const Tensor& like, bool factor) {
  const auto sizes = [&](int64_t cols) { return std::array{view.rows, cols}; };
  const Numbers& n = numbers();
  results.add(tensor_from(view.codes, sizes(view.row_bytes()), n.u8, like));
  results.add(tensor_from(view.scales, sizes(view.groups()), dtype_of_scales(view.format), like));
  if (view.format.zero != Zero::kNone) {
    results.add(tensor_from(view.zeros, sizes(view.groups()), dtype_of_zeros(view.format), like));
  }
  if (factor) {
    const double value = view.tensor_scale;
    results.add(tensor_from(std::as_bytes(std::span(&value, 1)), {}, n.f64, like));
  }
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
Result<bool> quantize_there(const Weights& weights, const WeightQuantization& how,
                            Results& results) {
  const Tensor& like = weights.tensor;
  MatrixView view;
  view.format = how.format;
  view.rows = weights.rows();
  view.cols = weights.cols();
  if (like.on_cpu() || view.rows < 1 || view.cols < 1 || view.format.group_size < 0) return false;
  if (how.rule != WeightRule::kFp8 && view.cols % view.group_size() != 0) return false;
  const auto sizes = [&](int64_t cols) { return std::array{view.rows, cols}; };
  const Numbers& n = numbers();
  Tensor codes = Tensor::empty(sizes(view.row_bytes()), n.u8, like);
  Tensor scales = Tensor::empty(sizes(view.groups()), dtype_of_scales(view.format), like);
  cuda::WeightBuffers buffers;
  buffers.weights = like.data();
  buffers.element = element_of(like.format());
  buffers.rows = view.rows;
  buffers.cols = view.cols;
  buffers.codes = codes.data<uint8_t>();
  buffers.scales = scales.data<uint8_t>();
  std::optional<Tensor> zeros, factor;
  if (view.format.zero != Zero::kNone) {
    zeros.emplace(Tensor::empty(sizes(view.groups()), dtype_of_zeros(view.format), like));
    buffers.zeros = zeros->data<uint8_t>();
  }
  if (how.rule == WeightRule::kNvfp4 || how.rule == WeightRule::kNfl) {
    factor.emplace(Tensor::empty({}, n.f64, like));
    buffers.factor = factor->data<double>();
  }
  SUBBYTE_TRY(const device::Gpu gpu, gpu_of(like));
  SUBBYTE_TRY(const bool is_done, device::quantize_weights(how, buffers, gpu));
  if (!is_done || has_small_scales(scales)) return false;
  results.add(std::move(codes));
  results.add(std::move(scales));
  if (zeros) results.add(std::move(*zeros));
  if (factor) results.add(std::move(*factor));
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

Status quantize_int(Arguments& arguments, Results& results) {
  const Weights weights(arguments);
  const int64_t bits = arguments.integer();
  const int64_t group_size = arguments.integer();
  const bool symmetric = arguments.boolean();
  SUBBYTE_CHECK(weights.check());
  if (bits < 2 || bits > 8) return refuse("bits", "2 to 8", std::to_string(bits));
  const std::string element = (symmetric ? "i" : "u") + std::to_string(bits);
  const Zero zero = symmetric ? Zero::kNone : bits == 8 ? Zero::kU16 : Zero::kU8;
  SUBBYTE_TRY(const bool is_done,
              quantize_there(weights,
                             {symmetric ? WeightRule::kSymmetric : WeightRule::kMinMax,
                              {*find_format(element), Format::kF16, zero, group_size}},
                             results));
  if (!is_done) {
    SUBBYTE_TRY(const Matrix matrix,
                quantize_integers(weights, group_size, static_cast<int>(bits), symmetric));
    add(results, matrix.view, weights.tensor, false);
  }
  if (symmetric) {  // one number of results for both: no zero points are an empty tensor
    results.add(
        Tensor::empty(std::array{weights.rows(), int64_t{0}}, numbers().u8, weights.tensor));
  }
  return {};
}

Status quantize_mxfp4_op(Arguments& arguments, Results& results) {
  const Weights weights(arguments);
  const std::string rule = arguments.text();
  SUBBYTE_CHECK(weights.check());
  WeightQuantization how = {WeightRule::kMxfp4, {Format::kE2M1, Format::kE8M0, Zero::kNone, 32}};
  how.searches = rule == "search";
  if (!how.searches) {
    SUBBYTE_TRY(how.scale_rule, find_scale_rule(rule));
  }
  SUBBYTE_TRY(const bool is_done, quantize_there(weights, how, results));
  if (is_done) return {};
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_TRY(
      const Matrix matrix,
      how.searches
          ? quantize_mxfp4(weights.rows(), weights.cols(), weights.reader(), machine.executor())
          : quantize_mxfp4(weights.rows(), weights.cols(), how.scale_rule, Rounding::kNearestEven,
                           weights.reader(), machine.executor()));
  add(results, matrix.view, weights.tensor, false);
  return {};
}

Status quantize_nvfp4_op(Arguments& arguments, Results& results) {
  const Weights weights(arguments);
  Nvfp4Options options;
  options.four_over_six = arguments.boolean();
  SUBBYTE_CHECK(weights.check());
  WeightQuantization how = {WeightRule::kNvfp4, {Format::kE2M1, Format::kE4M3, Zero::kNone, 16}};
  how.searches = options.four_over_six;
  SUBBYTE_TRY(const bool is_done, quantize_there(weights, how, results));
  if (is_done) return {};
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_TRY(const Matrix matrix, quantize_nvfp4(weights.rows(), weights.cols(), options,
                                                  weights.reader(), machine.executor()));
  add(results, matrix.view, weights.tensor, true);
  return {};
}

Status quantize_nf4_op(Arguments& arguments, Results& results) {
  const Weights weights(arguments);
  const int64_t block = arguments.integer();
  SUBBYTE_CHECK(weights.check());
  SUBBYTE_TRY(
      const bool is_done,
      quantize_there(weights, {WeightRule::kNf4, {Format::kNF4, Format::kF32, Zero::kNone, block}},
                     results));
  if (is_done) return {};
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_TRY(const Matrix matrix, quantize_nf4(weights.rows(), weights.cols(), block,
                                                weights.reader(), machine.executor()));
  add(results, matrix.view, weights.tensor, false);
  return {};
}

Status quantize_nfl_op(Arguments& arguments, Results& results) {
  const Weights weights(arguments);
  KbitOptions options;
  const int64_t bits = arguments.integer();
  const std::optional<Tensor> codebook = arguments.optional_tensor("codebook");
  SUBBYTE_CHECK(weights.check());
  if (bits < 2 || bits > 5) return refuse("bits", "2 to 5", std::to_string(bits));
  options.bits = static_cast<int>(bits);
  if (codebook) {
    SUBBYTE_CHECK(check_dtype(*codebook, {numbers().f32}));
    options.codebook = codebook->host().span<const float>();
  }
  const Format element = kbit_element(options.bits);
  WeightQuantization how = {WeightRule::kNfl, {element, Format::kE4M4, Zero::kNone, kKbitBlock}};
  const std::vector<float> values = default_codebook(element);
  SUBBYTE_TRY(how.thresholds, bitsandbytes::kbit_thresholds(
                                  codebook ? options.codebook : std::span(values), options.bits));
  SUBBYTE_TRY(const bool is_done, quantize_there(weights, how, results));
  if (is_done) return {};
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  const int64_t rows = weights.rows();
  options.scales.factor =
      kbit_factor(largest_magnitude(rows, weights.cols(), weights.reader(), machine.executor()));
  SUBBYTE_TRY(const Matrix matrix,
              quantize_kbit(rows, weights.cols(), options, weights.reader(), machine.executor()));
  add(results, matrix.view, weights.tensor, true);
  return {};
}

Status quantize_fp8_op(Arguments& arguments, Results& results) {
  const Weights weights(arguments);
  SUBBYTE_CHECK(weights.check());
  SUBBYTE_TRY(
      const bool is_done,
      quantize_there(weights,
                     {WeightRule::kFp8, {Format::kE4M3, Format::kF32, Zero::kNone, kFp8Block}},
                     results));
  if (is_done) return {};
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_TRY(const Matrix matrix,
              quantize_fp8(weights.rows(), weights.cols(), weights.reader(), machine.executor()));
  add(results, matrix.view, weights.tensor, false);
  return {};
}

constexpr Operator kOperators[] = {
    {"quantize_int(Tensor weights, int bits, int group_size, bool symmetric=False) -> "
     "(Tensor, Tensor, Tensor)",
     kernel<quantize_int>, kernel<quantize_int>},
    {"quantize_mxfp4(Tensor weights, str rule=\"ceil\") -> (Tensor, Tensor)",
     kernel<quantize_mxfp4_op>, kernel<quantize_mxfp4_op>},
    {"quantize_nvfp4(Tensor weights, bool four_over_six=True) -> (Tensor, Tensor, Tensor)",
     kernel<quantize_nvfp4_op>, kernel<quantize_nvfp4_op>},
    {"quantize_nf4(Tensor weights, int block=64) -> (Tensor, Tensor)", kernel<quantize_nf4_op>,
     kernel<quantize_nf4_op>},
    {"quantize_nfl(Tensor weights, int bits, Tensor? codebook=None) -> (Tensor, Tensor, Tensor)",
     kernel<quantize_nfl_op>, kernel<quantize_nfl_op>},
    {"quantize_fp8(Tensor weights) -> (Tensor, Tensor)", kernel<quantize_fp8_op>,
     kernel<quantize_fp8_op>},
};

}  // namespace

std::span<const Operator> quantize_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
