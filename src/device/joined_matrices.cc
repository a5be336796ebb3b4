#include "device/joined_matrices.h"

#include <algorithm>

#include "kernels/cuda/linear.h"

namespace subbyte::device {

bool can_join(std::span<const Matrix> matrices) {
  const MatrixView& first = matrices.front().view;
  return std::ranges::all_of(matrices, [&](const Matrix& matrix) {
    const MatrixView& view = matrix.view;
    return view.format == first.format && view.cols == first.cols &&
           view.tensor_scale == first.tensor_scale &&
           std::ranges::equal(view.codebook, first.codebook) &&
           std::ranges::equal(view.input_order, first.input_order);
  });
}

JoinedMatrices::Sections JoinedMatrices::sections() const {
  Sections at = {};
  for (const auto& codes : codes_) at.scales += std::ssize(codes);
  at.scales = aligned(at.scales);
  at.zeros = aligned(at.scales + std::ssize(on_host_.scales));
  at.order = aligned(at.zeros + std::ssize(on_host_.zeros));
  at.end = aligned(at.order + std::ssize(std::as_bytes(on_host_.input_order)));
  return at;
}

JoinedMatrices::JoinedMatrices(std::span<const Matrix> matrices) {
  on_host_ = matrices.front().view;
  on_host_.codes = {};
  for (const Matrix& matrix : matrices) codes_.push_back(matrix.view.codes);
  if (matrices.size() == 1) return;
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

Status JoinedMatrices::stage_at(std::byte* place, gpu::RowOrder order) {
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
  SUBBYTE_TRY(format_, gpu::packed_format(on_host_, order));
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

Status JoinedMatrices::pack(std::byte* to, const Gpu& gpu) const {
  return cuda::pack_on_device(to, staged_, format_, gpu.stream());
}

}  // namespace subbyte::device
