#include "c_interface/products.h"

#include <algorithm>
#include <string>

#include "base/checked.h"
#include "c_interface/context.h"
#include "c_interface/errors.h"
#include "c_interface/gpu.h"
#include "device/host_product.h"

namespace subbyte::c {
namespace {

constexpr int64_t kMaxRows = int64_t{1} << 31;

Status read_stride(const std::string& name, int64_t& stride, int64_t least, bool may_be_shorter) {
  if (stride == 0) stride = least;
  if (stride >= (may_be_shorter ? 0 : least) && stride < (int64_t{1} << 40)) return {};
  return refuse("product." + name, "0 or at least " + std::to_string(least), stride);
}

/// Checks that so many strides can be counted in bytes, which are added to an address.
Status check_extent(const std::string& name, int64_t count, int64_t stride) {
  constexpr uint64_t kMaxExtent = uint64_t{1} << 58;
  const auto extent = stride < 0 ? std::nullopt : checked_mul(count, stride);
  if (extent && *extent <= kMaxExtent) return {};
  return refuse("product." + name,
                "0 or more, and " + std::to_string(count) + " of it up to 2^58 numbers", stride);
}

Status read_strides(subbyte_product& p, int64_t outputs, int64_t cols) {
  struct Strides {
    std::string name;
    int64_t& row;
    int64_t& matrix;
    int64_t least;
  };
  const bool has_one = p.m <= 1;
  for (const Strides& s :
       {Strides{"x_", p.x_stride, p.x_batch_stride, cols},
        Strides{"y_", p.y_stride, p.y_batch_stride, outputs},
        Strides{"residual_", p.residual_stride, p.residual_batch_stride, outputs}}) {
    SUBBYTE_CHECK(read_stride(s.name + "stride", s.row, s.least, has_one));
    SUBBYTE_CHECK(check_extent(s.name + "stride", p.m, s.row));
    if (s.matrix == 0) s.matrix = p.m * s.row;
    SUBBYTE_CHECK(check_extent(s.name + "batch_stride", p.batch, s.matrix));
  }
  const int64_t y_end = p.m == 0 ? 0 : (p.m - 1) * p.y_stride + outputs;
  if (p.batch > 1 && p.y_batch_stride < y_end) {
    return refuse("product.y_batch_stride", "at least " + std::to_string(y_end), p.y_batch_stride);
  }
  return {};
}

Status check_gate(const subbyte_product& p, gpu::RowOrder row_order) {
  if (p.activation < SUBBYTE_LINEAR || p.activation > SUBBYTE_CLAMPED_GATE) {
    return refuse("product.activation", "0 to 5 (enum subbyte_activation)", p.activation);
  }
  if (!is_gate(p.activation) || row_order != gpu::RowOrder::kNatural) return {};
  return refuse("product.activation",
                "no gate with a matrix of natural row order (subbyte_weights.row_order says where "
                "gate and up are side by side)",
                p.activation);
}

}  // namespace

Result<subbyte_product> read_product(const subbyte_product* product, int64_t rows, int64_t cols,
                                     gpu::RowOrder row_order, bool reserves) {
  SUBBYTE_TRY(subbyte_product p, read_struct("product", product));
  SUBBYTE_CHECK(float_of("product.number", p.number));
  SUBBYTE_CHECK(check_gate(p, row_order));
  if (p.batch == 0) p.batch = 1;
  const auto total = p.m < 0 || p.batch < 0 ? std::nullopt : checked_mul(p.m, p.batch);
  if (!total || *total >= static_cast<uint64_t>(kMaxRows)) {
    return refuse("product.m times batch", "0 to 2^31 - 1",
                  std::to_string(p.m) + " times " + std::to_string(p.batch));
  }
  const int64_t outputs = is_gate(p.activation) ? rows / 2 : rows;
  SUBBYTE_CHECK(read_strides(p, outputs, cols));
  if (!reserves && *total > 0) {
    SUBBYTE_CHECK(check_addresses({{"product.x", p.x}, {"product.y", p.y}}));
  }
  return p;
}

namespace {

device::Product product_of(const subbyte_product& p, gpu::RowOrder row_order) {
  device::Product product;
  product.gate_in_turns = row_order == gpu::RowOrder::kGateUpPairs;
  product.number = static_cast<Format>(p.number);
  product.m = p.m;
  product.batch = p.batch;
  product.x = p.x;
  product.y = p.y;
  product.bias = p.bias;
  product.residual = p.residual;
  product.x_stride = p.x_stride;
  product.y_stride = p.y_stride;
  product.residual_stride = p.residual_stride;
  product.x_batch_stride = p.x_batch_stride;
  product.y_batch_stride = p.y_batch_stride;
  product.residual_batch_stride = p.residual_batch_stride;
  product.activation = static_cast<device::Activation>(p.activation);
  product.clamp = clamp_of(p);
  product.batch_invariant = p.batch_invariant != 0;
  product.dependent_launch = p.dependent_launch != 0;
  return product;
}

/// Calls `body` with the packed matrix, the product and the GPU.
template <typename Body>
Status with_gpu_product(const subbyte_matrix& matrix, const subbyte_product& p, const Body& body) {
  const int index = matrix.on_gpu->index();
  device::Workspaces& workspaces =
      p.number == SUBBYTE_F32 ? matrix.context->floats.of(index) : matrix.workspaces;
  SUBBYTE_TRY(const auto gpu, device::Gpu::use(index, p.stream, workspaces));
  return body(*matrix.on_gpu, product_of(p, matrix.row_order), gpu);
}

Status multiply_matrix(const subbyte_matrix* matrix, const subbyte_product* product) {
  SUBBYTE_CHECK(check_addresses({{"matrix", matrix}}));
  const MatrixView& view = matrix->matrix.view;
  SUBBYTE_TRY(const subbyte_product p,
              read_product(product, view.rows, view.cols, matrix->row_order));
  if (matrix->on_gpu != nullptr) {
    return with_gpu_product(
        *matrix, p,
        [](const device::PackedMatrix& weights, const device::Product& checked,
           const device::Gpu& gpu) -> Status {
          if (checked.m * checked.batch == 0) return {};
          SUBBYTE_CHECK(check_on_gpu({"product.x", checked.x}, weights.index()));
          SUBBYTE_CHECK(check_on_gpu({"product.y", checked.y}, weights.index()));
          return weights.multiply(checked, gpu);
        });
  }
  SUBBYTE_CHECK(check_on_host({{"product.x", p.x},
                               {"product.y", p.y},
                               {"product.bias", p.bias},
                               {"product.residual", p.residual}}));
  SUBBYTE_TRY(const auto turn, Turn::take(matrix->context));
  Execution& execution = *matrix->context->execution;
  if (matrix->multiplied == nullptr) {
    SUBBYTE_TRY(device::HostWeights made, device::HostWeights::create(execution, matrix->matrix));
    matrix->multiplied = std::make_unique<const device::HostWeights>(std::move(made));
  }
  return device::multiply(execution, *matrix->multiplied, product_of(p, matrix->row_order));
}

Status reserve_product(const subbyte_matrix* matrix, const subbyte_product* product) {
  SUBBYTE_CHECK(check_addresses({{"matrix", matrix}}));
  const MatrixView& view = matrix->matrix.view;
  SUBBYTE_TRY(const subbyte_product p,
              read_product(product, view.rows, view.cols, matrix->row_order, true));
  if (matrix->on_gpu == nullptr) return {};
  return with_gpu_product(*matrix, p,
                          [](const device::PackedMatrix& weights, const device::Product& checked,
                             const device::Gpu& gpu) { return weights.reserve(checked, gpu); });
}

}  // namespace
}  // namespace subbyte::c

int subbyte_multiply(const subbyte_matrix* matrix, const subbyte_product* product) {
  return subbyte::c::run([&] { return subbyte::c::multiply_matrix(matrix, product); });
}

int subbyte_product_reserve(const subbyte_matrix* matrix, const subbyte_product* product) {
  return subbyte::c::run([&] { return subbyte::c::reserve_product(matrix, product); });
}
