"""AutoAWQ's extension awq_ext by its names, on CPUs and on any shape that its checks allow.

    import sys, subbyte.awq_ext
    sys.modules["awq_ext"] = subbyte.awq_ext     # before awq is imported

docs/torch.md says what is missing.
"""

from __future__ import annotations

import torch

import subbyte.torch  # noqa: F401  registers the operators

ops = torch.ops.subbyte


def gemm_forward_cuda(_in_feats: torch.Tensor, _kernel: torch.Tensor,
                      _scaling_factors: torch.Tensor, _zeros: torch.Tensor,
                      split_k_iters: int) -> torch.Tensor:
    """[M, K] times words [K, N/8] with scales [K/g, N] and zero points [K/g, N/8]: [M, N]."""
    outputs = _kernel.shape[1] * 8
    group = _in_feats.shape[1] // _scaling_factors.shape[0]
    if outputs % 64 != 0:
        raise ValueError("OC is not multiple of cta_N = 64")
    if group % 32 != 0:
        raise ValueError("Group size should be a multiple of 32")
    return ops.awq_gemm(_in_feats, _kernel, _scaling_factors, _zeros, split_k_iters)


def gemmv2_forward_cuda(_in_feats: torch.Tensor, _kernel: torch.Tensor,
                        _scaling_factors: torch.Tensor, _zeros: torch.Tensor, group_size: int,
                        split_k_iters: int) -> torch.Tensor:
    """[M, K] times the words [N, K/8] of gemv_forward_cuda: [M, N]."""
    if group_size not in (64, 128):
        raise ValueError("Group size should be 64 or 128")
    return _of_rows(_in_feats, _kernel, _scaling_factors, _zeros, group_size)


def gemv_forward_cuda(_in_feats: torch.Tensor, _kernel: torch.Tensor,
                      _scaling_factors: torch.Tensor, _zeros: torch.Tensor,
                      group_size: int) -> torch.Tensor:
    """The same for few rows. Groups of other sizes than 64 and 128, of which the original returns
    uninitialised memory, are refused."""
    if group_size not in (64, 128):
        raise ValueError("Group size should be 64 or 128")
    return _of_rows(_in_feats, _kernel, _scaling_factors, _zeros, group_size)


def _of_rows(x: torch.Tensor, kernel: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor,
             group_size: int) -> torch.Tensor:
    """Words of rows of outputs, whose codes and zero points are in order from the low bits up."""
    outputs, groups = kernel.shape[0], x.shape[-1] // group_size
    shifts = torch.arange(0, 32, 4, device=zeros.device, dtype=torch.int32)
    zero = (zeros.unsqueeze(-1) >> shifts & 15).flatten(1)[:, :groups].to(torch.uint8)
    return ops.linear(x, kernel.view(torch.uint8).view(outputs, -1), scales[:, :groups],
                      zero.contiguous(), f"u4 g{group_size} scale f16 zero u8")


def dequantize_weights_cuda(_kernel: torch.Tensor, _scaling_factors: torch.Tensor,
                            _zeros: torch.Tensor, split_k_iters: int, thx: int, thy: int,
                            dbg: bool) -> torch.Tensor:
    """Weights [K, N] of the words of gemm_forward_cuda."""
    return ops.awq_dequantize(_kernel, _scaling_factors, _zeros, split_k_iters, thx, thy)
