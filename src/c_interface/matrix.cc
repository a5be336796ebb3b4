// Matrices: of bytes, by rounding, on a GPU; and as numbers again.

#include <cstring>

#include "base/float16.h"
#include "c_interface/context.h"
#include "c_interface/errors.h"
#include "c_interface/gpu.h"
#include "c_interface/weights.h"
#include "checkpoints/named_form.h"
#include "device/dequantize.h"
#include "kernels/cpu/blocks.h"
#include "transform/format_hints.h"

using namespace subbyte;

namespace {

Status create(const subbyte_context* context, const subbyte_weights* weights, void* stream,
              subbyte_matrix** to) {
  SUBBYTE_CHECK(c::check_addresses({{"context", context}, {"matrix", to}}));
  SUBBYTE_TRY(const c::Description description, c::read_weights(weights));
  return c::make_matrix(context->shared, to, [&](subbyte_matrix& made, Executor& pool) -> Status {
    made.row_order = description.row_order;
    if (description.device < 0) {
      SUBBYTE_TRY(made.matrix, c::to_matrix(description, pool));
      return {};
    }
    SUBBYTE_TRY(const auto gpu, device::Gpu::use(description.device, stream));
    SUBBYTE_TRY(made.on_gpu, c::within("weights", device::PackedMatrix::pack(
                                                      description, made.row_order, gpu, pool)));
    return {};
  });
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
  return c::make_matrix(matrix->context, to, [&](subbyte_matrix& made, Executor& pool) -> Status {
    made.row_order = static_cast<gpu::RowOrder>(row_order);
    SUBBYTE_TRY(const auto gpu, device::Gpu::use(device, stream));
    SUBBYTE_TRY(made.on_gpu,
                device::PackedMatrix::upload(matrix->matrix, made.row_order, gpu, pool));
    return {};
  });
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

/// What a quantizer asks for.
Result<WeightQuantization> read_quantizer(const subbyte_quantizer* from) {
  SUBBYTE_TRY(const subbyte_quantizer q, c::read_struct("quantizer", from));
  SUBBYTE_CHECK(c::check_addresses({{"quantizer.format", q.format}}));
  if (q.symmetric < 0 || q.symmetric > 2) return c::refuse("symmetric", "0 to 2", q.symmetric);
  WeightQuantization asked = {.format = q.format};
  if (q.bits != 0) asked.bits = q.bits;
  if (q.group_size != 0) asked.group_size = q.group_size;
  if (q.symmetric != 0) asked.symmetric = q.symmetric == 1;
  return asked;
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
  SUBBYTE_TRY(const WeightQuantization asked, read_quantizer(from));
  SUBBYTE_CHECK(c::check_on_host({{"numbers", numbers}}));
  SUBBYTE_TRY(const Format type, c::float_of("number", number));
  const auto named = named_form(asked, cols, command_with);
  if (!named.ok()) return Error{"c.argument", "quantizer: " + named.error().message};
  const RowReader reader = [&](int64_t row, float* out) {
    read_row(numbers, type, row, cols, out);
  };
  return c::make_matrix(context->shared, to, [&](subbyte_matrix& made, Executor& pool) -> Status {
    SUBBYTE_TRY(made.matrix, quantize_one(*named->format, rows, cols, reader, named->form, pool));
    return {};
  });
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
