#include "flashinfer/group_gemm_c.h"

#include "base/thread_pool.h"
#include "flashinfer/group_gemm.h"
#include "kernels/blocks_of_c.h"

namespace subbyte::flashinfer {
namespace {

std::span<const std::byte> bytes_of(const void* data, std::size_t size) {
  return {static_cast<const std::byte*>(data), data == nullptr ? 0 : size};
}

Format format_of(const char* name) {
  const FormatInfo* format = name == nullptr ? nullptr : find_format(name);
  return format == nullptr ? Format::kNone : format->id;
}

GroupGemm gemm_of(const SubbyteGroupGemm& c) {
  GroupGemm gemm;
  gemm.a = bytes_of(c.a, c.a_bytes);
  gemm.b = bytes_of(c.b, c.b_bytes);
  gemm.a_scale = bytes_of(c.a_scale, c.a_scale_bytes);
  gemm.b_scale = bytes_of(c.b_scale, c.b_scale_bytes);
  const bool has_groups = c.m_indptr != nullptr && c.num_groups >= 0 && c.num_groups < INT32_MAX;
  gemm.m_indptr = {c.m_indptr, has_groups ? static_cast<std::size_t>(c.num_groups) + 1 : 0};
  gemm.out = {static_cast<std::byte*>(c.out), c.out == nullptr ? 0 : c.out_bytes};
  gemm.n = c.n;
  gemm.k = c.k;
  gemm.a_dtype = format_of(c.a_dtype);
  gemm.out_dtype = format_of(c.out_dtype);
  gemm.mma_sm = c.mma_sm;
  gemm.tile_m = c.tile_m;
  gemm.tile_n = c.tile_n;
  gemm.tile_k = c.tile_k;
  gemm.swap_ab = c.swap_ab != 0;
  return gemm;
}

Status run(const SubbyteGroupGemm* gemm, int threads) {
  SUBBYTE_CHECK(check_addresses({{"gemm", gemm}}));
  ThreadPool pool(threads);
  return group_gemm_mxfp8_mxfp4_nt_groupwise(gemm_of(*gemm), pool);
}

}  // namespace
}  // namespace subbyte::flashinfer

int subbyte_group_gemm_mxfp8_mxfp4_nt_groupwise(const SubbyteGroupGemm* gemm, int threads,
                                                const char** error) {
  return subbyte::run_in_c(error, [&] { return subbyte::flashinfer::run(gemm, threads); });
}

int subbyte_group_gemm_mxfp4_nt_groupwise(const SubbyteGroupGemm* gemm, int threads,
                                          const char** error) {
  return subbyte_group_gemm_mxfp8_mxfp4_nt_groupwise(gemm, threads, error);
}
