"""Shapes and types of results, for torch.compile and torch.export: no kernel runs.

A fake refuses what it can see in shapes and types; the kernel has the whole check.
"""

from __future__ import annotations

import torch

from ._formats import bits_of, is_dense

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def fake(name: str):
    return torch.library.register_fake(f"subbyte::{name}")


def check_floats(x: torch.Tensor, name: str) -> None:
    torch._check(x.dtype in FLOATS, lambda: f"{name}: expected f32, f16 or bf16, found {x.dtype}")


@fake("linear")
def _linear(x, codes, scales, zeros, format, tensor_scale=None, codebook=None, input_order=None,
            bias=None, residual=None, activation=None, in_turns=False, alpha=1.702, limit=7.0,
            up_offset=1.0):
    check_floats(x, "x")
    torch._check(codes.dim() == 2, lambda: "codes: expected 2 dimensions")
    has_gate = activation is not None and activation.endswith("_gate")
    return x.new_empty((*x.shape[:-1], codes.shape[0] // 2 if has_gate else codes.shape[0]))


@fake("linear_out")
def _linear_out(x, codes, scales, zeros, format, tensor_scale=None, codebook=None,
                input_order=None, bias=None, residual=None, activation=None, in_turns=False,
                alpha=1.702, limit=7.0, up_offset=1.0, *, out):
    torch._check(out.dtype == x.dtype, lambda: f"out: expected {x.dtype}, found {out.dtype}")


@fake("experts")
def _experts(x, router_logits, gate_up_codes, gate_up_scales, gate_up_zeros, gate_up_format,
             down_codes, down_scales, down_zeros, down_format, top_k, in_turns=False, of_all=False,
             gate_up_factors=None, down_factors=None, gate_up_bias=None, down_bias=None, alpha=1.0,
             limit=None, up_offset=0.0):
    check_floats(x, "x")
    return x.new_empty(x.shape)


@fake("experts_out")
def _experts_out(x, router_logits, gate_up_codes, gate_up_scales, gate_up_zeros, gate_up_format,
                 down_codes, down_scales, down_zeros, down_format, top_k, in_turns=False,
                 of_all=False, gate_up_factors=None, down_factors=None, gate_up_bias=None,
                 down_bias=None, alpha=1.0, limit=None, up_offset=0.0, *, out):
    check_floats(x, "x")


@fake("routed_experts")
def _routed_experts(x, expert_weights, expert_ids, gate_up_codes, gate_up_scales, gate_up_zeros,
                    gate_up_format, down_codes, down_scales, down_zeros, down_format,
                    in_turns=False, gate_up_factors=None, down_factors=None, gate_up_bias=None,
                    down_bias=None, alpha=1.0, limit=None, up_offset=0.0):
    check_floats(x, "x")
    return x.new_empty(x.shape)


@fake("routed_experts_out")
def _routed_experts_out(x, expert_weights, expert_ids, gate_up_codes, gate_up_scales,
                        gate_up_zeros, gate_up_format, down_codes, down_scales, down_zeros,
                        down_format, in_turns=False, gate_up_factors=None, down_factors=None,
                        gate_up_bias=None, down_bias=None, alpha=1.0, limit=None, up_offset=0.0,
                        *, out):
    check_floats(x, "x")


def dequantized_cols(codes, fmt, cols):
    if cols is not None:
        return cols
    if " cols " in fmt:
        return int(fmt.rpartition(" ")[2])
    return codes.shape[1] if is_dense(fmt) else codes.shape[1] * 8 // bits_of(fmt)


@fake("dequantize")
def _dequantize(codes, scales, zeros, format, tensor_scale=None, codebook=None, input_order=None,
                *, cols=None, dtype):
    torch._check(codes.dim() == 2, lambda: "codes: expected 2 dimensions")
    return codes.new_empty((codes.shape[0], dequantized_cols(codes, format, cols)), dtype=dtype)


@fake("dequantize_out")
def _dequantize_out(codes, scales, zeros, format, tensor_scale=None, codebook=None,
                    input_order=None, *, cols=None, dtype, out):
    torch._check(out.dtype == dtype, lambda: f"out: expected {dtype}, found {out.dtype}")


def quantized(weights, bits, group, scale=torch.uint8):
    """Codes and scales of a matrix."""
    check_floats(weights, "weights")
    torch._check(weights.dim() == 2, lambda: "weights: expected 2 dimensions")
    rows, cols = weights.shape
    groups = 1 if group == 0 else (cols + group - 1) // group
    return (weights.new_empty((rows, (cols * bits + 7) // 8), dtype=torch.uint8),
            weights.new_empty((rows, groups), dtype=scale))


def factor(weights):
    return weights.new_empty((), dtype=torch.float64)


@fake("quantize_int")
def _quantize_int(weights, bits, group_size, symmetric=False):
    codes, scales = quantized(weights, bits, group_size, torch.float16)
    groups = 0 if symmetric else scales.shape[1]
    zero = torch.uint16 if bits == 8 and not symmetric else torch.uint8
    return codes, scales, weights.new_empty((weights.shape[0], groups), dtype=zero)


@fake("quantize_mxfp4")
def _quantize_mxfp4(weights, rule="ceil"):
    return quantized(weights, 4, 32)


@fake("quantize_nvfp4")
def _quantize_nvfp4(weights, four_over_six=True):
    return (*quantized(weights, 4, 16), factor(weights))


@fake("quantize_nf4")
def _quantize_nf4(weights, block=64):
    return quantized(weights, 4, block, torch.float32)


@fake("quantize_nfl")
def _quantize_nfl(weights, bits, codebook=None):
    return (*quantized(weights, bits, 32), factor(weights))


@fake("quantize_fp8")
def _quantize_fp8(weights):
    return quantized(weights, 8, 128, torch.float32)


@fake("_convert_weight_to_int4pack_for_cpu")
def _int4pack_for_cpu(self, innerKTiles):
    return self.new_empty((self.shape[0], self.shape[1] // 2), dtype=torch.uint8)


@fake("_convert_weight_to_int4pack")
def _int4pack(self, innerKTiles):
    rows, cols = self.shape[0], self.shape[1] * 2
    return self.new_empty((rows // 8, cols // (innerKTiles * 16), 32, innerKTiles // 2),
                          dtype=torch.int32)


def int4_product(self, rows):
    check_floats(self, "self")
    return self.new_empty((self.shape[0], rows))


@fake("_weight_int4pack_mm_for_cpu")
def _int4_mm_for_cpu(self, mat2, qGroupSize, qScaleAndZeros):
    return int4_product(self, mat2.shape[0])


@fake("_weight_int4pack_mm")
def _int4_mm(self, mat2, qGroupSize, qScaleAndZeros):
    return int4_product(self, mat2.shape[0] * 8)


@fake("_weight_int4pack_mm_with_scales_and_zeros")
def _int4_mm_with_scales_and_zeros(self, mat2, qGroupSize, qScale, qZeros):
    return int4_product(self, mat2.shape[0])
