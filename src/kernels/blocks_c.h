#ifndef SUBBYTE_BLOCKS_C_H_
#define SUBBYTE_BLOCKS_C_H_
/* Quantizing to MXFP8, MXFP4 and NVFP4 for callers in C, on the CPU and on a GPU to the same bits;
 * quantized_blocks.h says what is computed, special values included.
 *
 *   SubbyteBlocks blocks = {"mxfp8_e4m3", "bf16", "ceil", "linear", rows, cols, 32, 1.0f};
 *   subbyte_blocks_sizes(&blocks, &sizes, &error);
 *   subbyte_quantize_blocks(&blocks, x, codes, scales, 0, &error);
 *
 * Functions return 0, or -1 with a line in *error, which lives until the next call of the same
 * thread. Nothing is printed, nothing aborts. */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char* format; /* "mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4" */
  const char* input;  /* "f32", "f16", "bf16" */
  const char* rule;   /* "ocp_floor", "ceil" (FlashInfer's), "bump_175"; NULL: "ceil" */
  const char* layout; /* "linear", "128x4", "8x4"; NULL: "linear" */
  int64_t rows;
  int64_t cols;       /* in 32s; 16s for nvfp4 */
  int64_t alignment;  /* of the columns of the codes, in 32s */
  float tensor_scale; /* of nvfp4; else any */
} SubbyteBlocks;

typedef struct {
  int64_t padded_cols; /* of the codes */
  int64_t code_bytes;
  int64_t scale_rows; /* with padding */
  int64_t scale_cols; /* with padding; scales have scale_rows * scale_cols bytes */
} SubbyteBlocksSizes;

int subbyte_blocks_sizes(const SubbyteBlocks* blocks, SubbyteBlocksSizes* sizes,
                         const char** error);

/* x [rows][cols] in host memory; `threads` 0: one for each processor. */
int subbyte_quantize_blocks(const SubbyteBlocks* blocks, const void* x, void* codes, void* scales,
                            int threads, const char** error);

/* x, codes (both at multiples of 16 bytes) and scales in device memory; launches on `stream`, a
 * cudaStream_t, and does not wait. Only in builds with CUDA. */
int subbyte_cuda_quantize_blocks(const SubbyteBlocks* blocks, const void* x, void* codes,
                                 void* scales, void* stream, const char** error);

#ifdef __cplusplus
}
#endif

#endif /* SUBBYTE_BLOCKS_C_H_ */
