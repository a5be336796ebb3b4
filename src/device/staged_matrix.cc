#include "device/staged_matrix.h"

#include <algorithm>
#include <memory>
#include <string>

#include "device/operands.h"
#include "kernels/cuda/elementwise/activations.h"
#include "kernels/cuda/layouts/recast.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/packed_facts.h"
#include "kernels/cuda/quantize/dequantize.h"
#include "kernels/gpu/supported_format.h"
#include "matrix/zero_points.h"

namespace subbyte::device {
namespace {

int64_t element_bits(const MatrixView& view) {
  return info(view.format.element).bits;
}

Status check_may_wait(const Gpu& gpu) {
  if (!gpu.is_captured()) return {};
  return Error{"cuda.capture",
               "values of these weights have to be looked at, which cannot be while the stream is "
               "captured: make the call once before"};
}

}  // namespace

StagedMatrix StagedMatrix::of(const MatrixView& view) {
  StagedMatrix made;
  made.view_ = view;
  return made;
}

MatrixView StagedMatrix::part(int64_t index, int64_t parts) const {
  const auto cut = [&](std::span<const std::byte> bytes) {
    const auto size = bytes.size() / static_cast<std::size_t>(parts);
    return bytes.subspan(static_cast<std::size_t>(index) * size, size);
  };
  MatrixView one = view_;
  one.rows = view_.rows / parts;
  one.codes = cut(view_.codes);
  one.scales = cut(view_.scales);
  one.zeros = cut(view_.zeros);
  return one;
}

Result<std::byte*> StagedMatrix::allocate(int64_t bytes, const Gpu& gpu) {
  SUBBYTE_TRY(Buffer made, gpu.allocate(bytes));
  kept_.push_back(std::move(made));
  return kept_.back().data();
}

/// `stride`: 0 where rows follow each other already.
Status StagedMatrix::gather_rows(std::span<const std::byte>& part, int64_t stride, const Gpu& gpu) {
  if (part.empty() || stride == 0) return {};
  const int64_t width = std::ssize(part) / view_.rows;
  SUBBYTE_TRY(std::byte* const bytes, allocate(std::ssize(part), gpu));
  SUBBYTE_CHECK(gpu.copy_rows(bytes, width, part.data(), stride, width, view_.rows));
  part = {bytes, part.size()};
  return {};
}

Result<StagedMatrix> StagedMatrix::gather(const StridedMatrix& from, const Gpu& gpu) {
  StagedMatrix made;
  made.view_ = from.view;
  SUBBYTE_CHECK(made.gather_rows(made.view_.codes, from.strides[0], gpu));
  SUBBYTE_CHECK(made.gather_rows(made.view_.scales, from.strides[1], gpu));
  SUBBYTE_CHECK(made.gather_rows(made.view_.zeros, from.strides[2], gpu));
  if (from.group_indices != nullptr) {
    SUBBYTE_CHECK(made.sort_inputs(from.group_indices, gpu));
  }
  return made;
}

Status StagedMatrix::sort_inputs(const int32_t* group_indices, const Gpu& gpu) {
  SUBBYTE_CHECK(check_may_wait(gpu));
  const int64_t groups = view_.groups();
  const int64_t size = std::min(view_.group_size(), view_.cols);
  SUBBYTE_TRY(std::byte* const order_bytes, allocate(4 * view_.cols, gpu));
  SUBBYTE_TRY(std::byte* const memory, allocate(cuda::sort_bytes(view_.cols, groups), gpu));
  auto* const order = reinterpret_cast<uint32_t*>(order_bytes);
  SUBBYTE_TRY(const cuda::SortedInputs sorted,
              cuda::sort_by_group(order, group_indices, view_.cols, size, memory, gpu.stream()));
  if (sorted.count < 0) {
    return refuse("group_indices", "groups from 0 to " + std::to_string(groups - 1),
                  sorted.bad_group);
  }
  if (sorted.bad_group >= 0) {
    const int64_t expected = std::min(size, view_.cols - sorted.bad_group * size);
    return refuse("group_indices",
                  std::to_string(expected) + " inputs of group " + std::to_string(sorted.bad_group),
                  sorted.count);
  }
  if (sorted.is_identity) return {};
  SUBBYTE_TRY(std::byte* const codes, allocate(std::ssize(view_.codes), gpu));
  SUBBYTE_CHECK(cuda::reorder_codes(codes, view_, order, gpu.stream()));
  view_.codes = {codes, view_.codes.size()};
  view_.input_order = {order, static_cast<std::size_t>(view_.cols)};
  return {};
}

Result<gpu::PackedFacts> StagedMatrix::find_facts(const Gpu& gpu) const {
  SUBBYTE_CHECK(check_may_wait(gpu));
  SUBBYTE_TRY(const Buffer memory, gpu.allocate(cuda::facts_bytes(view_.cols)));
  SUBBYTE_TRY(const cuda::MatrixFacts facts, cuda::find_facts(view_, memory.data(), gpu.stream()));
  if (facts.bad_input < 0) return facts.packed;
  return refuse("input_order", "every input once", facts.bad_input);
}

bool StagedMatrix::can_be_supported() const {
  WeightFormat format = gpu::supported_format(view_);
  if (format == view_.format) return true;
  if (has_two_levels(view_.format)) return false;
  if (!is_dense(format)) return true;
  return view_.rows == 0 || cuda::check_dequantize(view_, Element::kF32, nullptr).ok();
}

Status StagedMatrix::support(const Gpu& gpu) {
  const WeightFormat served = gpu::supported_format(view_);
  if (served == view_.format) return {};
  if (is_dense(served)) return make_dense(gpu);
  if (served.element == view_.format.element) return regroup(served, gpu);
  SUBBYTE_CHECK(widen(with_whole_bytes(view_.format), gpu));
  return support(gpu);
}

/// The twin of with_whole_bytes().
Status StagedMatrix::widen(const WeightFormat& wide, const Gpu& gpu) {
  // Codes of signed integers have half of their range added.
  const int added = wide.element == Format::kI8 ? 128 - (1 << (element_bits(view_) - 1)) : 0;
  SUBBYTE_TRY(std::byte* const codes, allocate(view_.rows * view_.cols, gpu));
  SUBBYTE_CHECK(cuda::widen_codes(codes, view_, added, gpu.stream()));
  view_.codes = {codes, static_cast<std::size_t>(view_.rows * view_.cols)};
  if (wide.zero != view_.format.zero) {
    SUBBYTE_TRY(std::byte* const zeros, allocate(2 * std::ssize(view_.zeros), gpu));
    SUBBYTE_CHECK(cuda::repeat_groups(zeros, 2, view_.groups(), view_.zeros.data(), 1,
                                      view_.groups(), 1, view_.rows, gpu.stream()));
    view_.zeros = {zeros, 2 * view_.zeros.size()};
  }
  view_.format = wide;
  return {};
}

/// The twin of with_group_size() for smaller groups, which divide the larger ones.
Status StagedMatrix::regroup(const WeightFormat& regrouped, const Gpu& gpu) {
  const int64_t before = view_.groups();
  const int64_t after = (view_.cols - 1) / regrouped.group_size + 1;
  const int64_t times = view_.group_size() / regrouped.group_size;
  for (std::span<const std::byte>* part : {&view_.scales, &view_.zeros}) {
    if (part->empty()) continue;
    const int width = static_cast<int>(std::ssize(*part) / (view_.rows * before));
    const int64_t size = view_.rows * after * width;
    SUBBYTE_TRY(std::byte* const bytes, allocate(size, gpu));
    SUBBYTE_CHECK(cuda::repeat_groups(bytes, width, after, part->data(), width, before, times,
                                      view_.rows, gpu.stream()));
    *part = {bytes, static_cast<std::size_t>(size)};
  }
  view_.format = regrouped;
  return {};
}

/// In f16, or in bf16 where gpu::supported_format() says so of the largest weight.
Status StagedMatrix::make_dense(const Gpu& gpu) {
  SUBBYTE_CHECK(find_facts(gpu));  // weights go where the order of inputs says
  const int64_t count = view_.rows * view_.cols;
  SUBBYTE_TRY(const Buffer floats, gpu.allocate(4 * count));
  SUBBYTE_TRY(const Buffer memory, gpu.allocate(4));
  SUBBYTE_CHECK(cuda::dequantize(view_, Element::kF32, floats.data(), gpu.stream()));
  SUBBYTE_TRY(const float largest,
              cuda::largest_float(reinterpret_cast<const float*>(floats.data()), count,
                                  memory.data(), gpu.stream()));
  const bool is_f16 = gpu::fits_f16(largest);
  SUBBYTE_TRY(std::byte* const numbers, allocate(2 * count, gpu));
  SUBBYTE_CHECK(cuda::run_epilogue({.sums = floats.data(),
                                    .y = numbers,
                                    .element = is_f16 ? Element::kF16 : Element::kBF16,
                                    .m = view_.rows,
                                    .cols = view_.cols,
                                    .sums_stride = view_.cols,
                                    .y_stride = view_.cols},
                                   gpu.stream()));
  MatrixView dense;
  dense.format.element = is_f16 ? Format::kF16 : Format::kBF16;
  dense.format.scale = Format::kNone;
  dense.rows = view_.rows;
  dense.cols = view_.cols;
  dense.codes = {numbers, static_cast<std::size_t>(2 * count)};
  view_ = dense;
  return {};
}

Result<StagedMatrix> StagedMatrix::unpack(const std::byte* packed, const gpu::PackedFormat& format,
                                          const MatrixView& shape, const Gpu& gpu) {
  const int64_t sizes[] = {shape.rows * shape.row_bytes(), shape.rows * shape.scale_row_bytes(),
                           shape.rows * shape.zero_row_bytes()};
  StagedMatrix made;
  std::byte* at[3];
  for (int i = 0; i < 3; ++i) {
    SUBBYTE_TRY(at[i], made.allocate(sizes[i], gpu));
  }
  SUBBYTE_CHECK(cuda::unpack_on_device(at[0], at[1], at[2], packed, format, gpu.stream()));
  const auto section = [&](int i) {
    return std::span<const std::byte>(at[i], static_cast<std::size_t>(sizes[i]));
  };
  made.view_ = shape;
  made.view_.codes = section(0);
  made.view_.scales = section(1);
  made.view_.zeros = section(2);
  if (format.gather_begin < format.bytes) {
    made.view_.input_order = {reinterpret_cast<const uint32_t*>(packed + format.gather_begin),
                              static_cast<std::size_t>(shape.cols)};
  }
  return made;
}

Result<Matrix> StagedMatrix::to_host(const Gpu& gpu) const {
  Matrix copy{view_, {}};
  const auto fetch = [&](std::span<const std::byte>& part) -> Status {
    if (part.empty()) return {};
    const auto bytes = allocate_bytes(part.size());
    SUBBYTE_CHECK(gpu.fetch(bytes.get(), part.data(), std::ssize(part)));
    part = {bytes.get(), part.size()};
    copy.owners.push_back(bytes);
    return {};
  };
  SUBBYTE_CHECK(fetch(copy.view.codes));
  SUBBYTE_CHECK(fetch(copy.view.scales));
  SUBBYTE_CHECK(fetch(copy.view.zeros));
  std::span<const std::byte> order = std::as_bytes(copy.view.input_order);
  SUBBYTE_CHECK(fetch(order));
  copy.view.input_order = {reinterpret_cast<const uint32_t*>(order.data()),
                           copy.view.input_order.size()};
  const auto codebook =
      std::make_shared<std::vector<float>>(view_.codebook.begin(), view_.codebook.end());
  copy.view.codebook = *codebook;
  copy.owners.push_back(codebook);
  return copy;
}

}  // namespace subbyte::device
