#include "c_interface/weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "c_interface/errors.h"
#include "c_interface/gpu.h"
#include "checkpoints/act_order.h"
#include "matrix/codebook.h"
#include "matrix/input_order.h"

namespace subbyte::c {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int kMaxElementBits = 8;  // of those that are scaled

Result<Zero> zero_of(int32_t zero) {
  switch (zero) {
    case SUBBYTE_NONE:
      return Zero::kNone;
    case SUBBYTE_U8:
      return Zero::kU8;
    case SUBBYTE_U16:
      return Zero::kU16;
    case SUBBYTE_F16:
      return Zero::kF16;
    case SUBBYTE_BF16:
      return Zero::kBF16;
    case SUBBYTE_F32:
      return Zero::kF32;
    case SUBBYTE_U4:
      return Zero::kOffsetU4;
    case SUBBYTE_U6:
      return Zero::kOffsetU6;
    default:
      return refuse("weights.zero",
                    "SUBBYTE_NONE, SUBBYTE_U8, SUBBYTE_U16, SUBBYTE_F16, SUBBYTE_BF16, "
                    "SUBBYTE_F32, SUBBYTE_U4 or SUBBYTE_U6",
                    zero);
  }
}

int32_t number_of_zero(Zero zero) {
  constexpr std::array<int32_t, 8> kNumbers = {SUBBYTE_NONE, SUBBYTE_U8,  SUBBYTE_U16, SUBBYTE_F16,
                                               SUBBYTE_BF16, SUBBYTE_F32, SUBBYTE_U4,  SUBBYTE_U6};
  return kNumbers[static_cast<std::size_t>(zero)];
}

Result<WeightFormat> read_format(const subbyte_weights& w) {
  WeightFormat format;
  SUBBYTE_TRY(format.element, format_of("weights.element", w.element));
  SUBBYTE_TRY(format.zero, zero_of(w.zero));
  const FormatInfo& element = info(format.element);
  if (w.scale == SUBBYTE_NONE) {
    SUBBYTE_CHECK(float_of("weights.element without a scale", w.element));
    if (format.zero == Zero::kNone) return format;
    return refuse("weights.zero", "SUBBYTE_NONE without a scale", w.zero);
  }
  SUBBYTE_TRY(format.scale, format_of("weights.scale", w.scale));
  if (!is_scale(format.scale)) {
    return refuse("weights.scale", "a format of whole bytes or an integer",
                  info(format.scale).name);
  }
  if (element.bits > kMaxElementBits) {
    return refuse("weights.element", "up to 8 bits where there is a scale", element.name);
  }
  if (w.group_size < 0 || w.group_size > kMaxSize) {
    return refuse("weights.group_size", "0 to 2^24", w.group_size);
  }
  format.group_size = w.group_size;
  if (has_two_levels(format) && (w.group_size == 0 || kSuperblock % w.group_size != 0)) {
    return refuse("weights.group_size", "a part of 256 where scales have two levels", w.group_size);
  }
  return format;
}

/// One of the buffers of a description.
struct Part {
  const char* name;
  const void* address;
  int64_t rows;
  int64_t width;   // bytes of a row
  int64_t stride;  // 0: the width
  int64_t bytes;   // that the caller says there are; 0: not told
};

Result<std::span<const std::byte>> read_part(const Part& part) {
  const std::string name = part.name;
  if (part.rows * part.width == 0) return std::span<const std::byte>();
  if (part.address == nullptr) {
    return Error{"c.null", "weights." + name + ": expected an address, found NULL"};
  }
  if (part.stride != 0 && part.stride < part.width) {
    return refuse("weights." + name + "_stride",
                  "0 or at least " + std::to_string(part.width) + " bytes", part.stride);
  }
  const int64_t stride = part.stride == 0 ? part.width : part.stride;
  const int64_t needed = (part.rows - 1) * stride + part.width;
  if (part.bytes != 0 && part.bytes < needed) {
    return refuse("weights." + name + "_bytes",
                  "0 or at least " + std::to_string(needed) + " for this shape", part.bytes);
  }
  return std::span(static_cast<const std::byte*>(part.address),
                   static_cast<std::size_t>(part.rows * part.width));
}

Status read_shape(const subbyte_weights& w, MatrixView& view) {
  if (w.rows < 0 || w.rows > kMaxSize) return refuse("weights.rows", "0 to 2^24", w.rows);
  if (w.cols < 1 || w.cols > kMaxSize) return refuse("weights.cols", "1 to 2^24", w.cols);
  view.rows = w.rows;
  view.cols = w.cols;
  for (const int64_t stride : {w.codes_stride, w.scales_stride, w.zeros_stride}) {
    if (stride >= 0 && stride <= kMaxSize * 16) continue;
    return refuse("weights: a stride", "0 to 2^28 bytes", stride);
  }
  return {};
}

Status read_parts(const subbyte_weights& w, Description& description) {
  MatrixView& view = description.view;
  const Part parts[] = {
      {"codes", w.codes, view.rows, view.row_bytes(), w.codes_stride, w.codes_bytes},
      {"scales", w.scales, view.rows, view.scale_row_bytes(), w.scales_stride, w.scales_bytes},
      {"zeros", w.zeros, view.rows, view.zero_row_bytes(), w.zeros_stride, w.zeros_bytes}};
  std::span<const std::byte>* const spans[] = {&view.codes, &view.scales, &view.zeros};
  for (int i = 0; i < 3; ++i) {
    SUBBYTE_TRY(*spans[i], read_part(parts[i]));
    const bool is_spread = parts[i].stride != 0 && parts[i].stride != parts[i].width;
    description.strides[i] = is_spread && !spans[i]->empty() ? parts[i].stride : 0;
  }
  return {};
}

Status read_codebook(const subbyte_weights& w, MatrixView& view) {
  if (w.codebook == nullptr) return {};
  SUBBYTE_CHECK(check_on_host({{"weights.codebook", w.codebook}}));
  const FormatInfo& element = info(view.format.element);
  if (!may_have_codebook(view.format.element)) {
    return refuse("weights.codebook", "NULL, or elements of nfl2 to nfl5, vq2 or vq4",
                  element.name);
  }
  view.codebook = {w.codebook, static_cast<std::size_t>(view.num_codes())};
  const std::string fault = codebook_fault(view.codebook, view.format.element);
  if (fault.empty()) return {};
  return Error{"c.argument", "weights.codebook: expected " + fault};
}

/// All buffers lie on one machine.
Status find_device(Description& description) {
  const MatrixView& view = description.view;
  const void* const addresses[] = {view.codes.data(), view.scales.data(), view.zeros.data(),
                                   view.input_order.data(), description.group_indices};
  bool is_first = true;
  for (const void* address : addresses) {
    if (address == nullptr) continue;
    const int device = device::gpu_of(address);
    if (!is_first && device != description.device) {
      return Error{"c.argument",
                   "weights: expected all buffers on the host or on one GPU, found some on " +
                       std::to_string(device) + " and some on " +
                       std::to_string(description.device) + " (-1 is the host)"};
    }
    description.device = device;
    is_first = false;
  }
  return {};
}

/// Inputs in the order of their groups, by a stable sort, and as many of each as a group has.
Result<std::vector<uint32_t>> sort_by_group(std::span<const int32_t> indices, int64_t group_size,
                                            int64_t groups) {
  std::vector<int64_t> counts(groups);
  for (const int32_t group : indices) {
    if (group < 0 || group >= groups) {
      return refuse("weights.group_indices", "groups from 0 to " + std::to_string(groups - 1),
                    group);
    }
    ++counts[group];
  }
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t expected = std::min(group_size, std::ssize(indices) - group * group_size);
    if (counts[group] == expected) continue;
    return refuse("weights.group_indices",
                  std::to_string(expected) + " inputs of group " + std::to_string(group),
                  counts[group]);
  }
  std::vector<uint32_t> order(indices.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, {}, [&](uint32_t input) { return indices[input]; });
  return order;
}

/// A copy in which rows follow each other, unless they do so where they are and may stay.
void gather(std::span<const std::byte>& part, int64_t rows, int64_t stride, bool borrows,
            Matrix& owner) {
  if (part.empty() || (borrows && stride == 0)) return;
  const auto bytes = allocate_bytes(part.size());
  const auto size = static_cast<int64_t>(part.size());
  const int64_t copies = stride == 0 ? 1 : rows;
  const int64_t width = size / copies;
  for (int64_t row = 0; row < copies; ++row) {
    std::memcpy(bytes.get() + row * width, part.data() + row * stride,
                static_cast<std::size_t>(width));
  }
  part = {bytes.get(), part.size()};
  owner.owners.push_back(bytes);
}

Status sort_inputs(const Description& description, Executor& pool, Matrix& matrix) {
  MatrixView& view = matrix.view;
  const std::span indices(description.group_indices, static_cast<std::size_t>(view.cols));
  auto order = std::make_shared<std::vector<uint32_t>>();
  SUBBYTE_TRY(*order, sort_by_group(indices, view.group_size(), view.groups()));
  if (std::ranges::is_sorted(*order)) return {};
  const auto codes = allocate_bytes(view.codes.size());
  std::ranges::copy(view.codes, codes.get());
  reorder_codes(codes.get(), view, *order, pool);
  view.codes = {codes.get(), view.codes.size()};
  view.input_order = *order;
  matrix.owners.push_back(codes);
  matrix.owners.push_back(order);
  return {};
}

}  // namespace

Result<Description> read_weights(const subbyte_weights* from) {
  SUBBYTE_TRY(const subbyte_weights w, read_struct("weights", from));
  Description description;
  MatrixView& view = description.view;
  SUBBYTE_TRY(view.format, read_format(w));
  SUBBYTE_CHECK(read_shape(w, view));
  SUBBYTE_CHECK(read_parts(w, description));
  SUBBYTE_CHECK(read_codebook(w, view));
  if (!std::isfinite(w.tensor_scale)) {
    return refuse("weights.tensor_scale", "a finite number", std::to_string(w.tensor_scale));
  }
  if (w.tensor_scale != 0) view.tensor_scale = w.tensor_scale;
  if (w.row_order < SUBBYTE_ROWS_NATURAL || w.row_order > SUBBYTE_ROWS_GATE_UP_PAIRS) {
    return refuse("weights.row_order", "0 to 2 (enum subbyte_row_order)", w.row_order);
  }
  if (w.row_order != SUBBYTE_ROWS_NATURAL && w.rows % 2 != 0) {
    return refuse("weights.rows", "an even number with gate and up", w.rows);
  }
  description.row_order = static_cast<gpu::RowOrder>(w.row_order);
  if (w.input_order != nullptr && w.group_indices != nullptr) {
    return Error{"c.argument",
                 "weights: expected one of input_order and group_indices, found both"};
  }
  const bool has_order = w.input_order != nullptr || w.group_indices != nullptr;
  if (has_order && has_two_levels(view.format)) {
    return Error{"c.argument",
                 "weights: expected no order of inputs beside scales of two levels, found one"};
  }
  if (w.input_order != nullptr) {
    view.input_order = {w.input_order, static_cast<std::size_t>(w.cols)};
  }
  if (w.group_indices != nullptr && !is_dense(view.format)) {
    description.group_indices = w.group_indices;
  }
  description.borrows = w.borrow != 0;
  SUBBYTE_CHECK(find_device(description));
  return description;
}

Result<Matrix> to_matrix(const Description& description, Executor& pool) {
  Matrix matrix{description.view, {}};
  MatrixView& view = matrix.view;
  const bool borrows = description.borrows;
  std::span<const std::byte>* const parts[] = {&view.codes, &view.scales, &view.zeros};
  for (int i = 0; i < 3; ++i) {
    gather(*parts[i], view.rows, description.strides[i], borrows, matrix);
  }
  if (!view.codebook.empty() && !borrows) {
    auto codebook =
        std::make_shared<std::vector<float>>(view.codebook.begin(), view.codebook.end());
    view.codebook = *codebook;
    matrix.owners.push_back(codebook);
  }
  if (description.group_indices != nullptr) {
    SUBBYTE_CHECK(sort_inputs(description, pool, matrix));
  } else if (!view.input_order.empty()) {
    if (!borrows) {
      const auto order =
          std::make_shared<std::vector<uint32_t>>(view.input_order.begin(), view.input_order.end());
      view.input_order = *order;
      matrix.owners.push_back(order);
    }
    const std::string fault = input_order_fault(view.input_order);
    if (!fault.empty()) return Error{"c.argument", "weights.input_order: expected " + fault};
  }
  return matrix;
}

subbyte_weights describe(const MatrixView& view, gpu::RowOrder row_order, int device) {
  subbyte_weights w = {};
  w.element = number_of(view.format.element);
  w.scale = number_of(view.format.scale);
  w.zero = number_of_zero(view.format.zero);
  w.row_order = static_cast<int32_t>(row_order);
  w.group_size = view.format.group_size;
  w.rows = view.rows;
  w.cols = view.cols;
  w.codes = view.codes.data();
  w.scales = view.scales.data();
  w.zeros = view.zeros.data();
  w.input_order = view.input_order.data();
  w.codebook = view.codebook.data();
  w.tensor_scale = view.tensor_scale;
  w.codes_bytes = static_cast<int64_t>(view.codes.size());
  w.scales_bytes = static_cast<int64_t>(view.scales.size());
  w.zeros_bytes = static_cast<int64_t>(view.zeros.size());
  w.device = device;
  return w;
}

}  // namespace subbyte::c
