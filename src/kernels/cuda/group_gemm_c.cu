#include "kernels/cuda/group_gemm_c.h"

#include <cuda_runtime.h>

#include "kernels/blocks_of_c.h"
#include "kernels/cuda/group_gemm.h"

struct SubbyteCudaGroupGemm {
  subbyte::cuda::GroupGemm gemm;
};

namespace {

using subbyte::cuda::GroupGemm;
using subbyte::cuda::GroupWeights;

subbyte::Result<GroupGemm> create(const subbyte::cuda::GroupGemmShape& shape) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    return subbyte::Error{"cuda.device", "group_gemm: there is no current device"};
  }
  SUBBYTE_TRY(const subbyte::cuda::Device found, subbyte::cuda::query_device(device));
  return GroupGemm::create(shape, found);
}

subbyte::Format format_of(const char* name) {
  const subbyte::FormatInfo* format = name == nullptr ? nullptr : subbyte::find_format(name);
  return format == nullptr ? subbyte::Format::kNone : format->id;
}

subbyte::cuda::GroupGemmCall call_of(const SubbyteCudaGroupGemmCall& call) {
  subbyte::cuda::GroupGemmCall to;
  to.a = call.a;
  to.a_scale = call.a_scale;
  to.m_indptr = call.m_indptr;
  to.m = call.m;
  to.weights = static_cast<const std::byte*>(call.weights);
  to.out = call.out;
  to.a_dtype = format_of(call.a_dtype);
  to.out_dtype = format_of(call.out_dtype);
  to.mma_sm = call.mma_sm;
  to.tile_m = call.tile_m;
  to.tile_n = call.tile_n;
  to.tile_k = call.tile_k;
  to.swap_ab = call.swap_ab != 0;
  return to;
}

}  // namespace

SubbyteCudaGroupGemm* subbyte_cuda_group_gemm_create(int64_t groups, int64_t n, int64_t k,
                                                     int checkpoint_order, const char** error) {
  SubbyteCudaGroupGemm* made = nullptr;
  static_cast<void>(subbyte::run_in_c(error, [&]() -> subbyte::Status {
    const auto order =
        checkpoint_order != 0 ? GroupWeights::kCheckpoint : GroupWeights::kFlashinfer;
    SUBBYTE_TRY(const GroupGemm gemm, create({groups, n, k, order}));
    made = new SubbyteCudaGroupGemm{gemm};
    return {};
  }));
  return made;
}

void subbyte_cuda_group_gemm_destroy(SubbyteCudaGroupGemm* gemm) {
  delete gemm;
}

int64_t subbyte_cuda_group_gemm_weight_bytes(const SubbyteCudaGroupGemm* gemm) {
  return gemm == nullptr ? -1 : gemm->gemm.weight_bytes();
}

int64_t subbyte_cuda_group_gemm_prepare_bytes(const SubbyteCudaGroupGemm* gemm) {
  return gemm == nullptr ? -1 : gemm->gemm.prepare_bytes();
}

int64_t subbyte_cuda_group_gemm_workspace_bytes(const SubbyteCudaGroupGemm* gemm, int64_t m) {
  return gemm == nullptr ? -1 : gemm->gemm.workspace_bytes(m);
}

int subbyte_cuda_group_gemm_prepare(const SubbyteCudaGroupGemm* gemm, void* weights, const void* b,
                                    const void* b_scale, void* memory, void* stream,
                                    const char** error) {
  return subbyte::run_in_c(error, [&]() -> subbyte::Status {
    SUBBYTE_CHECK(subbyte::check_addresses({{"gemm", gemm}}));
    return gemm->gemm.prepare(static_cast<std::byte*>(weights), b, b_scale,
                              static_cast<std::byte*>(memory),
                              static_cast<subbyte::cuda::Stream>(stream));
  });
}

int subbyte_cuda_group_gemm_mxfp8_mxfp4_nt_groupwise(const SubbyteCudaGroupGemm* gemm,
                                                     const SubbyteCudaGroupGemmCall* call,
                                                     void* workspace, void* stream,
                                                     const char** error) {
  return subbyte::run_in_c(error, [&]() -> subbyte::Status {
    SUBBYTE_CHECK(subbyte::check_addresses({{"gemm", gemm}, {"call", call}}));
    if (call->m > 0) SUBBYTE_CHECK(subbyte::check_addresses({{"workspace", workspace}}));
    return gemm->gemm.run(call_of(*call), static_cast<std::byte*>(workspace),
                          static_cast<subbyte::cuda::Stream>(stream));
  });
}
