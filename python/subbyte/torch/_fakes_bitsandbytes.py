"""Fake kernels of bitsandbytes' operators: 4 bits, kbit, vectors, Hadamard."""

from __future__ import annotations

import torch

from ._fakes import check_floats, fake


def blocks_of(count, size):
    return (count + size - 1) // size


@fake("quantize_4bit")
def _quantize_4bit(A, blocksize, quant_type, quant_storage):
    check_floats(A, "A")
    n = A.numel()
    return (A.new_empty(((n + 1) // 2 // quant_storage.itemsize, 1), dtype=quant_storage),
            A.new_empty((blocks_of(n, blocksize),), dtype=torch.float32))


@fake("dequantize_4bit")
def _dequantize_4bit(A, absmax, blocksize, quant_type, shape, dtype):
    return A.new_empty(shape, dtype=dtype)


@fake("dequantize_4bit.out")
def _dequantize_4bit_out(A, absmax, blocksize, quant_type, shape, dtype, out):
    torch._check(out.dtype == dtype, lambda: f"out: expected {dtype}, found {out.dtype}")


def product_4bit(A, shapeB):
    check_floats(A, "A")
    torch._check(len(shapeB) == 2, lambda: "shapeB: expected [N, K]")
    return A.new_empty((*A.shape[:-1], shapeB[0]))


@fake("gemv_4bit")
def _gemv_4bit(A, B, shapeB, absmax, code, blocksize):
    return product_4bit(A, shapeB)


@fake("gemv_4bit.out")
def _gemv_4bit_out(A, B, shapeB, absmax, code, blocksize, out):
    torch._check(out.dtype == A.dtype, lambda: f"out: expected {A.dtype}, found {out.dtype}")


@fake("gemm_4bit")
def _gemm_4bit(A, B, shapeB, absmax, blocksize, quant_type, bias=None, absmax_8bit=None,
               absmax_code=None, absmax_offset=None):
    return product_4bit(A, shapeB)


def flat_codes(A, planes):
    check_floats(A, "A")
    blocks = blocks_of(A.numel(), 32) + 1
    return (A.new_empty((blocks * planes,), dtype=torch.int32),
            A.new_empty((blocks,), dtype=torch.uint8))


def tiled_codes(packed, K_dim, N, planes):
    blocks = (K_dim + 63) // 64 * (N // 128) * 128 * 2 + 1
    return (packed.new_empty((blocks * planes,)),
            packed.new_empty((blocks,), dtype=torch.uint8))


@fake("quantize_kbit")
def _quantize_kbit(A, codebook, k, *, nearest_scales=False):
    return flat_codes(A, k)


@fake("quantize_vq")
def _quantize_vq(A, codebook, p):
    return flat_codes(A, 8 // p)


@fake("dequantize_kbit")
def _dequantize_kbit(packed, codebook, absmax, k, n, dtype):
    return packed.new_empty((blocks_of(n, 32) * 32,), dtype=dtype)


@fake("dequantize_vq")
def _dequantize_vq(packed, codebook, absmax, p, n, dtype):
    return packed.new_empty((blocks_of(n, 32) * 32,), dtype=dtype)


@fake("dequantize_kbit_")
def _dequantize_kbit_out(packed, codebook, absmax, k, n, dtype, out):
    torch._check(out.dtype == dtype, lambda: f"out: expected {dtype}, found {out.dtype}")


@fake("dequantize_kbit_tiled")
def _dequantize_kbit_tiled(packed, codebook, absmax, k, K_dim, N, dtype):
    return packed.new_empty((N, K_dim), dtype=dtype)


@fake("dequantize_vq_tiled")
def _dequantize_vq_tiled(packed, codebook, absmax, p, K_dim, N, dtype):
    return packed.new_empty((N, K_dim), dtype=dtype)


@fake("repack_kbit")
def _repack_kbit(packed_flat, absmax_flat, K_dim, N, k):
    return tiled_codes(packed_flat, K_dim, N, k)


@fake("repack_vq")
def _repack_vq(packed_flat, absmax_flat, K_dim, N, p):
    return tiled_codes(packed_flat, K_dim, N, 8 // p)


@fake("kbit_gemm_prod")
def _kbit_gemm_prod(A, B_packed, B_absmax, codebook, K_dim, N, k, k_chunks):
    return A.new_empty((A.shape[0], N))


@fake("vq_gemm_prod")
def _vq_gemm_prod(A, B_packed, B_absmax, codebook, K_dim, N, p, k_chunks):
    return A.new_empty((A.shape[0], N))


@fake("kbit_scalar_gemv")
def _kbit_scalar_gemv(A, B_packed, B_absmax, codebook, K_dim, N, k):
    return A.new_empty((A.shape[0], N))


@fake("kbit_scalar_gemv_tiled")
def _kbit_scalar_gemv_tiled(A, B_packed, B_absmax, codebook, K_dim, N, k):
    return A.new_empty((A.shape[0], N))


@fake("vq_scalar_gemv")
def _vq_scalar_gemv(A, B_packed, B_absmax, codebook, K_dim, N, p):
    return A.new_empty((A.shape[0], N))


@fake("vq_scalar_gemv_tiled")
def _vq_scalar_gemv_tiled(A, B_packed, B_absmax, codebook, K_dim, N, p):
    return A.new_empty((A.shape[0], N))


def returns_nothing(*arguments):
    return None


# Operators that write into an argument.
for name in ("dequantize_kbit_tiled_", "dequantize_vq_", "dequantize_vq_tiled_", "kbit_gemm_prod_",
             "kbit_scalar_gemv.out", "kbit_scalar_gemv_tiled_", "kbit_scalar_gemv_v2_",
             "kbit_grouped_gemm_", "vq_gemm_prod_", "vq_scalar_gemv.out", "vq_scalar_gemv_tiled_"):
    fake(name)(returns_nothing)


@fake("kbit_grouped_gemm")
def _kbit_grouped_gemm(A_concat, B_packed_all, B_absmax_all, codebook, expert_offsets, K_dim, N, k,
                       num_experts, max_M):
    return A_concat.new_empty((A_concat.shape[0], N))


@fake("hadamard_rotate_")
def _hadamard_rotate(data, block_size, signs=None):
    return None


@fake("hadamard_rotate_full_")
def _hadamard_rotate_full(data, dim, signs=None):
    return None
