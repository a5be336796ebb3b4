#include "cuda_backend/weights.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "base/float16.h"

namespace subbyte {
namespace {

std::span<const std::byte> bytes_of(std::span<const uint32_t> words) {
  return std::as_bytes(words);
}

/// Several matrices as one: what of them the packed form is decided by is on the host, all of it
/// on the GPU.
struct Joined {
  MatrixView on_host;  // but for the codes
  std::vector<std::byte> scales, zeros;
  MatrixView on_device;
  CudaBuffer memory;
};

bool are_equal(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  return std::ranges::equal(a, b);
}

bool can_join(const std::vector<Matrix>& matrices) {
  const MatrixView& first = matrices.front().view;
  return std::ranges::all_of(matrices, [&](const Matrix& matrix) {
    const MatrixView& view = matrix.view;
    return view.format == first.format && view.cols == first.cols &&
           view.tensor_scale == first.tensor_scale &&
           are_equal(view.input_order, first.input_order);
  });
}

constexpr int64_t kAlignment = 256;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Sections of device memory that are filled one span after the other.
class Filler {
 public:
  explicit Filler(CudaBuffer& memory) : memory_(memory) {}

  Status append(std::span<const std::byte> bytes) {
    if (bytes.empty()) return {};
    const cudaError_t error =
        cudaMemcpy(memory_.data() + at_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    if (error != cudaSuccess) return cuda_error("cuda.copy", "copy to the GPU", error);
    at_ += static_cast<int64_t>(bytes.size());
    return {};
  }

  /// What was appended since the last section.
  std::span<const std::byte> end_section() {
    const std::span<const std::byte> section(memory_.data() + begin_, at_ - begin_);
    begin_ = at_ = aligned(at_);
    return section;
  }

 private:
  CudaBuffer& memory_;
  int64_t begin_ = 0;
  int64_t at_ = 0;
};

Status fill(Joined& joined, const std::vector<Matrix>& matrices) {
  int64_t bytes = 0;
  for (const Matrix& matrix : matrices) bytes += matrix.view.bytes();
  SUBBYTE_CHECK(joined.memory.grow(bytes + 4 * kAlignment));
  Filler filler(joined.memory);
  for (const Matrix& matrix : matrices) SUBBYTE_CHECK(filler.append(matrix.view.codes));
  joined.on_device.codes = filler.end_section();
  SUBBYTE_CHECK(filler.append(joined.scales));
  joined.on_device.scales = filler.end_section();
  SUBBYTE_CHECK(filler.append(joined.zeros));
  joined.on_device.zeros = filler.end_section();
  SUBBYTE_CHECK(filler.append(bytes_of(joined.on_host.input_order)));
  const std::span<const std::byte> order = filler.end_section();
  joined.on_device.input_order = {reinterpret_cast<const uint32_t*>(order.data()),
                                  joined.on_host.input_order.size()};
  return {};
}

Result<Joined> join(const std::vector<Matrix>& matrices) {
  Joined joined;
  MatrixView& view = joined.on_host;
  view = matrices.front().view;
  view.codes = {};
  view.rows = 0;
  for (const Matrix& matrix : matrices) {
    const MatrixView& part = matrix.view;
    view.rows += part.rows;
    joined.scales.insert(joined.scales.end(), part.scales.begin(), part.scales.end());
    joined.zeros.insert(joined.zeros.end(), part.zeros.begin(), part.zeros.end());
  }
  view.scales = joined.scales;
  view.zeros = joined.zeros;
  joined.on_device = view;
  SUBBYTE_CHECK(fill(joined, matrices));
  view.codes = joined.on_device.codes;  // for their number: the host does not read them
  return joined;
}

Result<CudaBuffer> upload_bias(std::span<const float> bias, bool is_packed, cuda::Number number) {
  if (!is_packed) return copy_to_device(std::as_bytes(bias));
  std::vector<uint16_t> numbers;
  for (const float value : bias) {
    numbers.push_back(number == cuda::Number::kF16 ? to_float16(value).bits
                                                   : to_bfloat16(value).bits);
  }
  return copy_to_device(std::as_bytes(std::span(numbers)));
}

Status pack(CudaMatrix& to, const Joined& joined, cuda::RowOrder order, cuda::Number number) {
  auto format = cuda::packed_format(joined.on_host, order);
  if (!format.ok()) return Error{"linear.unsupported", std::move(format).error().message};
  to.format = *format;
  to.is_packed = true;
  SUBBYTE_CHECK(to.memory.grow(to.format.bytes));
  SUBBYTE_CHECK(cuda::pack_on_device(to.memory.data(), joined.on_device, to.format, nullptr));
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) return cuda_error("cuda.launch", "packing", error);
  to.arguments =
      cuda::weight_arguments(to.memory.data(), to.format, joined.on_host.tensor_scale, number);
  return {};
}

Result<CudaMatrix> upload_joined(const std::vector<Matrix>& matrices, std::span<const float> bias,
                                 cuda::Number number) {
  const WeightFormat& format = matrices.front().view.format;
  SUBBYTE_TRY(Joined joined, join(matrices));
  CudaMatrix matrix;
  matrix.rows = joined.on_host.rows;
  matrix.cols = joined.on_host.cols;
  if (is_dense(format)) {
    matrix.element = format.element == Format::kF16    ? cuda::Element::kF16
                     : format.element == Format::kBF16 ? cuda::Element::kBF16
                                                       : cuda::Element::kF32;
    matrix.memory = std::move(joined.memory);
  } else {
    const bool may_be_gated =
        matrices.size() == 2 && matrices[0].view.rows == matrices[1].view.rows;
    SUBBYTE_CHECK(pack(matrix, joined,
                       may_be_gated ? cuda::RowOrder::kGateAboveUp : cuda::RowOrder::kNatural,
                       number));
  }
  SUBBYTE_TRY(matrix.bias, upload_bias(bias, matrix.is_packed, number));
  return matrix;
}

Status check_dense(const MatrixView& view) {
  const Format element = view.format.element;
  if (!is_dense(view.format) || element == Format::kF16 || element == Format::kBF16 ||
      element == Format::kF32) {
    return {};
  }
  return Error{"linear.unsupported", "dense weights of " + to_string(view.format) +
                                         "; the GPU has products with f32, f16 and bf16"};
}

}  // namespace

Result<CudaWeight> upload_weight(std::vector<Matrix> matrices, const std::vector<float>& bias,
                                 cuda::Number number) {
  for (const Matrix& matrix : matrices) SUBBYTE_CHECK(check_dense(matrix.view));
  CudaWeight weight;
  if (can_join(matrices)) {
    SUBBYTE_TRY(weight.parts.emplace_back(), upload_joined(matrices, bias, number));
    return weight;
  }
  int64_t first = 0;
  for (Matrix& matrix : matrices) {
    const int64_t rows = matrix.view.rows;
    std::span<const float> part_bias;
    if (!bias.empty()) part_bias = std::span(bias).subspan(first, rows);
    std::vector<Matrix> one;
    one.push_back(std::move(matrix));
    SUBBYTE_TRY(weight.parts.emplace_back(), upload_joined(one, part_bias, number));
    first += rows;
  }
  return weight;
}

}  // namespace subbyte
