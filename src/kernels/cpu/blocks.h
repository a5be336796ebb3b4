#pragma once
// Quantizing to blocks and dequantizing to a buffer on the CPU, rows spread over threads. Results
// depend neither on the instruction set nor on the number of threads.

#include "base/status.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/quantized_blocks.h"
#include "subbyte/executor.h"

namespace subbyte::cpu {

/// x [rows][cols] of blocks.input to blocks.code_bytes() and blocks.scale_bytes(), every one of
/// which is written. x is aligned as its numbers are. Codes: those of check_block_quantization().
Status quantize_blocks(const BlockQuantization& blocks, const void* x, void* codes, void* scales,
                       const Kernels& kernels, Executor& executor);

/// Weights of a canonical matrix to out [rows][cols] of `number`, f32, f16 or bf16, column k being
/// input k with act-order, too: weight_at() in f32, product and sum of an offset rounded together,
/// then rounded to `number`, ties to even; the bits of a NaN are any. Rotated weights are rounded
/// once, from double precision.
/// Codes: blocks.input (another number).
Status dequantize(const MatrixView& matrix, Format number, void* out, const Kernels& kernels,
                  Executor& executor);

/// The same to f32, on this thread and with the columns as they are stored: out[k] belongs to input
/// input_order[k], and what is rotated stays so.
void dequantize_stored(const MatrixView& matrix, float* out, const Kernels& kernels);

}  // namespace subbyte::cpu
