#ifndef SUBBYTE_DEQUANTIZE_C_H_
#define SUBBYTE_DEQUANTIZE_C_H_
/* Weights of any format to a buffer of floats, for callers in C, on the CPU and on GPUs of NVIDIA;
 * kernels/cpu/blocks.h and kernels/cuda/ops/dequantize.h say how they are rounded: to the same
 * bits.
 *
 *   SubbyteWeights w = {"e2m1", "e8m0", NULL, 32, rows, cols, codes, scales, NULL, NULL, 1.0};
 *   subbyte_dequantize(&w, "bf16", out, 0, &error);
 *
 * What subbyte_quantize_blocks() writes with linear scales and cols as alignment is such a matrix:
 * element "e4m3", "e5m2" or "e2m1" with scale "e8m0" and groups of 32; of nvfp4 "e2m1" with scale
 * "e4m3", groups of 16 and its tensor_scale.
 *
 * Returns 0, or -1 with a line in *error, which lives until the next call of the same thread. */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* [rows][cols], row after row: codes of consecutive inputs from the low bits up, a row at a byte of
 * its own; scales and zero points [rows][groups], of which the last group may be shorter. */
typedef struct {
  const char* element; /* "u4", "i4", "e2m1", "nf4", "nfl3", "bf16", ... */
  const char* scale;   /* "f16", "bf16", "f32", "e8m0", "e4m3", "e4m4"; NULL: none, dense */
  const char* zero;    /* "u8", "u16"; offsets: "f16", "bf16"; NULL: none */
  int64_t group_size;  /* inputs; 0: the whole row */
  int64_t rows;        /* up to 2^24, as cols */
  int64_t cols;
  const void* codes;
  const void* scales;
  const void* zeros;
  const uint32_t* input_order; /* act-order: input of each column, or NULL */
  double tensor_scale;         /* 1 if there is none */
} SubbyteWeights;

/* out [rows][cols] of `number`, "f32", "f16" or "bf16", in host memory; `threads` 0: one for each
 * processor. */
int subbyte_dequantize(const SubbyteWeights* weights, const char* number, void* out, int threads,
                       const char** error);

/* The same in device memory: all pointers are, codes and out at multiples of 16 bytes; elements of
 * 2 to 8 bits with scales, cols and groups in 8s, cols up to 2^19. input_order is not checked. One
 * launch on `stream`, a cudaStream_t, which allocates nothing. Only in builds with CUDA. */
int subbyte_cuda_dequantize(const SubbyteWeights* weights, const char* number, void* out,
                            void* stream, const char** error);

#ifdef __cplusplus
}
#endif

#endif /* SUBBYTE_DEQUANTIZE_C_H_ */
