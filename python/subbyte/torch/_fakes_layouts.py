"""Fake kernels of FlashInfer's, Marlin's and AWQ's operators."""

from __future__ import annotations

import torch

from ._fakes import check_floats, fake


def round_up(number, multiple):
    return (number + multiple - 1) // multiple * multiple


def scale_sizes(rows, groups, layout):
    """Rows and columns of scales: 0 is 128x4, 1 is 8x4, 2 is linear."""
    if layout == 2:
        return rows, groups
    return round_up(rows, 128 if layout == 0 else 8), round_up(groups, 4)


@fake("mxfp8_quantize")
def _mxfp8_quantize(input, is_sf_swizzled_layout=True, alignment=32, enable_pdl=None,
                    backend="cuda", sf_swizzle_layout=None):
    check_floats(input, "input")
    cols = round_up(input.shape[-1], alignment)
    layout = sf_swizzle_layout
    if layout is None:
        layout = 0 if is_sf_swizzled_layout else 2
    rows = 1
    for size in input.shape[:-1]:
        rows = rows * size
    scale_rows, scale_cols = scale_sizes(rows, cols // 32, layout)
    return (input.new_empty((*input.shape[:-1], cols), dtype=torch.float8_e4m3fn),
            input.new_empty((scale_rows * scale_cols,), dtype=torch.uint8))


def fp4(a, group, layout):
    check_floats(a, "a")
    torch._check(a.dim() == 2, lambda: "a: expected 2 dimensions")
    return (a.new_empty((a.shape[0], a.shape[1] // 2), dtype=torch.uint8),
            a.new_empty(scale_sizes(a.shape[0], a.shape[1] // group, layout), dtype=torch.uint8))


@fake("mxfp4_quantize")
def _mxfp4_quantize(a, backend="cuda", enable_pdl=None, sfLayout=0):
    return fp4(a, 32, sfLayout)


@fake("nvfp4_quantize")
def _nvfp4_quantize(a, a_global_sf, sfLayout=0, do_shuffle=False, sf_vec_size=16, enable_pdl=None,
                    backend="cuda", per_token_activation=False, nvfp4_4over6=None):
    return fp4(a, 16, sfLayout)


def floats_of(codes):
    return codes.new_empty((codes.shape[0], codes.shape[1] * 2), dtype=torch.float32)


@fake("mxfp4_dequantize")
def _mxfp4_dequantize(a_fp4, a_sf, sfLayout=0):
    return floats_of(a_fp4)


@fake("mxfp4_dequantize_host")
def _mxfp4_dequantize_host(weight, scale, group_size=32):
    return floats_of(weight)


@fake("e2m1_and_ufp8sf_scale_to_float")
def _scale_to_float(e2m1_tensor, ufp8_scale_tensor, global_scale_tensor=None, sf_vec_size=16,
                    ufp8_type=1, is_sf_swizzled_layout=True, is_sf_8x4_layout=False):
    return floats_of(e2m1_tensor)


def interleaved(scales):
    experts = scales.shape[0] if scales.dim() == 3 else 1
    return scales.new_empty(
        (experts * round_up(scales.shape[-2], 128) * round_up(scales.shape[-1], 4),))


@fake("block_scale_interleave")
def _block_scale_interleave(unswizzled_sf):
    return interleaved(unswizzled_sf)


@fake("block_scale_interleave_out")
def _block_scale_interleave_out(unswizzled_sf, *, out):
    return None


@fake("nvfp4_block_scale_interleave")
def _nvfp4_block_scale_interleave(unswizzled_sf):
    return interleaved(unswizzled_sf)


def group_gemm(a, b, out_dtype):
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype or torch.bfloat16)


@fake("group_gemm_mxfp8_mxfp4_nt_groupwise")
def _group_gemm(a, b, a_scale, b_scale, m_indptr, mma_sm=1, tile_m=128, tile_n=128, tile_k=128,
                swap_ab=True, out_dtype=None):
    return group_gemm(a, b, out_dtype)


@fake("group_gemm_mxfp4_nt_groupwise")
def _group_gemm_old_name(a, b, a_scale, b_scale, m_indptr, mma_sm=1, tile_m=128, tile_n=128,
                         tile_k=128, swap_ab=True, out_dtype=None):
    return group_gemm(a, b, out_dtype)


@fake("group_gemm_mxfp8_mxfp4_nt_groupwise_out")
def _group_gemm_out(a, b, a_scale, b_scale, m_indptr, mma_sm=1, tile_m=128, tile_n=128, tile_k=128,
                    swap_ab=True, *, out):
    return None


def marlin_words(words, size_k, size_n, num_bits):
    return words.new_empty((size_k // 16, size_n * 16 * num_bits // 32))


@fake("gptq_marlin_repack")
def _gptq_marlin_repack(b_q_weight, size_k, size_n, num_bits, is_a_8bit=False):
    return marlin_words(b_q_weight, size_k, size_n, num_bits)


@fake("gptq_marlin_repack.perm")
def _gptq_marlin_repack_perm(b_q_weight, perm, size_k, size_n, num_bits):
    return marlin_words(b_q_weight, size_k, size_n, num_bits)


@fake("awq_marlin_repack")
def _awq_marlin_repack(b_q_weight, size_k, size_n, num_bits, is_a_8bit=False):
    return marlin_words(b_q_weight, size_k, size_n, num_bits)


@fake("marlin_gemm")
def _marlin_gemm(a, c, b_q_weight, b_bias, b_scales, a_scales, global_scale, b_zeros, workspace,
                 b_q_type, size_m, size_n, size_k, use_atomic_add=False, use_fp32_reduce=False,
                 is_zp_float=False):
    return a.new_empty((size_m, size_n))


@fake("gptq_marlin_gemm")
def _gptq_marlin_gemm(a, c, b_q_weight, b_bias, b_scales, global_scale, b_zeros, g_idx, perm,
                      workspace, b_q_type, size_m, size_n, size_k, is_k_full=True,
                      use_atomic_add=False, use_fp32_reduce=False, is_zp_float=False):
    return a.new_empty((size_m, size_n))


@fake("awq_gemm")
def _awq_gemm(input, qweight, scales, qzeros, split_k_iters):
    return input.new_empty((input.shape[0], qweight.shape[1] * 8))


@fake("awq_dequantize")
def _awq_dequantize(qweight, scales, zeros, split_k_iters, thx, thy):
    return scales.new_empty((qweight.shape[0], qweight.shape[1] * 8))
