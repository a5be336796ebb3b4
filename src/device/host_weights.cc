#include "device/host_weights.h"

#include <mutex>
#include <string>
#include <utility>

#include "device/host_numbers.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/check_linear.h"
#include "kernels/cpu/execution.h"
#include "matrix/zero_points.h"

namespace subbyte::device {
namespace {

/// `size` bytes of zero; all callers share one buffer, which grows.
std::shared_ptr<const std::byte> shared_zeros(std::size_t size) {
  struct Zeros {
    std::shared_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  static std::mutex& mutex = *new std::mutex;
  static Zeros& zeros = *new Zeros;
  const std::lock_guard lock(mutex);
  if (zeros.size < size) zeros = {allocate_bytes(size), size};
  return {zeros.bytes, zeros.bytes.get()};
}

/// Unsigned integers without zero points get those of 0.
void add_zeros(HostWeights& ready) {
  MatrixView& view = ready.main;
  const Format element = view.format.element;
  if (is_dense(view.format) || view.format.zero != Zero::kNone) return;
  if (element < Format::kU2 || element > Format::kU8) return;
  view.format.zero = element == Format::kU8 ? Zero::kU16 : Zero::kU8;
  const auto size = static_cast<std::size_t>(view.rows * view.zero_row_bytes());
  auto zeros = shared_zeros(size);
  view.zeros = {zeros.get(), size};
  ready.owners.push_back(std::move(zeros));
}

/// Moves offsets out of the format, into a matrix of their own.
Status split_offsets(HostWeights& ready, KeepCopy keep) {
  MatrixView& view = ready.main;
  if (!is_offset(view.format.zero)) return {};
  MatrixView offsets;
  offsets.format.element = offset_format(view.format.zero);
  offsets.rows = view.rows;
  offsets.cols = view.groups();
  offsets.codes = view.zeros;
  SUBBYTE_CHECK(ready.set_offsets(offsets, view.group_size(), keep));
  ready.factor = view.tensor_scale;
  view.zeros = {};
  view.format.zero = Zero::kNone;
  return {};
}

/// Numbers [rows][cols] as f32 [cols][rows].
Matrix transposed(const MatrixView& from) {
  Matrix matrix;
  const auto count = static_cast<std::size_t>(from.rows * from.cols);
  auto bytes = allocate_bytes(count * sizeof(float));
  auto* const to = reinterpret_cast<float*>(bytes.get());
  std::vector<float> row(static_cast<std::size_t>(from.cols));
  const auto row_bytes = static_cast<int64_t>(from.codes.size()) / from.rows;
  for (int64_t n = 0; n < from.rows; ++n) {
    load_numbers(row.data(), from.codes.data() + n * row_bytes, from.cols, from.format.element);
    for (int64_t g = 0; g < from.cols; ++g) {
      to[g * from.rows + n] = row[static_cast<std::size_t>(g)];
    }
  }
  matrix.view.rows = from.cols;
  matrix.view.cols = from.rows;
  matrix.view.codes = {bytes.get(), count * sizeof(float)};
  matrix.owners.push_back(std::move(bytes));
  return matrix;
}

bool has_kernel(const cpu::Kernels& kernels, const MatrixView& view) {
  if (view.format.rotation != 0 && !view.input_order.empty()) return false;
  if (!is_dense(view.format) && (view.cols % 8 != 0 || view.group_size() % 8 != 0)) return false;
  return cpu::find_matmul(kernels, kernel_format(view)) != nullptr;
}

/// Says that a kernel reads the codes of a matrix with offsets.
bool has_kernel_of_codes(const cpu::Kernels& kernels, MatrixView view) {
  view.format.zero = Zero::kNone;
  view.format = with_whole_bytes(view.format);
  HostWeights codes;
  codes.main = view;
  add_zeros(codes);
  return has_kernel(kernels, codes.main);
}

/// Without the factor of the tensor, which the product has.
Result<Matrix> dense_copy(Execution& execution, MatrixView view) {
  view.tensor_scale = 1;
  Matrix dense;
  dense.view.rows = view.rows;
  dense.view.cols = view.cols;
  const auto size = static_cast<std::size_t>(view.rows * view.cols) * sizeof(float);
  auto bytes = allocate_bytes(size);
  SUBBYTE_CHECK(
      cpu::dequantize(view, Format::kF32, bytes.get(), execution.kernels(), execution.pool()));
  dense.view.codes = {bytes.get(), size};
  dense.owners.push_back(std::move(bytes));
  return dense;
}

/// Codes in bytes, and zero points where they get another type; the rest stays the caller's.
Matrix wide_codes(const MatrixView& narrow) {
  Matrix wide = with_whole_bytes(Matrix{narrow, {}});
  wide.view.scales = {};
  if (wide.view.format.zero == narrow.format.zero) wide.view.zeros = {};
  wide.view.input_order = {};
  return wide;
}

/// Puts codes of 5 to 7 bits into bytes, in a kept copy.
Status widen_codes(HostWeights& ready, KeepCopy keep) {
  const MatrixView narrow = ready.main;
  if (with_whole_bytes(narrow.format) == narrow.format) return {};
  SUBBYTE_TRY(std::shared_ptr<const Matrix> copy,
              keep("bytes", narrow, [&] { return Result<Matrix>(wide_codes(narrow)); }));
  ready.main.format = copy->view.format;
  ready.main.codes = copy->view.codes;
  if (!copy->view.zeros.empty()) ready.main.zeros = copy->view.zeros;
  ready.owners.push_back(std::move(copy));
  return {};
}

}  // namespace

Status HostWeights::set_offsets(const MatrixView& numbers, int64_t size_of_group, KeepCopy keep) {
  offsets = numbers;
  group_size = size_of_group;
  if (numbers.rows == 0) return {};
  SUBBYTE_TRY(std::shared_ptr<const Matrix> by_group, keep("offsets by group", numbers, [&] {
                return Result<Matrix>(transposed(numbers));
              }));
  offsets_by_group = {reinterpret_cast<const float*>(by_group->view.codes.data()),
                      static_cast<std::size_t>(numbers.rows * numbers.cols)};
  owners.push_back(std::move(by_group));
  return {};
}

Result<HostWeights> HostWeights::create(Execution& execution, const MatrixView& view,
                                        KeepCopy keep) {
  if (view.rows < 1 || view.cols < 1) {
    return Error{"linear.unsupported", "linear: expected at least one row and column, found " +
                                           std::to_string(view.rows) + " and " +
                                           std::to_string(view.cols)};
  }
  HostWeights ready;
  ready.main = view;
  ready.order = view.input_order;
  const bool has_offsets = is_offset(view.format.zero);  // which are of rotated weights, if any are
  if (has_two_levels(view.format)) {
    HostWeights as_they_are = ready;
    add_zeros(as_they_are);
    if (has_kernel(execution.kernels(), as_they_are.main)) return as_they_are;
  } else if (!has_offsets ||
             (view.format.rotation == 0 && has_kernel_of_codes(execution.kernels(), view))) {
    SUBBYTE_CHECK(split_offsets(ready, keep));
    SUBBYTE_CHECK(widen_codes(ready, keep));
    add_zeros(ready);
    if (has_kernel(execution.kernels(), ready.main)) return ready;
  }
  const MatrixView packed = ready.main;
  SUBBYTE_TRY(std::shared_ptr<const Matrix> floats,
              keep("f32", packed, [&] { return dense_copy(execution, packed); }));
  ready.main = floats->view;
  ready.main.tensor_scale = view.tensor_scale;
  ready.owners.push_back(std::move(floats));
  return ready;
}

Result<HostWeights> HostWeights::create(Execution& execution, const Matrix& matrix) {
  const auto make_anew =
      [](const char*, const MatrixView&,
         FunctionRef<Result<Matrix>()> make) -> Result<std::shared_ptr<const Matrix>> {
    SUBBYTE_TRY(Matrix made, make());
    return std::make_shared<const Matrix>(std::move(made));
  };
  SUBBYTE_TRY(HostWeights made, create(execution, matrix.view, make_anew));
  made.owners.push_back(std::make_shared<const Matrix>(matrix));
  return made;
}

}  // namespace subbyte::device
