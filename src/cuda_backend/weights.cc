#include "cuda_backend/weights.h"

#include <string>

#include "base/float16.h"
#include "device/joined_matrices.h"
#include "kernels/gpu/supported_format.h"

namespace subbyte {
namespace {

Result<CudaMatrix> upload_joined(std::span<const Matrix> matrices, std::span<const float> bias,
                                 const WeightTarget& target) {
  const MatrixView& first = matrices.front().view;
  const bool may_be_gated = matrices.size() == 2 && first.rows == matrices[1].view.rows;
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
  CudaWeight weight;
  if (device::can_join(matrices)) {
    SUBBYTE_TRY(weight.parts.emplace_back(), upload_joined(matrices, bias, target));
    return weight;
  }
  int64_t first = 0;
  for (Matrix& matrix : matrices) {
    const Matrix one = std::move(matrix);
    const int64_t rows = one.view.rows;
    std::span<const float> part_bias;
    if (!bias.empty()) part_bias = bias.subspan(first, rows);
    SUBBYTE_TRY(weight.parts.emplace_back(), upload_joined({&one, 1}, part_bias, target));
    first += rows;
  }
  return weight;
}

}  // namespace subbyte
