#include "cuda_backend/weights.h"

#include <algorithm>
#include <string>

#include "base/float16.h"
#include "device/joined_matrices.h"
#include "kernels/gpu/supported_format.h"

namespace subbyte {
namespace {

/// How many matrices from the first on can be joined.
std::size_t joinable(std::span<const Matrix> matrices) {
  std::size_t count = 1;
  while (count < matrices.size() && device::can_join(matrices.first(count + 1))) ++count;
  return count;
}

Result<CudaMatrix> upload_joined(std::span<const Matrix> matrices, std::span<const float> bias,
                                 bool may_be_gated, const WeightTarget& target) {
  const MatrixView& first = matrices.front().view;
  auto weights = device::PackedMatrix::upload(
      matrices, first, may_be_gated ? gpu::RowOrder::kGateAboveUp : gpu::RowOrder::kNatural,
      target.gpu, target.uploader);
  if (!weights.ok()) return unpackable(std::move(weights).error());
  CudaMatrix matrix = {*std::move(weights), target.number};
  SUBBYTE_TRY(matrix.bias, upload_bias(bias, !matrix.is_dense(), target));
  return matrix;
}

}  // namespace

Error unpackable(Error error) {
  if (error.code == "cuda.format" || error.code == "cuda.shape") error.code = "linear.unsupported";
  return error;
}

void SupportNotes::add(const std::vector<Matrix>& matrices) {
  for (const Matrix& matrix : matrices) {
    const MatrixView& view = matrix.view;
    const WeightFormat served = gpu::supported_format(view);
    if (served != view.format) ++matrices_[to_string(view.format) + " as " + to_string(served)];
  }
}

std::string SupportNotes::text() const {
  std::string text;
  for (const auto& [formats, count] : matrices_) {
    text += ", " + std::to_string(count) + " matrices of " + formats;
  }
  return text;
}

const float* floats_of(const Vector& vector) {
  if (vector.storage == nullptr || vector.size == 0) return nullptr;
  return reinterpret_cast<const float*>(
      static_cast<const device::Buffer*>(vector.storage.get())->data());
}

Result<device::Buffer> upload_bytes(std::span<const std::byte> bytes, const WeightTarget& target) {
  SUBBYTE_TRY(device::Buffer memory, target.gpu.allocate(std::ssize(bytes)));
  SUBBYTE_CHECK(target.uploader.copy(memory.data(), bytes, target.gpu));
  return memory;
}

Result<device::Buffer> upload_bias(std::span<const float> bias, bool is_packed,
                                   const WeightTarget& target) {
  if (!is_packed) return upload_bytes(std::as_bytes(bias), target);
  std::vector<uint16_t> numbers;
  for (const float value : bias) {
    numbers.push_back(target.number == gpu::Number::kF16 ? to_float16(value).bits
                                                         : to_bfloat16(value).bits);
  }
  return upload_bytes(std::as_bytes(std::span(numbers)), target);
}

Result<CudaWeight> upload_weight(std::vector<Matrix> matrices, std::span<const float> bias,
                                 const WeightTarget& target) {
  for (Matrix& matrix : matrices) {
    SUBBYTE_TRY(matrix, gpu::support(std::move(matrix), target.uploader.host()));
  }
  const bool may_be_gated = matrices.size() == 2 && matrices[0].view.rows == matrices[1].view.rows;
  CudaWeight weight;
  std::span<Matrix> left = matrices;
  while (!left.empty()) {
    const std::size_t count = joinable(left);
    int64_t rows = 0;
    for (const Matrix& matrix : left.first(count)) rows += matrix.view.rows;
    const std::span<const float> part_bias = bias.empty() ? bias : bias.first(rows);
    SUBBYTE_TRY(weight.parts.emplace_back(),
                upload_joined(left.first(count), part_bias, may_be_gated && count == 2, target));
    std::ranges::fill(left.first(count), Matrix());  // lets go of their bytes
    left = left.subspan(count);
    if (!bias.empty()) bias = bias.subspan(rows);
  }
  return weight;
}

}  // namespace subbyte
