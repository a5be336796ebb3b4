// Matrices: of bytes, by rounding, on a GPU; and as numbers again.

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "base/quote.h"
#include "c_interface/context.h"
#include "c_interface/errors.h"
#include "c_interface/gpu.h"
#include "c_interface/weights.h"
#include "device/dequantize.h"
#include "kernels/cpu/blocks.h"
#include "transform/quantize_formats.h"

using namespace subbyte;

namespace {

Status create(const subbyte_context* context, const subbyte_weights* weights, void* stream,
              subbyte_matrix** to) {
  SUBBYTE_CHECK(c::check_addresses({{"context", context}, {"matrix", to}}));
  SUBBYTE_TRY(const c::Description description, c::read_weights(weights));
  auto made = std::make_unique<subbyte_matrix>();
  made->context = context->shared;
  made->row_order = description.row_order;
  SUBBYTE_TRY(const auto turn, c::Turn::take(context->shared));
  Executor& pool = context->shared->execution->pool();
  if (description.device >= 0) {
    SUBBYTE_TRY(const auto gpu, device::Gpu::use(description.device, stream));
    SUBBYTE_TRY(made->on_gpu,
                c::within("weights", device::PackedMatrix::pack(description, description.row_order,
                                                                gpu, pool)));
    made->matrix.view = made->on_gpu->view();
  } else {
    SUBBYTE_TRY(made->matrix, c::to_matrix(description, pool));
  }
  *to = made.release();
  return {};
}

Status to_gpu(const subbyte_matrix* matrix, int32_t device, int32_t row_order, void* stream,
              subbyte_matrix** to) {
  SUBBYTE_CHECK(c::check_addresses({{"matrix", matrix}, {"packed", to}}));
  if (matrix->on_gpu != nullptr) {
    return c::refuse("matrix", "one of the host", "one that is packed on a GPU");
  }
  if (device < 0) return c::refuse("device", "the number of a GPU, from 0", device);
  if (row_order < SUBBYTE_ROWS_NATURAL || row_order > SUBBYTE_ROWS_GATE_UP_PAIRS) {
    return c::refuse("row_order", "0 to 2 (enum subbyte_row_order)", row_order);
  }
  auto made = std::make_unique<subbyte_matrix>();
  made->context = matrix->context;
  made->row_order = static_cast<gpu::RowOrder>(row_order);
  SUBBYTE_TRY(const auto turn, c::Turn::take(matrix->context));
  SUBBYTE_TRY(const auto gpu, device::Gpu::use(device, stream));
  SUBBYTE_TRY(made->on_gpu, device::PackedMatrix::upload(matrix->matrix, made->row_order, gpu,
                                                         matrix->context->execution->pool()));
  made->matrix.view = made->on_gpu->view();
  *to = made.release();
  return {};
}

Status describe(const subbyte_matrix* matrix, subbyte_weights* weights) {
  SUBBYTE_CHECK(c::check_addresses({{"matrix", matrix}}));
  const int device = matrix->on_gpu == nullptr ? -1 : matrix->on_gpu->index();
  return c::write_struct("weights", weights,
                         c::describe(matrix->matrix.view, matrix->row_order, device));
}

Status count_bytes(const subbyte_matrix* matrix, int64_t* bytes) {
  SUBBYTE_CHECK(c::check_addresses({{"matrix", matrix}, {"bytes", bytes}}));
  *bytes = matrix->on_gpu == nullptr ? matrix->matrix.view.bytes() : matrix->on_gpu->bytes();
  return {};
}

Result<const QuantizeFormat*> format_of(const subbyte_quantizer& q) {
  const QuantizeFormat* const named = find_quantize_format(q.format);
  if (named == nullptr) {
    return c::refuse("quantizer.format", "a name of `subbyte quantize --format`", quote(q.format));
  }
  if (q.bits != 0 && !named->holds_bits(q.bits)) {
    return c::refuse("bits", list_bits(*named), q.bits);
  }
  return choose_quantize_format(q.format, q.bits == 0 ? std::optional<double>() : q.bits);
}

/// The form that a quantizer asks for, where the format has it.
Result<QuantizeForm> form_of(const QuantizeFormat& format, const subbyte_quantizer& q) {
  QuantizeForm form;
  form.bits = q.bits == 0 ? format.default_bits : q.bits;
  form.group_size = q.group_size == 0 ? format.default_group : std::max<int64_t>(q.group_size, 0);
  if (q.group_size < -1 || !format.holds_group(form.group_size)) {
    return c::refuse("group_size", list_groups(format), q.group_size);
  }
  if (q.symmetric < 0 || q.symmetric > 2) return c::refuse("symmetric", "0 to 2", q.symmetric);
  form.symmetric = q.symmetric == 0 ? format.symmetry != Symmetry::kNever : q.symmetric == 1;
  if (format.holds_symmetry(form.symmetric)) return form;
  return c::refuse("symmetric", form.symmetric ? "2 for this format" : "1 for this format",
                   q.symmetric);
}

/// Row `row` of numbers as floats.
void read_row(const void* numbers, Format number, int64_t row, int64_t cols, float* out) {
  const auto* bytes = static_cast<const std::byte*>(numbers);
  if (number == Format::kF32) {
    std::memcpy(out, bytes + row * cols * 4, static_cast<std::size_t>(cols) * 4);
    return;
  }
  for (int64_t k = 0; k < cols; ++k) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes + (row * cols + k) * 2, 2);
    out[k] = number == Format::kF16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
  }
}

Status quantize(const subbyte_context* context, const subbyte_quantizer* from, const void* numbers,
                int32_t number, int64_t rows, int64_t cols, subbyte_matrix** to) {
  SUBBYTE_CHECK(c::check_addresses({{"context", context}, {"numbers", numbers}, {"matrix", to}}));
  SUBBYTE_TRY(const subbyte_quantizer quantizer, c::read_struct("quantizer", from));
  SUBBYTE_CHECK(c::check_addresses({{"quantizer.format", quantizer.format}}));
  SUBBYTE_CHECK(c::check_on_host({{"numbers", numbers}}));
  SUBBYTE_TRY(const Format type, c::float_of("number", number));
  SUBBYTE_TRY(const QuantizeFormat* const format, format_of(quantizer));
  SUBBYTE_TRY(const QuantizeForm form, form_of(*format, quantizer));
  const RowReader reader = [&](int64_t row, float* out) {
    read_row(numbers, type, row, cols, out);
  };
  auto made = std::make_unique<subbyte_matrix>();
  made->context = context->shared;
  SUBBYTE_TRY(const auto turn, c::Turn::take(context->shared));
  SUBBYTE_TRY(made->matrix,
              quantize_one(*format, rows, cols, reader, form, context->shared->execution->pool()));
  *to = made.release();
  return {};
}

Status dequantize_on_host(const std::shared_ptr<c::Context>& context, const MatrixView& view,
                          Format number, void* out) {
  if (view.rows == 0) return {};
  SUBBYTE_TRY(const auto turn, c::Turn::take(context));
  return cpu::dequantize(view, number, out, context->execution->kernels(),
                         context->execution->pool());
}

Status dequantize(const subbyte_matrix* matrix, int32_t number, void* out, void* stream) {
  SUBBYTE_CHECK(c::check_addresses({{"matrix", matrix}, {"out", out}}));
  SUBBYTE_TRY(const Format type, c::float_of("number", number));
  if (matrix->on_gpu != nullptr) {
    const int index = matrix->on_gpu->index();
    SUBBYTE_TRY(const auto gpu, device::Gpu::use(index, stream));
    SUBBYTE_CHECK(c::check_on_gpu({"out", out}, index));
    return matrix->on_gpu->dequantize(type, out, gpu);
  }
  SUBBYTE_CHECK(c::check_on_host({{"out", out}}));
  return dequantize_on_host(matrix->context, matrix->matrix.view, type, out);
}

Status dequantize_weights(const subbyte_context* context, const subbyte_weights* weights,
                          int32_t number, void* out, void* stream) {
  SUBBYTE_CHECK(c::check_addresses({{"context", context}, {"out", out}}));
  SUBBYTE_TRY(c::Description description, c::read_weights(weights));
  SUBBYTE_TRY(const Format type, c::float_of("number", number));
  if (description.device >= 0) {
    SUBBYTE_TRY(const auto gpu, device::Gpu::use(description.device, stream));
    return c::within("weights", device::dequantize(description, type, out, gpu));
  }
  SUBBYTE_CHECK(c::check_on_host({{"out", out}}));
  description.borrows = true;
  SUBBYTE_TRY(const Matrix matrix, [&]() -> Result<Matrix> {
    SUBBYTE_TRY(const auto turn, c::Turn::take(context->shared));
    return c::to_matrix(description, context->shared->execution->pool());
  }());
  return dequantize_on_host(context->shared, matrix.view, type, out);
}

}  // namespace

int subbyte_matrix_create(subbyte_context* context, const subbyte_weights* weights, void* stream,
                          subbyte_matrix** matrix) {
  return c::run([&] { return create(context, weights, stream, matrix); });
}

void subbyte_matrix_destroy(subbyte_matrix* matrix) {
  delete matrix;
}

int subbyte_matrix_to_gpu(const subbyte_matrix* matrix, int32_t device, int32_t row_order,
                          void* stream, subbyte_matrix** packed) {
  return c::run([&] { return to_gpu(matrix, device, row_order, stream, packed); });
}

int subbyte_matrix_describe(const subbyte_matrix* matrix, subbyte_weights* weights) {
  return c::run([&] { return describe(matrix, weights); });
}

int subbyte_matrix_bytes(const subbyte_matrix* matrix, int64_t* bytes) {
  return c::run([&] { return count_bytes(matrix, bytes); });
}

int subbyte_matrix_quantize(subbyte_context* context, const subbyte_quantizer* quantizer,
                            const void* numbers, int32_t number, int64_t rows, int64_t cols,
                            subbyte_matrix** matrix) {
  return c::run([&] { return quantize(context, quantizer, numbers, number, rows, cols, matrix); });
}

int subbyte_matrix_dequantize(const subbyte_matrix* matrix, int32_t number, void* out,
                              void* stream) {
  return c::run([&] { return dequantize(matrix, number, out, stream); });
}

int subbyte_dequantize(subbyte_context* context, const subbyte_weights* weights, int32_t number,
                       void* out, void* stream) {
  return c::run([&] { return dequantize_weights(context, weights, number, out, stream); });
}
