#ifndef SUBBYTE_CUDA_C_H_
#define SUBBYTE_CUDA_C_H_
/* The CUDA kernels for callers in C: y = x W^T + bias for packed weights below 8 bits.
 *
 *   SubbyteCudaMatrix* w = subbyte_cuda_matrix_create(&description, &error);
 *   ... subbyte_cuda_matrix_bytes(w) of device memory ...
 *   subbyte_cuda_matrix_pack(w, packed, stream, &error);
 *   SubbyteCudaLinear call = {...};
 *   subbyte_cuda_linear_workspace(w, &call, &bytes, &error);
 *   subbyte_cuda_linear(w, packed, &call, workspace, stream, &error);
 *
 * Functions that return int return 0, or -1 with a line in *error, which lives until the next call
 * of the same thread. Nothing is printed, nothing aborts. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct SubbyteCudaMatrix SubbyteCudaMatrix;

/* A canonical matrix [rows][cols] whose codes, scales and zero points lie in HOST memory: row after
 * row, codes of consecutive inputs from the low bits up; scales and zero points [rows][groups]. */
typedef struct {
  const char* element; /* "u4", "i4", "e2m1", "nf4", "nfl3", ... */
  const char* scale;   /* "f16", "bf16", "f32", "e8m0", "e4m3", "e4m4" */
  int zero_bytes;      /* 0 (none), 1 or 2 */
  int64_t group_size;  /* inputs; 0: the whole row */
  int64_t rows;        /* N */
  int64_t cols;        /* K */
  const void* codes;
  const void* scales;
  const void* zeros;
  const uint32_t* input_order; /* act-order: input of each column, or NULL */
  double tensor_scale;         /* 1 if there is none */
  int row_order;               /* 0 natural, 1 gate rows above up rows, 2 gate and up in turns */
} SubbyteCudaMatrixDescription;

/* NULL, with a line in *error, if there is no kernel for it. The description is copied, its bytes
 * are not: they must live until subbyte_cuda_matrix_pack() has returned. */
SubbyteCudaMatrix* subbyte_cuda_matrix_create(const SubbyteCudaMatrixDescription* description,
                                              const char** error);
void subbyte_cuda_matrix_destroy(SubbyteCudaMatrix* matrix);

/* Bytes of device memory that the packed matrix takes; -1 for NULL. */
int64_t subbyte_cuda_matrix_bytes(const SubbyteCudaMatrix* matrix);

/* Packs on the host and copies to device memory `packed`, 256-byte aligned. Returns when it is
 * there. */
int subbyte_cuda_matrix_pack(const SubbyteCudaMatrix* matrix, void* packed, void* stream,
                             const char** error);

typedef struct {
  int is_bf16;          /* x, y, bias and residual: 0 fp16, 1 bf16 */
  const void* x;        /* device, [m][x_stride] */
  void* y;              /* device, [m][y_stride] */
  const void* bias;     /* device, [rows], or NULL */
  const void* residual; /* device, [m][residual_stride], or NULL; may be y */
  int64_t m;
  int64_t x_stride; /* numbers */
  int64_t y_stride;
  int64_t residual_stride;
  int activation;       /* 0 none, 1 SwiGLU, 2 clamped SwiGLU (gpt-oss): y has rows / 2 */
  int batch_invariant;  /* 1: a row's result does not depend on m */
  int dependent_launch; /* 1: may begin before the kernel before it on the stream has ended */
} SubbyteCudaLinear;

/* Bytes of workspace that this call needs, often 0. */
int subbyte_cuda_linear_workspace(const SubbyteCudaMatrix* matrix, const SubbyteCudaLinear* call,
                                  int64_t* bytes, const char** error);

/* Launches on `stream` (a cudaStream_t); allocates nothing and waits for nothing on the device. */
int subbyte_cuda_linear(const SubbyteCudaMatrix* matrix, const void* packed,
                        const SubbyteCudaLinear* call, void* workspace, void* stream,
                        const char** error);

#ifdef __cplusplus
}
#endif

#endif /* SUBBYTE_CUDA_C_H_ */
