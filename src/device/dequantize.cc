#include "device/dequantize.h"

#include "device/operands.h"
#include "kernels/cuda/elementwise/activations.h"
#include "kernels/cuda/quantize/dequantize.h"

namespace subbyte::device {
Status dequantize(const StridedMatrix& from, Format number, void* out, const Gpu& gpu) {
  if (from.view.rows == 0) return {};
  SUBBYTE_TRY(const StagedMatrix staged, StagedMatrix::gather(from, gpu));
  const MatrixView& view = staged.view();
  const Element element = element_of(number);
  if (!is_dense(view.format)) {
    // Weights go where the order of inputs says.
    if (!view.input_order.empty()) SUBBYTE_CHECK(staged.find_facts(gpu));
    return cuda::dequantize(view, element, out, gpu.stream());
  }
  if (!view.input_order.empty()) {
    return refuse("input_order", "none with dense weights on a GPU", "one");
  }
  return cuda::run_epilogue({.sums = view.codes.data(),
                             .sums_element = element_of(view.format.element),
                             .y = out,
                             .element = element,
                             .m = view.rows,
                             .cols = view.cols,
                             .sums_stride = view.cols,
                             .y_stride = view.cols,
                             .gain = static_cast<float>(view.tensor_scale)},
                            gpu.stream());
}

}  // namespace subbyte::device
