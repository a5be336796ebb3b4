#ifndef SUBBYTE_FLASHINFER_GROUP_GEMM_C_H_
#define SUBBYTE_FLASHINFER_GROUP_GEMM_C_H_
/* group_gemm.h for callers in C. Returns 0, or -1 with a line in *error, which lives until the next
 * call of the same thread. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const void* a; /* each with its size in bytes, which is checked; all in host memory */
  size_t a_bytes;
  const void* b;
  size_t b_bytes;
  const void* a_scale;
  size_t a_scale_bytes;
  const void* b_scale;
  size_t b_scale_bytes;
  const int32_t* m_indptr; /* [num_groups + 1] */
  int64_t num_groups;
  void* out;
  size_t out_bytes;
  int64_t n;
  int64_t k;
  const char* a_dtype;   /* "e4m3", "e5m2" */
  const char* out_dtype; /* "bf16", "f16" */
  int mma_sm;            /* hints: 1, 128, 128, 128, 1 */
  int tile_m;
  int tile_n;
  int tile_k;
  int swap_ab;
} SubbyteGroupGemm;

/* `threads` 0: one for each processor. */
int subbyte_group_gemm_mxfp8_mxfp4_nt_groupwise(const SubbyteGroupGemm* gemm, int threads,
                                                const char** error);

/* The name that it had. */
int subbyte_group_gemm_mxfp4_nt_groupwise(const SubbyteGroupGemm* gemm, int threads,
                                          const char** error);

#ifdef __cplusplus
}
#endif

#endif /* SUBBYTE_FLASHINFER_GROUP_GEMM_C_H_ */
