"""Operators of FlashInfer by its names, on machines where it has none: CPUs, Ampere, Hopper.

    import subbyte.flashinfer as flashinfer
    x_q, sf = flashinfer.mxfp8_quantize(x)

Arguments and refusals are those of FlashInfer 0.7; hints that choose one of its kernels choose
nothing. docs/torch.md says what is missing. Where the original moves a tensor to a GPU or returns
one there, ours stays where the argument is.
"""

from __future__ import annotations

import dataclasses
import enum
import os

import torch

import subbyte.torch  # noqa: F401  registers the operators

ops = torch.ops.subbyte


class SfLayout(enum.Enum):
    """Orders of scales."""

    layout_128x4 = 0
    layout_8x4 = 1
    layout_linear = 2


class NVFP44Over6ErrMode(str, enum.Enum):
    """Measures of a block's error."""

    MAE = "MAE"
    MSE = "MSE"


@dataclasses.dataclass(frozen=True)
class NVFP44Over6Config:
    """How NVFP4's scales are searched: the top of their range and the measure of errors."""

    e4m3_max: int = 448
    err_mode: NVFP44Over6ErrMode = NVFP44Over6ErrMode.MAE
    err_use_fast_math: bool = False

    def __post_init__(self) -> None:
        if self.e4m3_max not in (256, 448):
            raise ValueError(f"e4m3_max must be 256 or 448, got {self.e4m3_max}")
        object.__setattr__(self, "err_mode", NVFP44Over6ErrMode(str(
            getattr(self.err_mode, "value", self.err_mode)).upper()))


class _Unset(enum.Enum):
    UNSET = 0


_UNSET = _Unset.UNSET
_VARIABLE = "FLASHINFER_NVFP4_4OVER6"


def _search_of(config: NVFP44Over6Config | None | _Unset) -> NVFP44Over6Config | None:
    """The configuration; where the argument is left out, that of the environment."""
    if config is not _UNSET:
        if config is not None and not isinstance(config, NVFP44Over6Config):
            raise TypeError(f"nvfp4_4over6 must be a NVFP44Over6Config or None, got {config!r}")
        return config
    if os.environ.get(_VARIABLE) != "1":
        return None
    return NVFP44Over6Config(
        256 if os.environ.get(f"{_VARIABLE}_E4M3_USE_256") == "1" else 448,
        NVFP44Over6ErrMode(os.environ.get(f"{_VARIABLE}_ERR_MODE", "MAE").upper()),
        os.environ.get(f"{_VARIABLE}_ERR_USE_FAST_MATH") == "1")


def _error_name(config: NVFP44Over6Config | None) -> str | None:
    if config is None:
        return None
    if config.err_use_fast_math:
        raise NotImplementedError("err_use_fast_math: errors are measured in float32 here")
    return config.err_mode.value


def _number(layout: SfLayout | int) -> int:
    return layout.value if isinstance(layout, SfLayout) else int(layout)


def _check_columns(x: torch.Tensor, group: int) -> None:
    if x.shape[-1] % group != 0:
        raise AssertionError(f"the last dimension must be in {group}s, got {x.shape[-1]}")


# ---- quantizers ----


def mxfp8_quantize(input: torch.Tensor, is_sf_swizzled_layout: bool = True, alignment: int = 32,
                   enable_pdl: bool | None = None, backend: str = "cuda",
                   sf_swizzle_layout: SfLayout | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """[..., K] to float8_e4m3fn [..., K'] and scales in one dimension."""
    if backend not in ("cuda", "cute-dsl"):
        raise ValueError(f"backend must be 'cuda' or 'cute-dsl', got {backend!r}")
    _check_columns(input, 32)
    layout = None if sf_swizzle_layout is None else _number(sf_swizzle_layout)
    return ops.mxfp8_quantize(input, is_sf_swizzled_layout, alignment, enable_pdl, backend, layout)


def mxfp4_quantize(a: torch.Tensor, backend: str = "cuda", enable_pdl: bool | None = None,
                   sfLayout: SfLayout = SfLayout.layout_128x4
                   ) -> tuple[torch.Tensor, torch.Tensor]:
    """[M, K] to bytes [M, K/2] and scales in two dimensions."""
    if backend not in ("cuda", "cute-dsl"):
        raise ValueError(f"backend must be 'cuda' or 'cute-dsl', got {backend!r}")
    return ops.mxfp4_quantize(a, backend, enable_pdl, _number(sfLayout))


def nvfp4_quantize(a: torch.Tensor, a_global_sf: torch.Tensor,
                   sfLayout: SfLayout = SfLayout.layout_128x4, do_shuffle: bool = False,
                   sf_vec_size: int = 16, enable_pdl: bool | None = None, backend: str = "cuda",
                   per_token_activation: bool = False, expanded_idx_to_permuted_idx=None,
                   out_scale=None, nvfp4_4over6: NVFP44Over6Config | None | _Unset = _UNSET
                   ) -> tuple[torch.Tensor, torch.Tensor]:
    """[M, K] to bytes [M, K/2] and scales in two dimensions; a_global_sf is 448 * 6 / amax."""
    if backend not in ("cuda", "cute-dsl", "cake"):
        raise ValueError(f"backend must be 'cuda', 'cute-dsl' or 'cake', got {backend!r}")
    for name, value in (("do_shuffle", do_shuffle), ("per_token_activation", per_token_activation),
                        ("expanded_idx_to_permuted_idx", expanded_idx_to_permuted_idx),
                        ("out_scale", out_scale)):
        if value not in (False, None):
            raise NotImplementedError(f"{name} is not supported here")
    error = _error_name(_search_of(nvfp4_4over6))
    return ops.nvfp4_quantize(a, a_global_sf.reshape(1), _number(sfLayout), False, sf_vec_size,
                              enable_pdl, backend, False, error)


def fp4_quantize(input: torch.Tensor, global_scale: torch.Tensor | None = None,
                 sf_vec_size: int = 16, sf_use_ue8m0: bool = False,
                 is_sf_swizzled_layout: bool = True, is_sf_8x4_layout: bool = False,
                 is_global_scale_inversed: bool = False, enable_pdl: bool | None = None,
                 backend: str = "cuda", nvfp4_4over6: NVFP44Over6Config | None | _Unset = _UNSET
                 ) -> tuple[torch.Tensor, torch.Tensor]:
    """NVFP4 (blocks of 16, E4M3) or MXFP4 (blocks of 32, E8M0) by the arguments."""
    if sf_vec_size not in (16, 32):
        raise NotImplementedError("sf_vec_size can only be 16 or 32")
    if (sf_vec_size == 32) != sf_use_ue8m0:
        raise NotImplementedError("blocks of 16 have E4M3 scales, blocks of 32 E8M0 scales")
    layout = 2 if not is_sf_swizzled_layout else 1 if is_sf_8x4_layout else 0
    if sf_use_ue8m0:
        return ops.mxfp4_quantize(input, backend, enable_pdl, layout)
    scale = torch.ones(1) if global_scale is None else global_scale.reshape(1)
    return ops.nvfp4_quantize(input, 1 / scale if is_global_scale_inversed else scale, layout,
                              False, 16, enable_pdl, backend, False,
                              _error_name(_search_of(nvfp4_4over6)))


def make_nvfp4_global_scale(input_tensor: torch.Tensor, per_token_activation: bool,
                            global_scale: torch.Tensor | None = None,
                            nvfp4_4over6_config: NVFP44Over6Config | None = None) -> torch.Tensor:
    """The global scale that nvfp4_quantize takes with the same configuration."""
    if global_scale is not None:
        return global_scale
    largest = (448 if nvfp4_4over6_config is None else nvfp4_4over6_config.e4m3_max) * 6.0
    if per_token_activation:
        return torch.full((1,), 1 / largest, device=input_tensor.device)
    amax = input_tensor.abs().max().float()
    return torch.where(amax == 0, torch.ones_like(amax), largest / amax).reshape(1)


# ---- back ----


def mxfp4_dequantize(a_fp4: torch.Tensor, a_sf: torch.Tensor,
                     sfLayout: SfLayout = SfLayout.layout_128x4) -> torch.Tensor:
    """float32 [M, K]."""
    return ops.mxfp4_dequantize(a_fp4, a_sf.flatten(), _number(sfLayout))


def mxfp4_dequantize_host(weight: torch.Tensor, scale: torch.Tensor,
                          group_size: int = 32) -> torch.Tensor:
    """float32 [N, K] with linear scales."""
    return ops.mxfp4_dequantize_host(weight, scale, group_size)


def mxfp8_dequantize_host(input: torch.Tensor, scale_tensor: torch.Tensor,
                          is_sf_swizzled_layout: bool = True,
                          sf_swizzle_layout: SfLayout | None = None) -> torch.Tensor:
    """float32 [M, K] of what mxfp8_quantize makes."""
    layout = 0 if is_sf_swizzled_layout else 2
    if sf_swizzle_layout is not None:
        layout = _number(sf_swizzle_layout)
    if layout == 1:
        raise ValueError("the 8x4 layout is not supported")
    rows, groups = input.shape[0], input.shape[1] // 32
    scales = scale_tensor.flatten()
    if layout == 0:
        row, col = torch.arange(rows).unsqueeze(1), torch.arange(groups)
        padded = (groups + 3) // 4
        scales = scales[((row // 128 * padded + col // 4) * 512 + row % 32 * 16 +
                         row % 128 // 32 * 4 + col % 4).to(scales.device)]
    return ops.dequantize(input.view(torch.uint8), scales.reshape(rows, groups).contiguous(), None,
                          "e4m3 g32 scale e8m0", dtype=torch.float32)


def e2m1_and_ufp8sf_scale_to_float(e2m1_tensor: torch.Tensor, ufp8_scale_tensor: torch.Tensor,
                                   global_scale_tensor: torch.Tensor | None = None,
                                   sf_vec_size: int = 16, ufp8_type: int = 1,
                                   is_sf_swizzled_layout: bool = True,
                                   is_sf_8x4_layout: bool = False) -> torch.Tensor:
    """float32 [M, K]."""
    return ops.e2m1_and_ufp8sf_scale_to_float(
        e2m1_tensor, ufp8_scale_tensor, global_scale_tensor, sf_vec_size, ufp8_type,
        is_sf_swizzled_layout, is_sf_8x4_layout)


def block_scale_interleave(unswizzled_sf: torch.Tensor, *,
                           out: torch.Tensor | None = None) -> torch.Tensor:
    """Scales [M, C] or [E, M, C] in the 128x4 order."""
    if unswizzled_sf.dtype not in (torch.uint8, torch.bfloat16):
        raise AssertionError(f"unswizzled_sf must be uint8 or bfloat16, got {unswizzled_sf.dtype}")
    if out is None:
        return ops.block_scale_interleave(unswizzled_sf)
    ops.block_scale_interleave_out(unswizzled_sf, out=out)
    return out


nvfp4_block_scale_interleave = block_scale_interleave


# ---- the product of groups ----


def _check_gemm(a, b, a_scale, b_scale, m_indptr, mma_sm, tile_m, tile_n, tile_k, out,
                out_dtype) -> None:
    """FlashInfer's checks; the hints may be those of any of its GPUs."""
    if a.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2):
        raise ValueError(f"a must be a float8 tensor, but got {a.dtype}")
    for name, tensor, dtype in (("b", b, torch.uint8), ("a_scale", a_scale, torch.uint8),
                                ("b_scale", b_scale, torch.uint8),
                                ("m_indptr", m_indptr, torch.int32)):
        if tensor.dtype != dtype:
            raise ValueError(f"{name} must be a {dtype} tensor, but got {tensor.dtype}")
    for name, value, allowed in (("mma_sm", mma_sm, (1, 2)), ("tile_m", tile_m, (128,)),
                                 ("tile_n", tile_n, (32, 64, 128, 192, 256)),
                                 ("tile_k", tile_k, (128, 256))):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {list(allowed)}, but got {value}")
    if a.dim() != 2 or b.dim() != 3 or b.shape[2] * 2 != a.shape[1]:
        raise ValueError(f"b must be [E, N, {a.shape[-1] // 2}], but got {list(b.shape)}")
    if b.shape[1] % 8 != 0 or a.shape[1] % 128 != 0:
        raise ValueError(f"n must be a multiple of 8 and k of 128, but got {b.shape[1]} and "
                         f"{a.shape[1]}")
    if m_indptr.numel() != b.shape[0] + 1:
        raise ValueError(f"m_indptr must have {b.shape[0] + 1} numbers, but got "
                         f"{m_indptr.numel()}")
    kind = out_dtype or (torch.bfloat16 if out is None else out.dtype)
    if kind not in (torch.bfloat16, torch.float16):
        raise ValueError(f"out_dtype must be bfloat16 or float16, but got {kind}")
    if out is not None and (out.dtype != kind or list(out.shape) != [a.shape[0], b.shape[1]]):
        raise ValueError(f"out must be {[a.shape[0], b.shape[1]]} of {kind}, but got "
                         f"{list(out.shape)} of {out.dtype}")


def group_gemm_mxfp8_mxfp4_nt_groupwise(
        a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor,
        m_indptr: torch.Tensor, mma_sm: int = 1, tile_m: int = 128, tile_n: int = 128,
        tile_k: int = 128, swap_ab: bool = True, out: torch.Tensor | None = None,
        out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """[cum_m, N] of groups of rows of a, each with its matrix of b."""
    _check_gemm(a, b, a_scale, b_scale, m_indptr, mma_sm, tile_m, tile_n, tile_k, out, out_dtype)
    hints = (mma_sm, tile_m, tile_n, tile_k, swap_ab)
    if out is None:
        return ops.group_gemm_mxfp8_mxfp4_nt_groupwise(a, b, a_scale, b_scale, m_indptr, *hints,
                                                       out_dtype)
    ops.group_gemm_mxfp8_mxfp4_nt_groupwise_out(a, b, a_scale, b_scale, m_indptr, *hints, out=out)
    return out


group_gemm_mxfp4_nt_groupwise = group_gemm_mxfp8_mxfp4_nt_groupwise
