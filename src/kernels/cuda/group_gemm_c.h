#ifndef SUBBYTE_CUDA_GROUP_GEMM_C_H_
#define SUBBYTE_CUDA_GROUP_GEMM_C_H_
/* group_gemm.h for callers in C: FlashInfer's group_gemm_mxfp8_mxfp4_nt_groupwise in device memory.
 * Functions return 0 or a handle, or -1 or NULL with a line in *error, which lives until the next
 * call of the same thread. Streams are cudaStream_t. */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct SubbyteCudaGroupGemm SubbyteCudaGroupGemm;

/* For the current device. `checkpoint_order` 0: b and b_scale as FlashInfer has them, k in 128s;
 * 1: blocks and scales as gpt-oss has them, k in 32s. */
SubbyteCudaGroupGemm* subbyte_cuda_group_gemm_create(int64_t groups, int64_t n, int64_t k,
                                                     int checkpoint_order, const char** error);
void subbyte_cuda_group_gemm_destroy(SubbyteCudaGroupGemm* gemm);

/* Bytes of device memory: of the prepared weights, of what prepare() works in, and run(); -1 for
 * NULL. */
int64_t subbyte_cuda_group_gemm_weight_bytes(const SubbyteCudaGroupGemm* gemm);
int64_t subbyte_cuda_group_gemm_prepare_bytes(const SubbyteCudaGroupGemm* gemm);
int64_t subbyte_cuda_group_gemm_workspace_bytes(const SubbyteCudaGroupGemm* gemm, int64_t m);

/* Packs the weights of all groups to `weights`; `memory` has prepare_bytes(). */
int subbyte_cuda_group_gemm_prepare(const SubbyteCudaGroupGemm* gemm, void* weights, const void* b,
                                    const void* b_scale, void* memory, void* stream,
                                    const char** error);

typedef struct {
  const void* a;           /* device, fp8 [m][k in 128s] */
  const void* a_scale;     /* device, e8m0, swizzled, each group from a row of its own */
  const int32_t* m_indptr; /* device, [groups + 1] */
  int64_t m;
  const void* weights;   /* of prepare() */
  void* out;             /* device, [m][n] */
  const char* a_dtype;   /* "e4m3", "e5m2" */
  const char* out_dtype; /* "bf16", "f16" */
  int mma_sm;            /* hints: 1, 128, 128, 128, 1 */
  int tile_m;
  int tile_n;
  int tile_k;
  int swap_ab;
} SubbyteCudaGroupGemmCall;

/* Launches; allocates nothing and waits for nothing. */
int subbyte_cuda_group_gemm_mxfp8_mxfp4_nt_groupwise(const SubbyteCudaGroupGemm* gemm,
                                                     const SubbyteCudaGroupGemmCall* call,
                                                     void* workspace, void* stream,
                                                     const char** error);

#ifdef __cplusplus
}
#endif

#endif /* SUBBYTE_CUDA_GROUP_GEMM_C_H_ */
