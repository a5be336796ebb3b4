#include "cuda_backend/weights.h"

#include <algorithm>
#include <string>

#include "base/float16.h"
#include "kernels/gpu/served_format.h"

namespace subbyte {
namespace {

std::span<const std::byte> bytes_of(std::span<const uint32_t> words) {
  return std::as_bytes(words);
}

/// Several matrices as one: what of them the packed form is decided by is on the host, all of it
/// in staging memory of the GPU.
struct Joined {
  MatrixView on_host;                    // but for the codes
  std::vector<std::byte> scales, zeros;  // of more than one
  MatrixView staged;
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

/// Sections of device memory that are filled one span after the other.
class Filler {
 public:
  Filler(std::byte* memory, CudaUploader& uploader) : memory_(memory), uploader_(uploader) {}

  Status append(std::span<const std::byte> bytes) {
    SUBBYTE_CHECK(uploader_.copy(memory_ + at_, bytes));
    at_ += std::ssize(bytes);
    return {};
  }

  /// What was appended since the last section.
  std::span<const std::byte> end_section() {
    const std::span<const std::byte> section(memory_ + begin_, at_ - begin_);
    begin_ = at_ = WeightArena::aligned(at_);
    return section;
  }

 private:
  std::byte* memory_;
  CudaUploader& uploader_;
  int64_t begin_ = 0;
  int64_t at_ = 0;
};

Status append_codes(Filler& filler, const std::vector<Matrix>& matrices) {
  for (const Matrix& matrix : matrices) SUBBYTE_CHECK(filler.append(matrix.view.codes));
  return {};
}

Status stage(Joined& joined, const std::vector<Matrix>& matrices, CudaUploader& uploader) {
  constexpr int64_t kSections = 4;
  int64_t bytes = kSections * WeightArena::aligned(1);
  for (const Matrix& matrix : matrices) bytes += matrix.view.bytes();
  SUBBYTE_TRY(std::byte* const memory, uploader.staging(bytes));
  Filler filler(memory, uploader);
  MatrixView& staged = joined.staged;
  SUBBYTE_CHECK(append_codes(filler, matrices));
  staged.codes = filler.end_section();
  SUBBYTE_CHECK(filler.append(joined.on_host.scales));
  staged.scales = filler.end_section();
  SUBBYTE_CHECK(filler.append(joined.on_host.zeros));
  staged.zeros = filler.end_section();
  SUBBYTE_CHECK(filler.append(bytes_of(joined.on_host.input_order)));
  const std::span<const std::byte> order = filler.end_section();
  staged.input_order = {reinterpret_cast<const uint32_t*>(order.data()),
                        joined.on_host.input_order.size()};
  return {};
}

Joined join(const std::vector<Matrix>& matrices) {
  Joined joined;
  MatrixView& view = joined.on_host;
  view = matrices.front().view;
  view.codes = {};
  joined.staged = view;
  if (matrices.size() == 1) return joined;
  view.rows = 0;
  for (const Matrix& matrix : matrices) {
    const MatrixView& part = matrix.view;
    view.rows += part.rows;
    joined.scales.insert(joined.scales.end(), part.scales.begin(), part.scales.end());
    joined.zeros.insert(joined.zeros.end(), part.zeros.begin(), part.zeros.end());
  }
  view.scales = joined.scales;
  view.zeros = joined.zeros;
  joined.staged = view;
  return joined;
}

Status pack(CudaMatrix& to, const std::vector<Matrix>& matrices, const WeightTarget& target) {
  const bool may_be_gated = matrices.size() == 2 && matrices[0].view.rows == matrices[1].view.rows;
  const auto take_room = [&](int64_t bytes) -> Result<std::byte*> {
    SUBBYTE_TRY(to.memory, target.arena.take(bytes));
    return to.memory.data();
  };
  SUBBYTE_TRY(const PackedOnGpu packed,
              pack_matrices(matrices,
                            may_be_gated ? cuda::RowOrder::kGateAboveUp : cuda::RowOrder::kNatural,
                            take_room, target));
  to.format = packed.format;
  to.arguments = packed.arguments;
  to.is_packed = true;
  to.rows = packed.format.rows;
  return {};
}

Status copy_dense(CudaMatrix& to, const std::vector<Matrix>& matrices, const WeightTarget& target) {
  int64_t bytes = 0;
  for (const Matrix& matrix : matrices) {
    bytes += std::ssize(matrix.view.codes);
    to.rows += matrix.view.rows;
  }
  const Format element = matrices.front().view.format.element;
  to.element = element == Format::kF16    ? cuda::Element::kF16
               : element == Format::kBF16 ? cuda::Element::kBF16
                                          : cuda::Element::kF32;
  SUBBYTE_TRY(to.memory, target.arena.take(bytes));
  Filler filler(to.memory.data(), target.uploader);
  return append_codes(filler, matrices);
}

Result<CudaMatrix> upload_joined(const std::vector<Matrix>& matrices, std::span<const float> bias,
                                 const WeightTarget& target) {
  const MatrixView& first = matrices.front().view;
  CudaMatrix matrix;
  matrix.cols = first.cols;
  if (is_dense(first.format)) {
    SUBBYTE_CHECK(copy_dense(matrix, matrices, target));
  } else {
    SUBBYTE_CHECK(pack(matrix, matrices, target));
  }
  SUBBYTE_TRY(matrix.bias, upload_bias(bias, matrix.is_packed, target));
  return matrix;
}

}  // namespace

void ServedNotes::add(const std::vector<Matrix>& matrices) {
  for (const Matrix& matrix : matrices) {
    const MatrixView& view = matrix.view;
    const WeightFormat served = gpu::served_format(view.format, view.rows, view.cols);
    if (served != view.format) ++matrices_[to_string(view.format) + " as " + to_string(served)];
  }
}

std::string ServedNotes::text() const {
  std::string text;
  for (const auto& [formats, count] : matrices_) {
    text += ", " + std::to_string(count) + " matrices of " + formats;
  }
  return text;
}

const float* floats_of(const Vector& vector) {
  if (vector.storage == nullptr || vector.size == 0) return nullptr;
  return reinterpret_cast<const float*>(
      static_cast<const DeviceBytes*>(vector.storage.get())->data());
}

Result<DeviceBytes> upload_bytes(std::span<const std::byte> bytes, const WeightTarget& target) {
  SUBBYTE_TRY(DeviceBytes memory, target.arena.take(std::ssize(bytes)));
  SUBBYTE_CHECK(target.uploader.copy(memory.data(), bytes));
  return memory;
}

Result<DeviceBytes> upload_bias(std::span<const float> bias, bool is_packed,
                                const WeightTarget& target) {
  if (!is_packed) return upload_bytes(std::as_bytes(bias), target);
  std::vector<uint16_t> numbers;
  for (const float value : bias) {
    numbers.push_back(target.number == cuda::Number::kF16 ? to_float16(value).bits
                                                          : to_bfloat16(value).bits);
  }
  return upload_bytes(std::as_bytes(std::span(numbers)), target);
}

Result<PackedOnGpu> pack_matrices(const std::vector<Matrix>& matrices, cuda::RowOrder order,
                                  const TakeRoom& take_room, const WeightTarget& target) {
  Joined joined = join(matrices);
  SUBBYTE_CHECK(stage(joined, matrices, target.uploader));
  joined.on_host.codes = joined.staged.codes;  // for their number: the host does not read them
  auto format = cuda::packed_format(joined.on_host, order);
  if (!format.ok()) return Error{"linear.unsupported", std::move(format).error().message};
  SUBBYTE_TRY(std::byte* const to, take_room(format->bytes));
  SUBBYTE_CHECK(cuda::pack_on_device(to, joined.staged, *format, target.uploader.stream()));
  return PackedOnGpu{
      *format, cuda::weight_arguments(to, *format, joined.on_host.tensor_scale, target.number)};
}

Result<CudaWeight> upload_weight(std::vector<Matrix> matrices, std::span<const float> bias,
                                 const WeightTarget& target) {
  for (Matrix& matrix : matrices) {
    SUBBYTE_TRY(matrix, gpu::serve(std::move(matrix), target.host));
  }
  CudaWeight weight;
  if (can_join(matrices)) {
    SUBBYTE_TRY(weight.parts.emplace_back(), upload_joined(matrices, bias, target));
    return weight;
  }
  int64_t first = 0;
  for (Matrix& matrix : matrices) {
    const int64_t rows = matrix.view.rows;
    std::span<const float> part_bias;
    if (!bias.empty()) part_bias = bias.subspan(first, rows);
    std::vector<Matrix> one;
    one.push_back(std::move(matrix));
    SUBBYTE_TRY(weight.parts.emplace_back(), upload_joined(one, part_bias, target));
    first += rows;
  }
  return weight;
}

}  // namespace subbyte
