#include "torch_operators/ready.h"

#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "cpu_backend/check_linear.h"
#include "kernels/cpu/blocks.h"
#include "matrix/recast.h"
#include "matrix/zero_points.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

bool is_signed(Format element) {
  return element >= Format::kI2 && element <= Format::kI8;
}

bool is_unsigned(Format element) {
  return element >= Format::kU2 && element <= Format::kU8;
}

/// `count` equal zero points of so many bytes; all callers share one buffer, which grows.
std::shared_ptr<const std::byte> equal_zeros(int value, int width, std::size_t count) {
  struct Zeros {
    std::shared_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::array<std::array<Zeros, 256>, 2>;
  const std::lock_guard lock(mutex);
  Zeros& zeros = all[width == 2 ? 1 : 0][static_cast<std::size_t>(value)];
  if (zeros.size < count) {
    zeros = {allocate_bytes(count * width), count};
    const auto number = static_cast<uint16_t>(value);
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(zeros.bytes.get() + i * width, &number, static_cast<std::size_t>(width));
    }
  }
  return {zeros.bytes, zeros.bytes.get()};
}

/// Integers without zero points get those that they mean.
void add_zeros(ReadyWeights& ready) {
  MatrixView& view = ready.main;
  const Format element = view.format.element;
  if (is_dense(view.format) || view.format.zero != Zero::kNone) return;
  if (!is_signed(element) && !is_unsigned(element)) return;
  const int bits = info(element).bits;
  const int width = bits == 8 ? 2 : 1;
  const auto count = static_cast<std::size_t>(view.rows * view.groups());
  auto zeros = equal_zeros(is_signed(element) ? 1 << (bits - 1) : 0, width, count);
  view.format.element = unsigned_element(element);
  view.format.zero = bits == 8 ? Zero::kU16 : Zero::kU8;
  view.zeros = {zeros.get(), count * static_cast<std::size_t>(width)};
  ready.owners.push_back(std::move(zeros));
}

/// Moves offsets out of the format, into a matrix of their own.
Status split_offsets(ReadyWeights& ready, std::span<const Tensor* const> sources,
                     const Recipe& of) {
  MatrixView& view = ready.main;
  if (!is_offset(view.format.zero)) return {};
  MatrixView offsets;
  offsets.format.element = offset_format(view.format.zero);
  offsets.rows = view.rows;
  offsets.cols = view.groups();
  offsets.codes = view.zeros;
  SUBBYTE_CHECK(set_offsets(ready, offsets, view.group_size(), sources, of));
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
  if (!is_dense(view.format) && (view.cols % 8 != 0 || view.group_size() % 8 != 0)) return false;
  return cpu::find_matmul(kernels, kernel_format(view)) != nullptr;
}

/// Without the factor of the tensor, which the product has.
Result<Matrix> dense_copy(Machine& machine, MatrixView view) {
  view.tensor_scale = 1;
  Matrix dense;
  dense.view.rows = view.rows;
  dense.view.cols = view.cols;
  const auto size = static_cast<std::size_t>(view.rows * view.cols) * sizeof(float);
  auto bytes = allocate_bytes(size);
  SUBBYTE_CHECK(
      cpu::dequantize(view, Format::kF32, bytes.get(), machine.kernels(), machine.executor()));
  dense.view.codes = {bytes.get(), size};
  dense.owners.push_back(std::move(bytes));
  return dense;
}

/// How a copy of `view` is made, which is made of its sources by `of` itself. The factor of the
/// tensor is no part of that, as no copy holds it.
Recipe recipe_within(const Recipe& of, const char* name, const MatrixView& view) {
  Recipe recipe = {name, of.numbers,
                   std::string(of.name) + ' ' + of.text + ' ' + to_string(view.format)};
  recipe.numbers.insert(recipe.numbers.end(), {view.rows, view.cols});
  return recipe;
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
Status widen_codes(ReadyWeights& ready, std::span<const Tensor* const> sources, const Recipe& of) {
  const MatrixView narrow = ready.main;
  if (with_whole_bytes(narrow.format) == narrow.format) return {};
  SUBBYTE_TRY(std::shared_ptr<const Matrix> copy,
              keep(recipe_within(of, "bytes", narrow), sources,
                   [&] { return Result<Matrix>(wide_codes(narrow)); }));
  ready.main.format = copy->view.format;
  ready.main.codes = copy->view.codes;
  if (!copy->view.zeros.empty()) ready.main.zeros = copy->view.zeros;
  ready.owners.push_back(std::move(copy));
  return {};
}

}  // namespace

Status set_offsets(ReadyWeights& ready, const MatrixView& matrix, int64_t group_size,
                   std::span<const Tensor* const> sources, const Recipe& of) {
  ready.offsets = matrix;
  ready.group_size = group_size;
  if (matrix.rows == 0) return {};
  SUBBYTE_TRY(std::shared_ptr<const Matrix> by_group,
              keep(recipe_within(of, "offsets by group", matrix), sources,
                   [&] { return Result<Matrix>(transposed(matrix)); }));
  ready.offsets_by_group = {reinterpret_cast<const float*>(by_group->view.codes.data()),
                            static_cast<std::size_t>(matrix.rows * matrix.cols)};
  ready.owners.push_back(std::move(by_group));
  return {};
}

Result<ReadyWeights> make_ready(Machine& machine, const MatrixView& view,
                                std::span<const Tensor* const> sources, const Recipe& of) {
  ReadyWeights ready;
  ready.main = view;
  ready.order = view.input_order;
  SUBBYTE_CHECK(split_offsets(ready, sources, of));
  SUBBYTE_CHECK(widen_codes(ready, sources, of));
  add_zeros(ready);
  if (has_kernel(machine.kernels(), ready.main)) return ready;
  const MatrixView packed = ready.main;
  SUBBYTE_TRY(
      std::shared_ptr<const Matrix> floats,
      keep(recipe_within(of, "f32", packed), sources, [&] { return dense_copy(machine, packed); }));
  ready.main = floats->view;
  ready.main.tensor_scale = view.tensor_scale;
  ready.owners.push_back(std::move(floats));
  return ready;
}

Result<std::shared_ptr<const ReadyWeights>> keep_ready(Machine& machine, const Recipe& recipe,
                                                       std::span<const Tensor* const> sources,
                                                       FunctionRef<Result<WithOffsets>()> make) {
  const auto make_all = [&]() -> Result<Matrix> {
    SUBBYTE_TRY(WithOffsets made, make());
    SUBBYTE_TRY(ReadyWeights ready, make_ready(machine, made.matrix.view, sources, recipe));
    SUBBYTE_CHECK(set_offsets(ready, made.offsets.view, made.group_size, sources, recipe));
    auto all = std::make_shared<ReadyWeights>(std::move(ready));
    for (Matrix* part : {&made.matrix, &made.offsets}) {
      for (auto& owner : part->owners) all->owners.push_back(std::move(owner));
    }
    Matrix kept;  // its view says how many bytes are held
    kept.view = made.matrix.view;
    kept.owners.push_back(std::move(all));
    return kept;
  };
  SUBBYTE_TRY(const auto kept, keep(recipe, sources, make_all));
  return std::static_pointer_cast<const ReadyWeights>(kept->owners.front());
}

}  // namespace subbyte::torch_operators
