#include "c_interface/products.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/float16.h"
#include "c_interface/context.h"
#include "c_interface/errors.h"
#include "c_interface/gpu.h"
#include "kernels/cpu/vector_kernels.h"

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

/// Numbers as floats, and floats as numbers, of rows that need not be aligned.
void load_floats(float* to, const void* from, Format number, int64_t first, int64_t count) {
  const auto* bytes = static_cast<const std::byte*>(from);
  if (number == Format::kF32) {
    std::memcpy(to, bytes + first * 4, static_cast<std::size_t>(count) * 4);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes + (first + i) * 2, 2);
    to[i] = number == Format::kF16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
  }
}

void store_floats(void* to, const float* from, Format number, int64_t first, int64_t count) {
  auto* bytes = static_cast<std::byte*>(to);
  if (number == Format::kF32) {
    std::memcpy(bytes + first * 4, from, static_cast<std::size_t>(count) * 4);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits =
        number == Format::kF16 ? to_float16(from[i]).bits : to_bfloat16(from[i]).bits;
    std::memcpy(bytes + (first + i) * 2, &bits, 2);
  }
}

/// A product on the CPU.
class CpuProduct {
 public:
  CpuProduct(const subbyte_matrix& matrix, const subbyte_product& product)
      : p_(product),
        number_(static_cast<Format>(product.number)),
        row_order_(matrix.row_order),
        rows_(matrix.matrix.view.rows),
        cols_(matrix.matrix.view.cols),
        outputs_(is_gate(product.activation) ? rows_ / 2 : rows_),
        total_(product.m * product.batch) {}

  Status run(Execution& execution, const LinearWeights& weights) {
    if (total_ == 0) return {};
    std::vector<float> bias;
    if (p_.bias != nullptr) {
      bias.resize(rows_);
      load_floats(bias.data(), p_.bias, number_, 0, rows_);
    }
    std::vector<float> x_copy;
    const std::span<const float> x = inputs(execution.pool(), x_copy);
    if (writes_in_place()) {
      return weights.multiply(execution, {static_cast<float*>(p_.y), size(total_ * rows_)}, x,
                              total_, bias);
    }
    std::vector<float> sums(total_ * rows_);
    SUBBYTE_CHECK(weights.multiply(execution, sums, x, total_, bias));
    finish(execution, sums);
    return {};
  }

 private:
  static std::size_t size(int64_t count) { return static_cast<std::size_t>(count); }
  static bool is_aligned(const void* address) {
    return reinterpret_cast<uintptr_t>(address) % alignof(float) == 0;
  }
  int64_t place(int64_t i, int64_t stride, int64_t batch_stride) const {
    return i / p_.m * batch_stride + i % p_.m * stride;
  }

  std::span<const float> inputs(Executor& pool, std::vector<float>& copy) const {
    const bool is_whole = p_.x_stride == cols_ && p_.x_batch_stride == p_.m * cols_;
    if (number_ == Format::kF32 && is_whole && is_aligned(p_.x) && !overlaps()) {
      return {static_cast<const float*>(p_.x), size(total_ * cols_)};
    }
    copy.resize(total_ * cols_);
    pool.parallel_for(total_, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        load_floats(&copy[i * cols_], p_.x, number_, place(i, p_.x_stride, p_.x_batch_stride),
                    cols_);
      }
    });
    return copy;
  }

  /// y may lie where x does: the product itself must not read what it has written.
  bool overlaps() const {
    const auto x = reinterpret_cast<uintptr_t>(p_.x);
    const auto y = reinterpret_cast<uintptr_t>(p_.y);
    return y < x + size(total_ * cols_) * 4 && x < y + size(total_ * rows_) * 4;
  }

  bool writes_in_place() const {
    return number_ == Format::kF32 && p_.activation == SUBBYTE_LINEAR && p_.residual == nullptr &&
           p_.y_stride == rows_ && p_.y_batch_stride == p_.m * rows_ && is_aligned(p_.y);
  }

  void finish(Execution& execution, std::vector<float>& sums) const {
    execution.pool().parallel_for(total_, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<float> scratch(3 * rows_);
      for (int64_t i = begin; i < end; ++i) {
        const float* out = activate(*execution.kernels().vectors, &sums[i * rows_], scratch);
        if (p_.residual != nullptr) {
          float* added = scratch.data() + 2 * rows_;
          load_floats(added, p_.residual, number_,
                      place(i, p_.residual_stride, p_.residual_batch_stride), outputs_);
          for (int64_t n = 0; n < outputs_; ++n) added[n] += out[n];
          out = added;
        }
        store_floats(p_.y, out, number_, place(i, p_.y_stride, p_.y_batch_stride), outputs_);
      }
    });
  }

  /// The sums of a row after the activation, there or in the scratch.
  const float* activate(const cpu::VectorKernels& kernels, float* row,
                        std::vector<float>& scratch) const {
    float* const gate = scratch.data();
    float* const up = gate + rows_;
    switch (p_.activation) {
      case SUBBYTE_LINEAR:
        return row;
      case SUBBYTE_RELU:
        for (int64_t n = 0; n < rows_; ++n) row[n] = row[n] < 0 ? 0 : row[n];  // NaN stays
        return row;
      case SUBBYTE_GELU:
        std::fill_n(up, rows_, 1.0f);
        kernels.gelu_gate(row, up, rows_);
        return row;
      default:
        break;
    }
    const bool pairs = row_order_ == gpu::RowOrder::kGateUpPairs;
    for (int64_t n = 0; n < outputs_; ++n) {
      gate[n] = row[pairs ? 2 * n : n];
      up[n] = row[pairs ? 2 * n + 1 : n + outputs_];
    }
    if (p_.activation == SUBBYTE_SILU_GATE) kernels.silu_gate(gate, up, outputs_);
    if (p_.activation == SUBBYTE_GELU_GATE) kernels.gelu_gate(gate, up, outputs_);
    if (p_.activation != SUBBYTE_CLAMPED_GATE) return gate;
    for (int64_t n = 0; n < outputs_; ++n) {
      row[2 * n] = gate[n];
      row[2 * n + 1] = up[n];
    }
    const SwiGLU clamp = clamp_of(p_);
    kernels.clamped_swiglu(gate, row, outputs_, clamp.alpha, clamp.limit, clamp.up_offset);
    return gate;
  }

  const subbyte_product& p_;
  Format number_;
  gpu::RowOrder row_order_;
  int64_t rows_;
  int64_t cols_;
  int64_t outputs_;
  int64_t total_;
};

static_assert(static_cast<int>(device::Activation::kClampedGate) == SUBBYTE_CLAMPED_GATE);

device::Product product_of(const subbyte_product& p) {
  device::Product product;
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
  SUBBYTE_TRY(const auto gpu, device::Gpu::use(index, p.stream, matrix.workspaces));
  SUBBYTE_CHECK(check_on_gpu({"product.x", p.x}, index));
  SUBBYTE_CHECK(check_on_gpu({"product.y", p.y}, index));
  return body(*matrix.on_gpu, product_of(p), gpu);
}

Status multiply_matrix(const subbyte_matrix* matrix, const subbyte_product* product) {
  SUBBYTE_CHECK(check_addresses({{"matrix", matrix}}));
  const MatrixView& view = matrix->matrix.view;
  SUBBYTE_TRY(const subbyte_product p,
              read_product(product, view.rows, view.cols, matrix->row_order));
  if (matrix->on_gpu != nullptr) {
    return with_gpu_product(*matrix, p,
                            [](const device::PackedMatrix& weights, const device::Product& checked,
                               const device::Gpu& gpu) { return weights.multiply(checked, gpu); });
  }
  SUBBYTE_CHECK(check_on_host({{"product.x", p.x},
                               {"product.y", p.y},
                               {"product.bias", p.bias},
                               {"product.residual", p.residual}}));
  SUBBYTE_TRY(const auto turn, Turn::take(matrix->context));
  Execution& execution = *matrix->context->execution;
  if (matrix->multiplied == nullptr) {
    SUBBYTE_TRY(LinearWeights made, LinearWeights::create(execution, matrix->matrix));
    matrix->multiplied = std::make_unique<const LinearWeights>(std::move(made));
  }
  return CpuProduct(*matrix, p).run(execution, *matrix->multiplied);
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
