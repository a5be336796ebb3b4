#pragma once
// Weights as the backend of GPUs describes them, without a GPU: their addresses are not looked at.

#include <memory>
#include <utility>
#include <vector>

#include "cuda_backend/weights.h"
#include "support/random_matrix.h"

namespace subbyte::testing {

inline constexpr WeightFormat kAwq = {Format::kU4, Format::kF16, Zero::kU8, 128};

inline Weight weight_of(std::vector<CudaMatrix> parts) {
  Weight weight;
  weight.cols = parts.front().cols();
  for (const CudaMatrix& part : parts) weight.rows += part.rows();
  weight.storage = std::make_shared<const CudaWeight>(CudaWeight{std::move(parts)});
  return weight;
}

inline CudaMatrix dense(int64_t rows, int64_t cols, Format element = Format::kF32) {
  MatrixView view;
  view.format.element = element;
  view.rows = rows;
  view.cols = cols;
  return {std::make_shared<const device::PackedMatrix>(device::Buffer(), view, view,
                                                       gpu::RowOrder::kNatural, cuda::Device(), 0)};
}

inline CudaMatrix packed(int64_t rows, int64_t cols, const WeightFormat& format = kAwq,
                         gpu::RowOrder order = gpu::RowOrder::kNatural) {
  const auto matrix = random_matrix(format, rows, cols, Contents::kReal, 1);
  return {std::make_shared<const device::PackedMatrix>(device::Buffer(), matrix.view, matrix.view,
                                                       *gpu::packed_format(matrix.view, order),
                                                       cuda::Device(), 0)};
}

}  // namespace subbyte::testing
