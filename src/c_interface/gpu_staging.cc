#include "c_interface/gpu_staging.h"

#include <algorithm>
#include <string>

#include "c_interface/errors.h"
#include "kernels/cuda/ops/activations.h"
#include "kernels/cuda/ops/dequantize.h"
#include "kernels/cuda/ops/recast.h"
#include "kernels/cuda/packed_facts.h"
#include "kernels/gpu/supported_format.h"
#include "matrix/zero_points.h"

namespace subbyte::c {
namespace {

cuda::Stream as_stream(cudaStream_t stream) {
  return static_cast<cuda::Stream>(stream);
}

int64_t element_bits(const MatrixView& view) {
  return info(view.format.element).bits;
}

}  // namespace

MatrixOnGpu MatrixOnGpu::of(const MatrixView& view) {
  MatrixOnGpu made;
  made.view_ = view;
  return made;
}

Result<std::byte*> MatrixOnGpu::allocate(int64_t bytes) {
  SUBBYTE_TRY(GpuBytes made, GpuBytes::allocate(bytes));
  kept_.push_back(std::move(made));
  return kept_.back().data();
}

Status MatrixOnGpu::stage(std::span<const std::byte>& part, cudaStream_t stream) {
  if (part.empty()) return {};
  SUBBYTE_TRY(std::byte* const bytes, allocate(std::ssize(part)));
  const cudaError_t error =
      cudaMemcpyAsync(bytes, part.data(), part.size(), cudaMemcpyHostToDevice, stream);
  if (error != cudaSuccess) return gpu_error("cuda.copy", "copy to the GPU", error);
  part = {bytes, part.size()};
  return {};
}

Result<MatrixOnGpu> MatrixOnGpu::copy(const MatrixView& host, cudaStream_t stream) {
  MatrixOnGpu made;
  MatrixView& view = made.view_;
  view = host;
  SUBBYTE_CHECK(made.stage(view.codes, stream));
  SUBBYTE_CHECK(made.stage(view.scales, stream));
  SUBBYTE_CHECK(made.stage(view.zeros, stream));
  std::span<const std::byte> order = std::as_bytes(view.input_order);
  SUBBYTE_CHECK(made.stage(order, stream));
  view.input_order = {reinterpret_cast<const uint32_t*>(order.data()), view.input_order.size()};
  return made;
}

/// `stride`: 0 where rows follow each other already.
Status MatrixOnGpu::gather_rows(std::span<const std::byte>& part, int64_t stride,
                                cudaStream_t stream) {
  if (part.empty() || stride == 0) return {};
  const std::size_t width = part.size() / static_cast<std::size_t>(view_.rows);
  SUBBYTE_TRY(std::byte* const bytes, allocate(std::ssize(part)));
  const cudaError_t error =
      cudaMemcpy2DAsync(bytes, width, part.data(), static_cast<std::size_t>(stride), width,
                        static_cast<std::size_t>(view_.rows), cudaMemcpyDeviceToDevice, stream);
  if (error != cudaSuccess) return gpu_error("cuda.copy", "copy on the GPU", error);
  part = {bytes, part.size()};
  return {};
}

Result<MatrixOnGpu> MatrixOnGpu::gather(const Description& from, cudaStream_t stream) {
  MatrixOnGpu made;
  made.view_ = from.view;
  SUBBYTE_CHECK(made.gather_rows(made.view_.codes, from.strides[0], stream));
  SUBBYTE_CHECK(made.gather_rows(made.view_.scales, from.strides[1], stream));
  SUBBYTE_CHECK(made.gather_rows(made.view_.zeros, from.strides[2], stream));
  if (from.group_indices != nullptr) {
    SUBBYTE_CHECK(made.sort_inputs(from.group_indices, stream));
  }
  return made;
}

Status MatrixOnGpu::sort_inputs(const int32_t* group_indices, cudaStream_t stream) {
  const int64_t groups = view_.groups();
  const int64_t size = std::min(view_.group_size(), view_.cols);
  SUBBYTE_TRY(std::byte* const order_bytes, allocate(4 * view_.cols));
  SUBBYTE_TRY(std::byte* const memory, allocate(cuda::sort_bytes(view_.cols, groups)));
  auto* const order = reinterpret_cast<uint32_t*>(order_bytes);
  SUBBYTE_TRY(
      const cuda::SortedInputs sorted,
      cuda::sort_by_group(order, group_indices, view_.cols, size, memory, as_stream(stream)));
  if (sorted.count < 0) {
    return refuse("weights.group_indices", "groups from 0 to " + std::to_string(groups - 1),
                  sorted.bad_group);
  }
  if (sorted.bad_group >= 0) {
    const int64_t expected = std::min(size, view_.cols - sorted.bad_group * size);
    return refuse("weights.group_indices",
                  std::to_string(expected) + " inputs of group " + std::to_string(sorted.bad_group),
                  sorted.count);
  }
  if (sorted.is_identity) return {};
  SUBBYTE_TRY(std::byte* const codes, allocate(std::ssize(view_.codes)));
  SUBBYTE_CHECK(cuda::reorder_codes(codes, view_, order, as_stream(stream)));
  view_.codes = {codes, view_.codes.size()};
  view_.input_order = {order, static_cast<std::size_t>(view_.cols)};
  return {};
}

Result<gpu::PackedFacts> MatrixOnGpu::find_facts(cudaStream_t stream) const {
  SUBBYTE_TRY(const GpuBytes memory, GpuBytes::allocate(cuda::facts_bytes(view_.cols)));
  SUBBYTE_TRY(const cuda::MatrixFacts facts,
              cuda::find_facts(view_, memory.data(), as_stream(stream)));
  if (facts.bad_input < 0) return facts.packed;
  return refuse("weights.input_order", "every input once", facts.bad_input);
}

bool MatrixOnGpu::can_be_supported() const {
  WeightFormat format = gpu::supported_format(view_);
  if (format == view_.format || !is_dense(format)) return true;
  return view_.rows == 0 || cuda::check_dequantize(view_, Element::kF32, nullptr).ok();
}

Status MatrixOnGpu::support(cudaStream_t stream) {
  const WeightFormat served = gpu::supported_format(view_);
  if (served == view_.format) return {};
  if (is_dense(served)) return make_dense(stream);
  if (served.element == view_.format.element) return regroup(served, stream);
  SUBBYTE_CHECK(widen(with_whole_bytes(view_.format), stream));
  return support(stream);
}

/// The twin of with_whole_bytes().
Status MatrixOnGpu::widen(const WeightFormat& wide, cudaStream_t stream) {
  // Codes of signed integers have half of their range added.
  const int added = wide.element == Format::kI8 ? 128 - (1 << (element_bits(view_) - 1)) : 0;
  SUBBYTE_TRY(std::byte* const codes, allocate(view_.rows * view_.cols));
  SUBBYTE_CHECK(cuda::widen_codes(codes, view_, added, as_stream(stream)));
  view_.codes = {codes, static_cast<std::size_t>(view_.rows * view_.cols)};
  if (wide.zero != view_.format.zero) {
    SUBBYTE_TRY(std::byte* const zeros, allocate(2 * std::ssize(view_.zeros)));
    SUBBYTE_CHECK(cuda::repeat_groups(zeros, 2, view_.groups(), view_.zeros.data(), 1,
                                      view_.groups(), view_.rows, as_stream(stream)));
    view_.zeros = {zeros, 2 * view_.zeros.size()};
  }
  view_.format = wide;
  return {};
}

/// The twin of with_group_size() for smaller groups, which divide the larger ones.
Status MatrixOnGpu::regroup(const WeightFormat& regrouped, cudaStream_t stream) {
  const int64_t before = view_.groups();
  const int64_t after = view_.cols / regrouped.group_size;
  for (std::span<const std::byte>* part : {&view_.scales, &view_.zeros}) {
    if (part->empty()) continue;
    const int width = static_cast<int>(std::ssize(*part) / (view_.rows * before));
    const int64_t size = view_.rows * after * width;
    SUBBYTE_TRY(std::byte* const bytes, allocate(size));
    SUBBYTE_CHECK(cuda::repeat_groups(bytes, width, after, part->data(), width, before, view_.rows,
                                      as_stream(stream)));
    *part = {bytes, static_cast<std::size_t>(size)};
  }
  view_.format = regrouped;
  return {};
}

/// In f16, or in bf16 where gpu::supported_format() says so of the largest weight.
Status MatrixOnGpu::make_dense(cudaStream_t stream) {
  SUBBYTE_CHECK(find_facts(stream));  // weights go where the order of inputs says
  const int64_t count = view_.rows * view_.cols;
  SUBBYTE_TRY(const GpuBytes floats, GpuBytes::allocate(4 * count));
  SUBBYTE_TRY(const GpuBytes memory, GpuBytes::allocate(4));
  SUBBYTE_CHECK(cuda::dequantize(view_, Element::kF32, floats.data(), as_stream(stream)));
  SUBBYTE_TRY(const float largest,
              cuda::largest_float(reinterpret_cast<const float*>(floats.data()), count,
                                  memory.data(), as_stream(stream)));
  const bool is_f16 = gpu::fits_f16(largest);
  SUBBYTE_TRY(std::byte* const numbers, allocate(2 * count));
  SUBBYTE_CHECK(cuda::run_epilogue({.sums = floats.data(),
                                    .y = numbers,
                                    .element = is_f16 ? Element::kF16 : Element::kBF16,
                                    .m = view_.rows,
                                    .cols = view_.cols,
                                    .sums_stride = view_.cols,
                                    .y_stride = view_.cols},
                                   as_stream(stream)));
  MatrixView dense;
  dense.format.element = is_f16 ? Format::kF16 : Format::kBF16;
  dense.format.scale = Format::kNone;
  dense.rows = view_.rows;
  dense.cols = view_.cols;
  dense.codes = {numbers, static_cast<std::size_t>(2 * count)};
  view_ = dense;
  // The floats are freed here, which waits for what reads them.
  return {};
}

}  // namespace subbyte::c
