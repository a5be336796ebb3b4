// Quantizers of weights: from floats [N, K] to the tensors of a canonical matrix.

#include <algorithm>
#include <array>

#include "kernels/quantized_blocks.h"
#include "quantize/fp8.h"
#include "quantize/kbit.h"
#include "quantize/mxfp4.h"
#include "quantize/nf4.h"
#include "quantize/nvfp4.h"
#include "quantize/quantize_rows.h"
#include "quantize/round_to_nearest.h"
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
    return [this](int64_t row, float* out) {
      const int64_t width = info(tensor.format()).bits / 8;
      load_numbers(out, tensor.data() + row * cols() * width, cols(), tensor.format());
    };
  }

  Tensor tensor;
};

Tensor tensor_from(std::span<const std::byte> bytes, std::span<const int64_t> sizes, int32_t dtype,
                   const Tensor& like) {
  Tensor tensor = Tensor::empty(sizes, dtype, like);
  std::ranges::copy(bytes, tensor.data());
  return tensor;
}

/// codes, scales and, where `zeros`, zero points; where `factor`, the tensor's.
void add(Results& results, const MatrixView& view, const Tensor& like, bool zeros, bool factor) {
  const auto sizes = [&](int64_t cols) { return std::array{view.rows, cols}; };
  const Numbers& n = numbers();
  results.add(tensor_from(view.codes, sizes(view.row_bytes()), n.u8, like));
  // Bytes are u8 whatever they mean: not every torch has a type for E8M0, and none for E4M4.
  const bool bytes = info(view.format.scale).bits == 8;
  results.add(tensor_from(view.scales, sizes(view.groups()),
                          bytes ? n.u8 : dtype_of(view.format.scale), like));
  if (zeros) {
    const int32_t dtype = view.format.zero == Zero::kU16 ? n.u16 : n.u8;
    results.add(tensor_from(view.zeros, sizes(view.groups()), dtype, like));
  }
  if (factor) {
    const double value = view.tensor_scale;
    results.add(tensor_from(std::as_bytes(std::span(&value, 1)), {}, n.f64, like));
  }
}

Status quantize_int(Arguments& arguments, Results& results) {
  const Weights weights(arguments);
  const int64_t bits = arguments.integer();
  const int64_t group_size = arguments.integer();
  const bool symmetric = arguments.boolean();
  SUBBYTE_CHECK(weights.check());
  if (bits < 2 || bits > 8) return refuse("bits", "2 to 8", std::to_string(bits));
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  const auto quantize = [&] {
    return symmetric
               ? quantize_symmetric(weights.rows(), weights.cols(), group_size,
                                    static_cast<int>(bits), weights.reader(), machine.executor())
               : quantize_min_max(weights.rows(), weights.cols(), group_size,
                                  static_cast<int>(bits), weights.reader(), machine.executor());
  };
  SUBBYTE_TRY(const Matrix matrix, quantize());
  add(results, matrix.view, weights.tensor, !symmetric, false);
  if (symmetric) {  // one number of results for both: no zero points are an empty tensor
    results.add(
        Tensor::empty(std::array{matrix.view.rows, int64_t{0}}, numbers().u8, weights.tensor));
  }
  return {};
}

Status quantize_mxfp4_op(Arguments& arguments, Results& results) {
  const Weights weights(arguments);
  const std::string rule = arguments.text();
  SUBBYTE_CHECK(weights.check());
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  const auto quantize = [&]() -> Result<Matrix> {
    if (rule == "search") {
      return quantize_mxfp4(weights.rows(), weights.cols(), weights.reader(), machine.executor());
    }
    SUBBYTE_TRY(const ScaleRule known, find_scale_rule(rule));
    return quantize_mxfp4(weights.rows(), weights.cols(), known, Rounding::kNearestEven,
                          weights.reader(), machine.executor());
  };
  SUBBYTE_TRY(const Matrix matrix, quantize());
  add(results, matrix.view, weights.tensor, false, false);
  return {};
}

Status quantize_nvfp4_op(Arguments& arguments, Results& results) {
  const Weights weights(arguments);
  Nvfp4Options options;
  options.four_over_six = arguments.boolean();
  SUBBYTE_CHECK(weights.check());
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_TRY(const Matrix matrix, quantize_nvfp4(weights.rows(), weights.cols(), options,
                                                  weights.reader(), machine.executor()));
  add(results, matrix.view, weights.tensor, false, true);
  return {};
}

Status quantize_nf4_op(Arguments& arguments, Results& results) {
  const Weights weights(arguments);
  const int64_t block = arguments.integer();
  SUBBYTE_CHECK(weights.check());
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_TRY(const Matrix matrix, quantize_nf4(weights.rows(), weights.cols(), block,
                                                weights.reader(), machine.executor()));
  add(results, matrix.view, weights.tensor, false, false);
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
    options.codebook = codebook->span<const float>();
  }
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  const int64_t rows = weights.rows();
  options.scales.factor =
      kbit_factor(largest_magnitude(rows, weights.cols(), weights.reader(), machine.executor()));
  SUBBYTE_TRY(const Matrix matrix,
              quantize_kbit(rows, weights.cols(), options, weights.reader(), machine.executor()));
  add(results, matrix.view, weights.tensor, false, true);
  return {};
}

Status quantize_fp8_op(Arguments& arguments, Results& results) {
  const Weights weights(arguments);
  SUBBYTE_CHECK(weights.check());
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_TRY(const Matrix matrix,
              quantize_fp8(weights.rows(), weights.cols(), weights.reader(), machine.executor()));
  add(results, matrix.view, weights.tensor, false, false);
  return {};
}

constexpr Operator kOperators[] = {
    {"quantize_int(Tensor weights, int bits, int group_size, bool symmetric=False) -> "
     "(Tensor, Tensor, Tensor)",
     kernel<quantize_int>, kernel_by_host<quantize_int>},
    {"quantize_mxfp4(Tensor weights, str rule=\"ceil\") -> (Tensor, Tensor)",
     kernel<quantize_mxfp4_op>, kernel_by_host<quantize_mxfp4_op>},
    {"quantize_nvfp4(Tensor weights, bool four_over_six=True) -> (Tensor, Tensor, Tensor)",
     kernel<quantize_nvfp4_op>, kernel_by_host<quantize_nvfp4_op>},
    {"quantize_nf4(Tensor weights, int block=64) -> (Tensor, Tensor)", kernel<quantize_nf4_op>,
     kernel_by_host<quantize_nf4_op>},
    {"quantize_nfl(Tensor weights, int bits, Tensor? codebook=None) -> (Tensor, Tensor, Tensor)",
     kernel<quantize_nfl_op>, kernel_by_host<quantize_nfl_op>},
    {"quantize_fp8(Tensor weights) -> (Tensor, Tensor)", kernel<quantize_fp8_op>,
     kernel_by_host<quantize_fp8_op>},
};

}  // namespace

std::span<const Operator> quantize_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
