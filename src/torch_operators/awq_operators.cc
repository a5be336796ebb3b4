// AWQ's operators of vLLM with their arguments, on CPUs: words are unpacked once and kept.

#include <algorithm>
#include <array>

#include "kernels/cpu/blocks.h"
#include "kernels/cuda/layouts/other_layouts.h"
#include "torch_operators/checkpoint_words.h"
#include "torch_operators/gpu.h"
#include "torch_operators/operators.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

/// AWQ's words as a canonical matrix.
struct Awq {
  const Tensor& words;
  const Tensor& scales;
  const Tensor& zeros;

  int64_t cols() const { return words.size(0); }
  int64_t rows() const { return words.size(1) * 8; }
  int64_t groups() const { return scales.size(0); }

  Status check() const {
    if (cols() > 0 && rows() > 0 && groups() > 0 && cols() % groups() == 0 && cols() % 2 == 0) {
      return {};
    }
    return refuse(scales, "groups that divide " + std::to_string(cols()) + " inputs");
  }

  Result<Matrix> matrix() const {
    Matrix matrix;
    MatrixView& view = matrix.view;
    view.rows = rows();
    view.cols = cols();
    view.format = {Format::kU4, scales.format(), Zero::kU8, cols() / groups()};
    std::ranges::copy(canonical(words.host().data<const uint32_t>(), rows(), cols(), 4, awq_code),
                      allocate_part(matrix, view.codes, rows() * cols() / 2));
    std::byte* const to_scales = allocate_part(matrix, view.scales, rows() * groups() * 2);
    std::byte* const to_zeros = allocate_part(matrix, view.zeros, rows() * groups());
    for (int64_t n = 0; n < rows(); ++n) {
      for (int64_t g = 0; g < groups(); ++g) {
        const int64_t at = n * groups() + g;
        std::copy_n(scales.host().data() + (g * rows() + n) * 2, 2, to_scales + at * 2);
        to_zeros[at] = std::byte(awq_code(zeros.host().data<const uint32_t>(), g, n, rows(), 4));
      }
    }
    return matrix;
  }
};

Status awq_gemm(Call& call) {
  const Tensor x = call.tensor();
  const Tensor words = call.tensor();
  const Tensor scales = call.tensor();
  const Tensor zeros = call.tensor();
  const Awq awq = {words, scales, zeros};
  SUBBYTE_CHECK(call.check());
  SUBBYTE_CHECK(awq.check());
  SUBBYTE_TRY(Tensor out, call.result());
  const std::array sources = {&words, &scales, &zeros};
  SUBBYTE_CHECK(multiply_kept(
      x, {"words", {awq.rows(), awq.cols()}, {}}, sources, [&] { return awq.matrix(); },
      std::nullopt, out));
  return call.add(std::move(out));
}

/// Weights [K, N].
Status awq_dequantize(Call& call) {
  const Tensor words = call.tensor();
  const Tensor scales = call.tensor();
  const Tensor zeros = call.tensor();
  const Awq awq = {words, scales, zeros};
  SUBBYTE_CHECK(call.check());
  SUBBYTE_CHECK(awq.check());
  SUBBYTE_TRY(Tensor out, call.result());
  if (!words.on_cpu()) {
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(words));
    SUBBYTE_CHECK(cuda::dequantize_awq({.out = out.data(),
                                        .words = words.data<const uint32_t>(),
                                        .scales = scales.data(),
                                        .zeros = zeros.data<const uint32_t>(),
                                        .element = element_of(out.format()),
                                        .rows = out.size(1),
                                        .cols = out.size(0),
                                        .groups = scales.size(0)},
                                       gpu.stream()));
    return call.add(std::move(out));
  }
  SUBBYTE_TRY(const Matrix matrix, awq.matrix());
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  std::vector<uint16_t> rows(static_cast<std::size_t>(out.count()));
  SUBBYTE_CHECK(cpu::dequantize(matrix.view, scales.format(), rows.data(), machine.kernels(),
                                machine.executor()));
  for (int64_t n = 0; n < awq.rows(); ++n) {
    for (int64_t k = 0; k < awq.cols(); ++k) {
      out.data<uint16_t>()[k * awq.rows() + n] = rows[static_cast<std::size_t>(n * awq.cols() + k)];
    }
  }
  return call.add(std::move(out));
}

#define SUBBYTE_AWQ(zeros)                                                         \
  "Tensor qweight{i32 [K=, W=]}, Tensor scales{halves [G=, W * 8]}, Tensor " zeros \
  "{i32 [G, "                                                                      \
  "W]}, "

constexpr Operator kOperators[] = {
    {"awq_gemm(Tensor input{scales [M=, K]}, " SUBBYTE_AWQ("qzeros") "int split_k_iters) -> "
                                                                     "Tensor{input [M, W * 8]}",
     awq_gemm},
    {"awq_dequantize(" SUBBYTE_AWQ("zeros") "int split_k_iters, int thx, int thy) -> "
                                            "Tensor{scales [K, W * 8]}",
     awq_dequantize},
};

}  // namespace

std::span<const Operator> awq_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
