#ifndef SUBBYTE_SUBBYTE_H_
#define SUBBYTE_SUBBYTE_H_
/* The C interface of subbyte: weight matrices of less than 8 bits, products with them, models.
 * docs/c.md is its manual; this header is C11 and C++.
 *
 * Functions that return int return SUBBYTE_OK or another number of subbyte_status; the line and the
 * stable code of the error ("import.config") belong to the calling thread. Nothing prints, aborts
 * or throws. Where no comment calls a pointer optional, NULL is refused with the code c.null.
 *
 * Structures begin with struct_size, which is sizeof of the structure that the caller was compiled
 * with; all else may be 0, which is the usual choice:
 *
 *   subbyte_weights w = {0};             in C++: subbyte_weights w = {};
 *   w.struct_size = sizeof w;
 *
 * Addresses lead to host memory or, in builds with CUDA, to memory of a GPU: which one, the
 * function asks the driver. `stream` is a cudaStream_t of that GPU, and nothing for the host.
 *
 * A handle may be used by several threads; calls of the threads of one context take turns on the
 * CPU, as those of one session do. What was made from a handle stays valid when the handle is
 * destroyed.
 *
 * A function of the caller's runs within the call that it was given to. It may call this library,
 * but for what takes a turn on the same context or session: that has the code context.busy or
 * session.busy and changes nothing. It must return: leaving it by longjmp() keeps the turn. */

#include <stddef.h>
#include <stdint.h>

#define SUBBYTE_HEADER_VERSION 100 /* 10000 major + 100 minor + patch */

#if defined(__GNUC__)
#define SUBBYTE_API __attribute__((visibility("default")))
#else
#define SUBBYTE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors and versions */

enum subbyte_status {
  SUBBYTE_OK = 0,
  SUBBYTE_REFUSED = -1,     /* the code says why: what none of the others is */
  SUBBYTE_ARGUMENT = -2,    /* NULL, a size, a name that is none */
  SUBBYTE_UNSUPPORTED = -3, /* well said, but there is nothing that does it */
  SUBBYTE_FILE = -4,        /* it is not there, or the system refuses it */
  SUBBYTE_MEMORY = -5,
  SUBBYTE_GPU = -6, /* the driver, or there is no GPU */
  SUBBYTE_INTERNAL = -7
};

/* Of the last call of this thread that failed; empty texts before. They stay until the next. */
SUBBYTE_API const char* subbyte_last_error(void);
SUBBYTE_API const char* subbyte_last_error_code(void);

/* Of the library: "0.1.0", the commit, and what SUBBYTE_HEADER_VERSION was. */
SUBBYTE_API const char* subbyte_version(void);
SUBBYTE_API const char* subbyte_commit(void);
SUBBYTE_API int subbyte_version_number(void);

/* Frees a text or an array that a function handed out, or NULL. */
SUBBYTE_API void subbyte_free(void* memory);

/* ---- formats */

/* A number in memory. Values stay what they are; subbyte_find_format() takes names. */
enum subbyte_format {
  SUBBYTE_NONE = 0,
  SUBBYTE_F32 = 1,
  SUBBYTE_F16 = 2,
  SUBBYTE_BF16 = 3,
  SUBBYTE_E2M1 = 4,
  SUBBYTE_E4M3 = 5,
  SUBBYTE_E5M2 = 6,
  SUBBYTE_E4M4 = 7,
  SUBBYTE_E8M0 = 8,
  SUBBYTE_U2 = 9,
  SUBBYTE_U3 = 10,
  SUBBYTE_U4 = 11,
  SUBBYTE_U5 = 12,
  SUBBYTE_U6 = 13,
  SUBBYTE_U7 = 14,
  SUBBYTE_U8 = 15,
  SUBBYTE_I2 = 16,
  SUBBYTE_I3 = 17,
  SUBBYTE_I4 = 18,
  SUBBYTE_I5 = 19,
  SUBBYTE_I6 = 20,
  SUBBYTE_I7 = 21,
  SUBBYTE_I8 = 22,
  SUBBYTE_NF4 = 23,
  SUBBYTE_NFL2 = 24,
  SUBBYTE_NFL3 = 25,
  SUBBYTE_NFL4 = 26,
  SUBBYTE_NFL5 = 27,
  SUBBYTE_VQ2 = 28, /* indices of vectors of 4 and of 2 weights */
  SUBBYTE_VQ4 = 29,
  SUBBYTE_U16 = 30, /* of zero points alone */
  SUBBYTE_I32 = 31, /* of words in tensors alone */
  SUBBYTE_U32 = 32,
  SUBBYTE_IQ4 = 33 /* codes of ggml's IQ4_NL and IQ4_XS */
};
SUBBYTE_API int subbyte_find_format(const char* name, int32_t* format);
/* "u4"; NULL where there is none of that number. */
SUBBYTE_API const char* subbyte_format_name(int32_t format);

/* ---- contexts: the threads and buffers that calls run with */

typedef struct subbyte_context subbyte_context;
typedef struct subbyte_context_options {
  size_t struct_size;
  int32_t num_threads;     /* 0: one for each processor */
  int32_t batch_invariant; /* 1: a row's results do not depend on the other rows, at some cost */
  const char* isa;         /* optional: "scalar", "avx2", "avx512", "avx512vnni", ... */
  const char* precision;   /* optional, of activations on the CPU: "f32" (NULL), "bf16", "int8" */
} subbyte_context_options;

/* `options` is optional. */
SUBBYTE_API int subbyte_context_create(const subbyte_context_options* options,
                                       subbyte_context** context);
SUBBYTE_API void subbyte_context_destroy(subbyte_context* context);

/* The machines of models and products, as JSON. */
SUBBYTE_API int subbyte_devices(subbyte_context* context, char** json);

/* ---- matrices */

/* w(n, k) = (element(code) - zero) * scale * tensor_scale, or with zeros of f16, bf16, f32, u4, u6
 *           (element(code) * scale + zero) * tensor_scale
 *
 * [rows][cols] = [outputs N][inputs K]. The codes of a row are one stream of bits from the low bits
 * of its first byte up; scales and zeros are [rows][groups], of which the last may be short. A
 * scale that is an integer, or a zero of u4 or u6, multiplies an f16 that 256 inputs share: a row
 * has a byte for each group, then those. */
typedef struct subbyte_weights {
  size_t struct_size;
  int32_t element;    /* enum subbyte_format */
  int32_t scale;      /* SUBBYTE_NONE: elements of f32, f16 or bf16 alone */
  int32_t zero;       /* SUBBYTE_NONE, SUBBYTE_U8, SUBBYTE_U16; _F16, _BF16, _F32, _U4, _U6 */
  int32_t row_order;  /* enum subbyte_row_order: where gate and up are */
  int64_t group_size; /* inputs that share a scale, up to 2^24; 0: the whole row */
  int64_t rows;       /* up to 2^24, as cols */
  int64_t cols;
  const void* codes;
  const void* scales;
  const void* zeros;
  /* Act-order, one of both, optional: the input of each column, or the group of each input
   * (GPTQ's g_idx), whose codes are in the order of the inputs. */
  const uint32_t* input_order;
  const int32_t* group_indices;
  const float* codebook; /* optional, in host memory: values of the codes of nfl2 to nfl5; 256
                            vectors of 4 or 2 for vq2 or vq4, which have none of their own */
  double tensor_scale;   /* 0: 1 */
  int64_t codes_stride;  /* bytes from one row to the next; 0: they follow each other */
  int64_t scales_stride; /* likewise */
  int64_t zeros_stride;
  int64_t codes_bytes; /* of the buffers, which are checked; 0: not told */
  int64_t scales_bytes;
  int64_t zeros_bytes;
  int32_t borrow; /* 1: nothing is copied, host memory stays there as long as the matrix */
  int32_t device; /* of a description that comes back: -1 the host, else the GPU */
} subbyte_weights;

enum subbyte_row_order {
  SUBBYTE_ROWS_NATURAL = 0,
  SUBBYTE_ROWS_GATE_ABOVE_UP = 1, /* all rows of gate, then all of up */
  SUBBYTE_ROWS_GATE_UP_PAIRS = 2  /* row 2i of gate, row 2i + 1 of up */
};

typedef struct subbyte_matrix subbyte_matrix;
/* On a GPU it is packed for the kernels, and `stream` is waited for. */
SUBBYTE_API int subbyte_matrix_create(subbyte_context* context, const subbyte_weights* weights,
                                      void* stream, subbyte_matrix** matrix);
SUBBYTE_API void subbyte_matrix_destroy(subbyte_matrix* matrix);

/* A copy of a matrix of the host that is packed on GPU number `device`. */
SUBBYTE_API int subbyte_matrix_to_gpu(const subbyte_matrix* matrix, int32_t device,
                                      int32_t row_order, void* stream, subbyte_matrix** packed);

/* What a matrix is; the addresses are valid as long as it is, and NULL for one that is packed. */
SUBBYTE_API int subbyte_matrix_describe(const subbyte_matrix* matrix, subbyte_weights* weights);
/* Bytes that a product reads. */
SUBBYTE_API int subbyte_matrix_bytes(const subbyte_matrix* matrix, int64_t* bytes);

/* Rounds numbers [rows][cols] of `number` (f32, f16, bf16) on the host to a matrix. `format` is a
 * name of `subbyte quantize --format`, such as "awq", "mxfp4", "nvfp4", "nf4", "kbit", an element
 * ("u4", "nfl3"), or a text such as "u4 g128 scale f16 zero u8". */
typedef struct subbyte_quantizer {
  size_t struct_size;
  const char* format;
  int32_t bits;       /* 0: those of the format */
  int32_t symmetric;  /* 0: as the format usually has it, 1: yes, 2: no */
  int64_t group_size; /* 0: that of the format, halved until it fits; -1: the whole row */
} subbyte_quantizer;
SUBBYTE_API int subbyte_matrix_quantize(subbyte_context* context,
                                        const subbyte_quantizer* quantizer, const void* numbers,
                                        int32_t number, int64_t rows, int64_t cols,
                                        subbyte_matrix** matrix);

/* Weights as numbers [rows][cols] of f32, f16 or bf16, rounded to nearest even, to where the matrix
 * is. On a GPU one launch that can be captured. */
SUBBYTE_API int subbyte_matrix_dequantize(const subbyte_matrix* matrix, int32_t number, void* out,
                                          void* stream);
/* The same of a description, without a matrix: on a GPU codes and out at multiples of 16 bytes,
 * floats, or scaled elements of 2 to 8 bits with cols and groups in 8s. There input_order and
 * group_indices are looked at, for which the stream is waited for, and rows that are apart are
 * copied: neither can be captured. */
SUBBYTE_API int subbyte_dequantize(subbyte_context* context, const subbyte_weights* weights,
                                   int32_t number, void* out, void* stream);

/* ---- products */

enum subbyte_activation {
  SUBBYTE_LINEAR = 0,
  SUBBYTE_RELU = 1,
  SUBBYTE_GELU = 2,      /* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
  SUBBYTE_SILU_GATE = 3, /* gate / (1 + exp(-gate)) * up: y has rows / 2 columns, here and below */
  SUBBYTE_GELU_GATE = 4,
  SUBBYTE_CLAMPED_GATE = 5 /* g = min(gate, limit), u = clamp(up, -limit, limit):
                              g / (1 + exp(-alpha g)) (u + up_offset) */
};

/* y = activation(x W^T + bias) + residual, for each of `batch` matrices x and y. */
typedef struct subbyte_product {
  size_t struct_size;
  const void* x;        /* [batch][m][cols] */
  void* y;              /* [batch][m][rows], or rows / 2 */
  const void* bias;     /* optional: [rows] */
  const void* residual; /* optional: as y, which it may be */
  int64_t m;
  int64_t batch;           /* 0: 1 */
  int64_t x_stride;        /* numbers from one row to the next; 0: they follow each other */
  int64_t y_stride;        /* likewise */
  int64_t residual_stride; /* likewise */
  int64_t x_batch_stride;  /* numbers from one matrix to the next; 0: they follow each other */
  int64_t y_batch_stride;
  int64_t residual_batch_stride;
  int32_t number;     /* of all of them: SUBBYTE_F16, SUBBYTE_BF16, or SUBBYTE_F32, beside which a
                         packed matrix of a GPU has its weights as floats in its workspace */
  int32_t activation; /* enum subbyte_activation */
  float alpha;        /* of the clamped gate; all three 0: 1.702, 7, 1 */
  float limit;
  float up_offset;
  int32_t batch_invariant;  /* on a GPU, 1: a row's result does not depend on m */
  int32_t dependent_launch; /* on a GPU, 1: may begin before the kernel before it has ended */
  void* stream;             /* of the GPU of the matrix */
} subbyte_product;

/* On a GPU the call allocates nothing and waits for nothing once subbyte_product_reserve() or a
 * call like it has been there, so that it can be captured. */
SUBBYTE_API int subbyte_multiply(const subbyte_matrix* matrix, const subbyte_product* product);

/* Makes what a call of that m, number, strides and stream needs. x and y may be NULL. */
SUBBYTE_API int subbyte_product_reserve(const subbyte_matrix* matrix,
                                        const subbyte_product* product);

/* ---- activations, or weights, as blocks that share a scale */

typedef struct subbyte_blocks {
  size_t struct_size;
  const char* format; /* "mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4" */
  const char* rule;   /* of MX scales: "ceil" (NULL), "ocp_floor", "bump_175" */
  const char* layout; /* of scales: "linear" (NULL), "128x4", "8x4" */
  int32_t input;      /* SUBBYTE_F32, SUBBYTE_F16, SUBBYTE_BF16 */
  float tensor_scale; /* of nvfp4; 0: 1 */
  int64_t rows;
  int64_t cols;      /* in 32s; 16s for nvfp4 */
  int64_t alignment; /* of the columns of the codes, in 32s; 0: 32 */
} subbyte_blocks;

typedef struct subbyte_blocks_sizes {
  size_t struct_size;
  int64_t padded_cols; /* of the codes */
  int64_t code_bytes;
  int64_t scale_rows; /* with padding */
  int64_t scale_cols; /* with padding; scales have scale_rows * scale_cols bytes */
} subbyte_blocks_sizes;
SUBBYTE_API int subbyte_blocks_measure(const subbyte_blocks* blocks, subbyte_blocks_sizes* sizes);

/* x [rows][cols] to the same bits on the host and on a GPU: there one launch that can be captured,
 * x and codes at multiples of 16 bytes. */
SUBBYTE_API int subbyte_blocks_quantize(subbyte_context* context, const subbyte_blocks* blocks,
                                        const void* x, void* codes, void* scales, void* stream);

/* ---- FlashInfer's group_gemm_mxfp8_mxfp4_nt_groupwise */

typedef struct subbyte_group_gemm subbyte_group_gemm;
typedef struct subbyte_group_weights {
  size_t struct_size;
  const void* b;       /* e2m1 [groups][n][k / 2] */
  const void* b_scale; /* e8m0 [groups][n in 128s][k / 32], swizzled 128x4 */
  int64_t b_bytes;     /* of the buffers, which are checked; 0 on a GPU: not told */
  int64_t b_scale_bytes;
  int64_t groups;
  int64_t n;                /* in 8s */
  int64_t k;                /* in 128s */
  int32_t checkpoint_order; /* on a GPU, 1: blocks and scales as gpt-oss has them, k in 32s */
} subbyte_group_weights;

/* Host memory must stay as long as the handle; weights of a GPU are packed. */
SUBBYTE_API int subbyte_group_gemm_create(subbyte_context* context,
                                          const subbyte_group_weights* weights, void* stream,
                                          subbyte_group_gemm** gemm);
SUBBYTE_API void subbyte_group_gemm_destroy(subbyte_group_gemm* gemm);

typedef struct subbyte_group_call {
  size_t struct_size;
  const void* a;           /* fp8 [m][k in 128s] */
  const void* a_scale;     /* e8m0, swizzled; each group from subbyte_group_scale_row() on */
  const int32_t* m_indptr; /* [groups + 1]: from 0 to m, multiples of 4 that do not fall */
  void* out;               /* [m][n] */
  int64_t m;
  int64_t a_bytes; /* of the buffers of the host, which are checked */
  int64_t a_scale_bytes;
  int64_t out_bytes;
  int32_t a_dtype;   /* SUBBYTE_E4M3, SUBBYTE_E5M2; 0: SUBBYTE_E4M3 */
  int32_t out_dtype; /* SUBBYTE_BF16, SUBBYTE_F16; 0: SUBBYTE_BF16 */
  int32_t mma_sm;    /* hints: checked as FlashInfer does, choose nothing; 0: 1, 128, 128, 128 */
  int32_t tile_m;
  int32_t tile_n;
  int32_t tile_k;
  int32_t swap_ab;
  void* stream;
} subbyte_group_call;

/* On a GPU with the same promises as subbyte_multiply(). */
SUBBYTE_API int subbyte_group_gemm_run(const subbyte_group_gemm* gemm,
                                       const subbyte_group_call* call);
SUBBYTE_API int subbyte_group_gemm_reserve(const subbyte_group_gemm* gemm, int64_t m, void* stream);
/* The row of a_scale at which the scales of a group begin; of group `groups`, the rows of all. */
SUBBYTE_API int subbyte_group_scale_row(const int32_t* m_indptr, int64_t groups, int64_t group,
                                        int64_t* row);

/* ---- checkpoints */

typedef struct subbyte_checkpoint subbyte_checkpoint;
/* A model directory or file, or org/name[@revision] in the cache of Hugging Face. */
SUBBYTE_API int subbyte_checkpoint_open(subbyte_context* context, const char* path,
                                        subbyte_checkpoint** checkpoint);
SUBBYTE_API void subbyte_checkpoint_destroy(subbyte_checkpoint* checkpoint);

/* Its matrices: [{"name", "kind", "format", "experts", "rows", "cols", "act_order"} or with "error"
 * where one contradicts itself, ...]. */
SUBBYTE_API int subbyte_checkpoint_modules(const subbyte_checkpoint* checkpoint, char** json);

/* The matrix of module "model.layers.0.self_attn.q_proj"; `expert` is 0 but of stacks. */
SUBBYTE_API int subbyte_checkpoint_matrix(const subbyte_checkpoint* checkpoint, const char* module,
                                          int64_t expert, subbyte_matrix** matrix);

/* ---- layouts of other software: a matrix as named tensors and back */

/* One tensor, named and typed as in safetensors: "qweight", "I32". */
typedef struct subbyte_tensor {
  size_t struct_size;
  const char* name;
  const char* dtype;
  int32_t rank; /* up to 4 */
  int64_t shape[4];
  const void* data; /* on the host or on a GPU */
} subbyte_tensor;

/* docs/c.md lists the names with their tensors: checkpoints' "awq", "gptq", ..., aten's operands
 * "int4pack-cpu", "-cuda", "-xpu", "marlin", "marlin-fp4", "flashinfer-mxfp4", "ggml-Q4_K". */
typedef struct subbyte_layout {
  size_t struct_size;
  const char* name;
  const char* config; /* optional: the quantization_config of a checkpoint, in JSON */
  const char* tile;   /* int4pack-cpu: "64", "32", "pairs-32", "pairs-16"; -cuda: "2", "4", "8" */
  int32_t number; /* type of activations; 0: to int4pack-* that of the scales; marlin-fp4: bf16 */
  void* stream;   /* to a layout: of the GPU of the matrix */
  int64_t expert; /* of tensors of marlin* and flashinfer-mxfp4 that begin with all experts */
  int64_t rows;   /* of flashinfer-mxfp4 without its padding; 0: with it */
  int64_t cols;
} subbyte_layout;
/* Tensors of a GPU become a matrix that is packed there, but for int4pack-* through the host. */
SUBBYTE_API int subbyte_matrix_import(subbyte_context* context, const subbyte_layout* layout,
                                      const subbyte_tensor* tensors, int64_t num_tensors,
                                      void* stream, subbyte_matrix** matrix);

/* Its tensors, of the host (int4pack-* of a matrix of a GPU: there), and their config as JSON. */
typedef struct subbyte_tensors subbyte_tensors;
SUBBYTE_API int subbyte_matrix_export(const subbyte_matrix* matrix, const subbyte_layout* layout,
                                      subbyte_tensors** tensors);
SUBBYTE_API int subbyte_tensors_count(const subbyte_tensors* tensors, int64_t* count);
SUBBYTE_API int subbyte_tensors_get(const subbyte_tensors* tensors, int64_t index,
                                    subbyte_tensor* tensor);
SUBBYTE_API int subbyte_tensors_config(const subbyte_tensors* tensors, char** json);
SUBBYTE_API void subbyte_tensors_destroy(subbyte_tensors* tensors);

/* ---- kbit and vector quantization of bitsandbytes; codes of a GPU: docs/kbit.md */

typedef struct subbyte_kbit {
  size_t struct_size;
  uint32_t* packed; /* with padding where it is written */
  void* absmax;
  const void* codebook; /* kbit: f32 [2^k]; VQ: f16 [256][p] */
  int64_t packed_words; /* of the buffers, which are checked */
  int64_t absmax_elements;
  int64_t n;            /* outputs; of numbers without a shape all of them */
  int64_t k_dim;        /* inputs; 0: without a shape */
  int32_t k;            /* kbit: bits, 2 to 5 */
  int32_t p;            /* VQ: weights of a byte, 2 or 4; 0: kbit */
  int32_t absmax_dtype; /* SUBBYTE_E4M4 (0), SUBBYTE_F16, SUBBYTE_F32 */
  int32_t tiled;        /* 1: tiles of 128 outputs and 64 inputs, else flat */
  void* stream;         /* a cudaStream_t, on a GPU; work there is not waited for */
} subbyte_kbit;
/* Words and elements with padding of buffers for k (or p), n, k_dim and tiled. */
SUBBYTE_API int subbyte_kbit_measure(const subbyte_kbit* from, int64_t* packed_words,
                                     int64_t* absmax_elements);
/* n (times k_dim) f32, f16 or bf16 to flat codes; codes to those; flat to tiled, of kbit back.
 * Scales of E4M4 hold from 2^-15 to below 32. Numbers beyond that have the code
 * quantize.scale_overflow, and quantize.loss if all are below: on the host, once the codes are
 * written. On a GPU, whose work is not waited for, nothing looks at them. */
SUBBYTE_API int subbyte_kbit_quantize(subbyte_context* context, const void* numbers, int32_t number,
                                      const subbyte_kbit* to);
SUBBYTE_API int subbyte_kbit_dequantize(subbyte_context* context, const subbyte_kbit* from,
                                        int32_t number, void* out);
SUBBYTE_API int subbyte_kbit_repack(const subbyte_kbit* from, const subbyte_kbit* to);
/* out [m][n] = a [m][k_dim] W^T, of f16 or bf16; flat weights up to m = 4. With expert_offsets
 * [num_experts + 1] rows between two of them go to an expert, whose tiles follow each other. */
SUBBYTE_API int subbyte_kbit_multiply(subbyte_context* context, const subbyte_kbit* weights,
                                      const void* a, void* out, int64_t m, int32_t number,
                                      const int32_t* expert_offsets, int64_t num_experts);
/* Runs of `dim` numbers (f16, bf16) in place; bit i % 32 of the optional signs[i / 32] negates. */
SUBBYTE_API int subbyte_hadamard_rotate(void* data, int64_t count, int32_t number, int64_t dim,
                                        const uint32_t* signs);

#ifdef __cplusplus
}
#endif

#include "subbyte/subbyte_models.h"

#endif /* SUBBYTE_SUBBYTE_H_ */
