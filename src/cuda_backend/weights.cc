#include "cuda_backend/weights.h"

#include <algorithm>
#include <string>

#include "base/float16.h"
#include "kernels/gpu/supported_format.h"

namespace subbyte {
namespace {

bool are_equal(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  return std::ranges::equal(a, b);
}

bool can_join(const std::vector<Matrix>& matrices) {
  const MatrixView& first = matrices.front().view;
  return std::ranges::all_of(matrices, [&](const Matrix& matrix) {
    const MatrixView& view = matrix.view;
    return view.format == first.format && view.cols == first.cols &&
           view.tensor_scale == first.tensor_scale &&
           std::ranges::equal(view.codebook, first.codebook) &&
           are_equal(view.input_order, first.input_order);
  });
}

Status pack(CudaMatrix& to, const std::vector<Matrix>& matrices, const WeightTarget& target) {
  const bool may_be_gated = matrices.size() == 2 && matrices[0].view.rows == matrices[1].view.rows;
  const auto allocate = [&](int64_t bytes) -> Result<std::byte*> {
    SUBBYTE_TRY(to.memory, target.arena.take(bytes));
    return to.memory.data();
  };
  SUBBYTE_TRY(const PackedOnGpu packed,
              pack_matrices(matrices,
                            may_be_gated ? cuda::RowOrder::kGateAboveUp : cuda::RowOrder::kNatural,
                            allocate, target));
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
  to.element = element == Format::kF16    ? Element::kF16
               : element == Format::kBF16 ? Element::kBF16
                                          : Element::kF32;
  SUBBYTE_TRY(to.memory, target.arena.take(bytes));
  std::byte* at = to.memory.data();
  for (const Matrix& matrix : matrices) {
    SUBBYTE_CHECK(target.uploader.copy(at, matrix.view.codes));
    at += std::ssize(matrix.view.codes);
  }
  return {};
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

/// Places from the begin of the staged bytes.
struct JoinedMatrices::Sections {
  int64_t codes, scales, zeros, order, end;
};

JoinedMatrices::Sections JoinedMatrices::sections() const {
  Sections at = {};
  for (const auto& codes : codes_) at.scales += std::ssize(codes);
  at.scales = WeightArena::aligned(at.scales);
  at.zeros = WeightArena::aligned(at.scales + std::ssize(on_host_.scales));
  at.order = WeightArena::aligned(at.zeros + std::ssize(on_host_.zeros));
  at.end = WeightArena::aligned(at.order + std::ssize(std::as_bytes(on_host_.input_order)));
  return at;
}

JoinedMatrices::JoinedMatrices(std::span<const Matrix> matrices) {
  on_host_ = matrices.front().view;
  on_host_.codes = {};
  for (const Matrix& matrix : matrices) codes_.push_back(matrix.view.codes);
  if (matrices.size() > 1) {
    on_host_.rows = 0;
    for (const Matrix& matrix : matrices) {
      const MatrixView& part = matrix.view;
      on_host_.rows += part.rows;
      scales_.insert(scales_.end(), part.scales.begin(), part.scales.end());
      zeros_.insert(zeros_.end(), part.zeros.begin(), part.zeros.end());
    }
    on_host_.scales = scales_;
    on_host_.zeros = zeros_;
  }
  staged_bytes_ = sections().end;
}

Status JoinedMatrices::stage_at(std::byte* place, cuda::RowOrder order) {
  const Sections at = sections();
  const auto section = [&](int64_t begin, std::size_t size) {
    return std::span<const std::byte>(place + begin, size);
  };
  std::size_t codes_size = 0;
  for (const auto& codes : codes_) codes_size += codes.size();
  staged_ = on_host_;
  staged_.codes = section(at.codes, codes_size);
  staged_.scales = section(at.scales, on_host_.scales.size());
  staged_.zeros = section(at.zeros, on_host_.zeros.size());
  staged_.input_order = {reinterpret_cast<const uint32_t*>(place + at.order),
                         on_host_.input_order.size()};
  on_host_.codes = staged_.codes;  // for their number: the host does not read them
  auto format = cuda::packed_format(on_host_, order);
  if (!format.ok()) return Error{"linear.unsupported", std::move(format).error().message};
  format_ = *format;
  return {};
}

void JoinedMatrices::add_pieces(int64_t at, std::vector<UploadPiece>& pieces) const {
  const Sections sections = this->sections();
  const auto add = [&](int64_t begin, std::span<const std::byte> bytes) {
    if (!bytes.empty()) pieces.push_back({at + begin, bytes});
  };
  int64_t begin = sections.codes;
  for (const auto& codes : codes_) {
    add(begin, codes);
    begin += std::ssize(codes);
  }
  add(sections.scales, on_host_.scales);
  add(sections.zeros, on_host_.zeros);
  add(sections.order, std::as_bytes(on_host_.input_order));
}

Result<PackedOnGpu> JoinedMatrices::pack(std::byte* to, const WeightTarget& target) const {
  SUBBYTE_CHECK(cuda::pack_on_device(to, staged_, format_, target.uploader.stream()));
  return PackedOnGpu{format_,
                     cuda::weight_arguments(to, format_, on_host_.tensor_scale, target.number)};
}

Result<PackedOnGpu> pack_matrices(const std::vector<Matrix>& matrices, cuda::RowOrder order,
                                  const Allocate& allocate, const WeightTarget& target) {
  JoinedMatrices joined(matrices);
  SUBBYTE_TRY(std::byte* const staging, target.uploader.staging(joined.staged_bytes()));
  SUBBYTE_CHECK(joined.stage_at(staging, order));
  std::vector<UploadPiece> pieces;
  joined.add_pieces(0, pieces);
  SUBBYTE_CHECK(target.uploader.copy_pieces(staging, pieces, joined.staged_bytes()));
  SUBBYTE_TRY(std::byte* const to, allocate(joined.format().bytes));
  return joined.pack(to, target);
}

Result<CudaWeight> upload_weight(std::vector<Matrix> matrices, std::span<const float> bias,
                                 const WeightTarget& target) {
  for (Matrix& matrix : matrices) {
    SUBBYTE_TRY(matrix, gpu::support(std::move(matrix), target.host));
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
