#include "device/group_weights.h"

#include <string>

namespace subbyte::device {

Result<std::shared_ptr<const GroupWeights>> GroupWeights::pack(const cuda::GroupGemmShape& shape,
                                                               const void* b, const void* b_scale,
                                                               const Gpu& gpu) {
  SUBBYTE_TRY(const cuda::Device device, cuda::query_device(gpu.index()));
  SUBBYTE_TRY(const cuda::GroupGemm gemm, cuda::GroupGemm::create(shape, device));
  SUBBYTE_TRY(Buffer weights, gpu.allocate(gemm.weight_bytes()));
  SUBBYTE_TRY(const Buffer memory, gpu.allocate(gemm.prepare_bytes()));
  SUBBYTE_CHECK(gemm.prepare(weights.data(), b, b_scale, memory.data(), gpu.stream()));
  SUBBYTE_CHECK(gpu.wait("packing the weights"));
  return std::shared_ptr<const GroupWeights>(
      new GroupWeights(gpu.index(), gemm, std::move(weights)));
}

Status GroupWeights::run(cuda::GroupGemmCall call, const Gpu& gpu) const {
  if (call.m < 0) {
    return Error{"group_gemm.m",
                 "group_gemm: m: expected 0 or more, found " + std::to_string(call.m)};
  }
  SUBBYTE_TRY(const Buffer workspace, gpu.allocate(gemm_.workspace_bytes(call.m)));
  call.weights = memory_.data();
  return gemm_.run(call, workspace.data(), gpu.stream());
}

Status GroupWeights::reserve(int64_t m, const Gpu& gpu) const {
  SUBBYTE_CHECK(gpu.allocate(gemm_.workspace_bytes(m)));
  return {};
}

}  // namespace subbyte::device
