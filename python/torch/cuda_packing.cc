// Weights of products as the kernels for GPUs read them: what lies in memory of a GPU is packed
// there, and what the host has made is copied there first.

#include <cuda_runtime_api.h>

#include <array>
#include <string>

#include "kernels/cuda/packed_facts.h"
#include "on_device.h"

namespace subbyte::torch_operators {
namespace {

constexpr int64_t kAlignment = 256;

Status check_copied(cudaError_t error) {
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string("packing weights: ") + cudaGetErrorString(error)};
}

/// One of `parts` matrices of as many rows each, which follow each other.
MatrixView part_of(const MatrixView& all, int64_t part, int64_t parts) {
  const auto cut = [&](std::span<const std::byte> bytes) {
    const auto size = bytes.size() / static_cast<std::size_t>(parts);
    return bytes.subspan(static_cast<std::size_t>(part) * size, size);
  };
  MatrixView view = all;
  view.rows = all.rows / parts;
  view.codes = cut(all.codes);
  view.scales = cut(all.scales);
  view.zeros = cut(all.zeros);
  return view;
}

/// Copies of a matrix of the host.
class Staged {
 public:
  Staged(const MatrixView& host, const Tensor& like)
      : sections_{host.codes, host.scales, host.zeros, std::as_bytes(host.input_order)},
        there_(host),
        bytes_(bytes_on_gpu(place(), like)) {}

  Status copy(cuda::Stream stream) const {
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      if (sections_[i].empty()) continue;
      SUBBYTE_CHECK(check_copied(cudaMemcpyAsync(bytes_.data() + begins_[i], sections_[i].data(),
                                                 sections_[i].size(), cudaMemcpyHostToDevice,
                                                 static_cast<cudaStream_t>(stream))));
    }
    return {};
  }
  MatrixView view() const {
    const auto at = [&](std::size_t i) {
      return std::span<const std::byte>(bytes_.data() + begins_[i], sections_[i].size());
    };
    MatrixView view = there_;
    view.codes = at(0);
    view.scales = at(1);
    view.zeros = at(2);
    view.input_order = {reinterpret_cast<const uint32_t*>(at(3).data()), there_.input_order.size()};
    return view;
  }

 private:
  /// Where each section begins; bytes of all.
  int64_t place() {
    int64_t end = 0;
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      begins_[i] = end;
      end += (std::ssize(sections_[i]) + kAlignment - 1) / kAlignment * kAlignment;
    }
    return end;
  }

  std::array<std::span<const std::byte>, 4> sections_;
  std::array<int64_t, 4> begins_ = {};
  MatrixView there_;
  Tensor bytes_;
};

}  // namespace

Status wait_for(cuda::Stream stream) {
  return check_copied(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
}

Result<std::optional<PackedOnGpu>> pack_there(const MatrixView& all, int64_t parts,
                                              cuda::RowOrder order, const Tensor& like,
                                              cuda::Stream stream) {
  const MatrixView first = part_of(all, 0, parts);
  if (!gpu::packed_bytes(all.format, first.rows, all.cols, !all.input_order.empty()).ok()) {
    return std::optional<PackedOnGpu>();
  }
  const Tensor memory = bytes_on_gpu(cuda::facts_bytes(all.cols), like);
  SUBBYTE_TRY(const cuda::MatrixFacts facts, cuda::find_facts(all, memory.data(), stream));
  if (facts.bad_input >= 0) return std::optional<PackedOnGpu>();
  const Result<cuda::PackedFormat> format = cuda::packed_format(first, order, facts.packed);
  if (!format.ok()) return std::optional<PackedOnGpu>();
  PackedOnGpu packed = {*format, bytes_on_gpu(format->bytes * parts, like)};
  for (int64_t part = 0; part < parts; ++part) {
    std::byte* const to = packed.bytes.data() + part * format->bytes;
    SUBBYTE_CHECK(cuda::pack_on_device(to, part_of(all, part, parts), *format, stream));
  }
  SUBBYTE_CHECK(wait_for(stream));
  return std::optional(std::move(packed));
}

Result<PackedOnGpu> pack_from_host(const MatrixView& host, const Tensor& like,
                                   cuda::Stream stream) {
  SUBBYTE_TRY(const cuda::PackedFormat format, cuda::packed_format(host));
  const Staged staged(host, like);
  SUBBYTE_CHECK(staged.copy(stream));
  PackedOnGpu packed = {format, bytes_on_gpu(format.bytes, like)};
  SUBBYTE_CHECK(cuda::pack_on_device(packed.bytes.data(), staged.view(), format, stream));
  SUBBYTE_CHECK(wait_for(stream));
  return packed;
}

}  // namespace subbyte::torch_operators
