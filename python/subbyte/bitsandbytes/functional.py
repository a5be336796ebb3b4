"""bitsandbytes.functional by its names: 4 bits, blocks of 8 bits, and kbit of its archived branch.

    import subbyte.bitsandbytes.functional as F
    packed, state = F.quantize_4bit(weights, quant_type="nf4")

Arguments, results and refusals are those of bitsandbytes 0.50 and of the branch
archive/kbit-gemv-v8; docs/torch.md says what is missing.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch

import subbyte.torch  # noqa: F401  registers the operators

ops = torch.ops.subbyte
FLOATS = (torch.bfloat16, torch.float16, torch.float32)
BLOCKSIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)


class QuantState:
    """What is needed beside the packed weights to have them back; `nested` states have a state2."""

    def __init__(self, absmax: torch.Tensor, shape=None, code=None, blocksize=None, quant_type=None,
                 dtype=None, offset=None, state2: QuantState | None = None) -> None:
        self.absmax, self.shape, self.code, self.dtype = absmax, shape, code, dtype
        self.blocksize, self.quant_type = blocksize, quant_type
        self.offset, self.state2 = offset, state2
        self.nested = state2 is not None

    def to(self, device: torch.device | str) -> None:
        """Moves its tensors."""
        self.code, self.absmax = self.code.to(device), self.absmax.to(device)
        if self.state2 is not None:
            self.offset = self.offset.to(device)
            self.state2.to(device)


def scales_of(state: Any) -> torch.Tensor:
    """The absmax of each block as float32, of a state of ours or of bitsandbytes itself."""
    if state.state2 is None:
        return state.absmax.float()
    return dequantize_blockwise(state.absmax, state.state2).float() + state.offset


def get_4bit_type(typename: str, device=None, blocksize: int = 64) -> torch.Tensor:
    """The 16 values of nf4 or fp4."""
    if typename not in ("nf4", "fp4"):
        raise NotImplementedError(f"Typename {typename} not supported")
    codes = torch.tensor([i << 4 | i + 1 for i in range(0, 16, 2)], dtype=torch.uint8)
    return ops.dequantize_4bit(codes, torch.ones(1), 64, typename, [16], torch.float32).to(
        device or "cpu")


# ---- 4 bits ----


def quantize_4bit(A: torch.Tensor, absmax: torch.Tensor | None = None,
                  out: torch.Tensor | None = None, blocksize: int | None = None,
                  compress_statistics: bool = False, quant_type: str = "fp4",
                  quant_storage: torch.dtype = torch.uint8) -> tuple[torch.Tensor, QuantState]:
    """Packed codes and their state."""
    blocksize = 64 if blocksize is None else blocksize
    if blocksize not in BLOCKSIZES:
        raise ValueError(f"invalid blocksize {blocksize}")
    if quant_type not in ("nf4", "fp4"):
        raise ValueError(f"quant_type must be 'nf4' or 'fp4', got {quant_type!r}")
    if A.dtype not in FLOATS:
        raise ValueError(
            f"Blockwise 4bit quantization only supports 16/32-bit floats, but got {A.dtype}")
    packed, largest = ops.quantize_4bit(A.detach(), blocksize, quant_type, quant_storage)
    state = QuantState(largest, A.shape, get_4bit_type(quant_type, A.device), blocksize, quant_type,
                       A.dtype)
    if compress_statistics:
        state.offset = largest.mean()
        state.absmax, state.state2 = quantize_blockwise(largest - state.offset, blocksize=256)
        state.nested = True
    if absmax is not None:
        state.absmax = absmax.copy_(state.absmax)
    return packed if out is None else out.copy_(packed), state


def quantize_nf4(A, absmax=None, out=None, blocksize=None, compress_statistics=False,
                 quant_storage=torch.uint8):
    return quantize_4bit(A, absmax, out, blocksize, compress_statistics, "nf4", quant_storage)


def quantize_fp4(A, absmax=None, out=None, blocksize=None, compress_statistics=False,
                 quant_storage=torch.uint8):
    return quantize_4bit(A, absmax, out, blocksize, compress_statistics, "fp4", quant_storage)


def dequantize_4bit(A: torch.Tensor, quant_state: QuantState | None = None,
                    absmax: torch.Tensor | None = None, out: torch.Tensor | None = None,
                    blocksize: int | None = None, quant_type: str = "fp4") -> torch.Tensor:
    """The weights, transposed where the packed codes are."""
    if quant_state is None:
        if absmax is None or out is None:
            raise ValueError(
                "dequantize_4bit requires both absmax and out when quant_state is not provided")
        quant_state = QuantState(absmax, out.shape, None, 64 if blocksize is None else blocksize,
                                 quant_type, out.dtype)
    if quant_state.blocksize not in BLOCKSIZES:
        raise ValueError(f"invalid blocksize {quant_state.blocksize}")
    if quant_state.quant_type not in ("nf4", "fp4"):
        raise ValueError(f"quant_type must be 'nf4' or 'fp4', got {quant_state.quant_type!r}")
    if quant_state.dtype not in FLOATS:
        raise ValueError("Blockwise 4bit dequantization only supports 16/32-bit floats, but got "
                         f"{quant_state.dtype}")
    arguments = (A, scales_of(quant_state), quant_state.blocksize, quant_state.quant_type,
                 list(quant_state.shape), quant_state.dtype)
    if out is None:
        out = ops.dequantize_4bit(*arguments)
    else:
        ops.dequantize_4bit.out(*arguments, out)
    return out.t() if A.shape[0] == 1 else out


def dequantize_nf4(A, quant_state=None, absmax=None, out=None, blocksize=None):
    return dequantize_4bit(A, quant_state, absmax, out, blocksize, "nf4")


def dequantize_fp4(A, quant_state=None, absmax=None, out=None, blocksize=None):
    return dequantize_4bit(A, quant_state, absmax, out, blocksize, "fp4")


def gemv_4bit(A: torch.Tensor, B: torch.Tensor, out: torch.Tensor | None = None,
              transposed_A: bool = False, transposed_B: bool = False,
              state: QuantState | None = None) -> torch.Tensor:
    """A [..., K] times the weights [N, K] of a state, transposed."""
    if state is None:
        raise ValueError(
            "state cannot be None. gemv_4bit() requires the state from quantize_4bit()")
    arguments = (A, B, list(state.shape), scales_of(state), state.code, state.blocksize)
    if out is None:
        return ops.gemv_4bit(*arguments)
    ops.gemv_4bit.out(*arguments, out)
    return out


# ---- blocks of 8 bits ----


def create_dynamic_map(signed: bool = True, max_exponent_bits: int = 7,
                       total_bits: int = 8) -> torch.Tensor:
    """Values with a decimal exponent, whose fraction has the bits that the exponent leaves."""
    if total_bits != 8 or not signed:
        raise NotImplementedError("only the signed map of 8 bits is here")
    values = [0.0, 1.0]
    for exponent in range(max_exponent_bits):
        edges = torch.linspace(0.1, 1, 2**exponent + 1, dtype=torch.float32)
        middles = (edges[:-1] + edges[1:]) / 2
        values += (10 ** (exponent - max_exponent_bits + 1) * middles).tolist()
        values += (-(10 ** (exponent - max_exponent_bits + 1)) * middles).tolist()
    return torch.tensor(sorted(values), dtype=torch.float32)


def quantize_blockwise(A: torch.Tensor, code: torch.Tensor | None = None,
                       absmax: torch.Tensor | None = None, out: torch.Tensor | None = None,
                       blocksize: int = 4096,
                       nested: bool = False) -> tuple[torch.Tensor, QuantState]:
    """The nearest value of `code` for each number over the largest of its block."""
    if blocksize <= 0:
        raise ValueError(f"blocksize must be positive, got {blocksize}")
    if A.dtype not in FLOATS:
        raise ValueError(
            f"Blockwise quantization only supports 16/32-bit floats, but got {A.dtype}")
    code = (create_dynamic_map() if code is None else code).to(A.device)
    numbers = A.flatten().float()
    blocks = torch.nn.functional.pad(numbers, (0, -len(numbers) % blocksize)).view(-1, blocksize)
    largest = blocks.abs().amax(1)
    scaled = (blocks / torch.where(largest == 0, 1, largest).unsqueeze(1)).clamp(-1, 1)
    middles = (code[:-1] + code[1:]) / 2
    found = torch.bucketize(scaled, middles).flatten()[:len(numbers)].to(torch.uint8).view(A.shape)
    state = QuantState(largest, code=code, blocksize=blocksize, dtype=A.dtype)
    if nested:
        state.offset = largest.mean()
        state.absmax, state.state2 = quantize_blockwise(largest - state.offset,
                                                        blocksize=blocksize)
        state.nested = True
    if absmax is not None:
        state.absmax = absmax.copy_(state.absmax)
    return found if out is None else out.copy_(found), state


def dequantize_blockwise(A: torch.Tensor, quant_state: QuantState | None = None,
                         absmax: torch.Tensor | None = None, code: torch.Tensor | None = None,
                         out: torch.Tensor | None = None, blocksize: int = 4096,
                         nested: bool = False) -> torch.Tensor:
    """Numbers of the state's type."""
    if quant_state is None:
        if absmax is None:
            raise ValueError("dequantize_blockwise requires quant_state or absmax")
        code = (create_dynamic_map() if code is None else code).to(A.device)
        quant_state = QuantState(absmax, code=code, blocksize=blocksize, dtype=torch.float32)
    scales = scales_of(quant_state).repeat_interleave(quant_state.blocksize)[:A.numel()]
    numbers = (quant_state.code[A.flatten().long()] * scales).view(A.shape).to(quant_state.dtype)
    return numbers if out is None else out.copy_(numbers)


# ---- kbit, of the archived branch ----


def create_normal_float_codebook(k: int, device=None) -> torch.Tensor:
    """2^k quantiles of the normal distribution over the largest of them."""
    normal = statistics.NormalDist()
    values = [normal.inv_cdf((i + 0.5) / 2**k) for i in range(2**k)]
    return torch.tensor([v / values[-1] for v in values], dtype=torch.float32, device=device)


def encode_absmax_e4m4(absmax: torch.Tensor, bias: int = 11) -> torch.Tensor:
    """Bytes of 4 bits exponent and 4 bits mantissa, which is clamped and does not carry.

    The logarithm is a float, as the original's: just below a power of two it is a whole number.
    """
    x = absmax.double()
    exponent = torch.floor(torch.log2(x.clamp(min=2.0**-60)).float()).double()
    stored = (exponent + bias).clamp(max=15)
    mantissa = torch.round((x / torch.exp2(exponent) - 1) * 16).clamp(0, 15)
    small = torch.round(x * 2.0 ** (bias - 1) * 16).clamp(0, 15)
    code = torch.where(stored >= 1, stored * 16 + mantissa, small)
    return torch.where(x > 0, code, torch.zeros_like(code)).to(torch.uint8)


def decode_absmax_e4m4(raw: torch.Tensor, bias: int = 11) -> torch.Tensor:
    """float32 of such bytes."""
    exponent, mantissa = (raw >> 4).float(), (raw & 15).float()
    return torch.where(exponent == 0, 2.0 ** (1 - bias) * mantissa / 16,
                       torch.exp2(exponent - bias) * (1 + mantissa / 16))


def quantize_kbit(A: torch.Tensor, k: int = 4, codebook: torch.Tensor | None = None,
                  absmax_format: str = "e4m4",
                  nearest_scales: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """packed, absmax, codebook: the original's bytes, whose scales neither carry nor saturate.

    With `nearest_scales` they do, and codes are those nearest with the scale that is stored.
    """
    if absmax_format != "e4m4":
        raise NotImplementedError(f"absmax_format {absmax_format!r}: only 'e4m4' is here")
    codebook = create_normal_float_codebook(k, A.device) if codebook is None else codebook
    packed, absmax = ops.quantize_kbit(A, codebook, k, nearest_scales=nearest_scales)
    return packed, absmax, codebook


def dequantize_kbit(packed: torch.Tensor, absmax: torch.Tensor, codebook: torch.Tensor, k: int,
                    n: int, dtype: torch.dtype = torch.float16,
                    out: torch.Tensor | None = None) -> torch.Tensor:
    """The first n numbers."""
    if out is None:
        return ops.dequantize_kbit(packed, codebook, absmax, k, n, dtype)[:n]
    ops.dequantize_kbit_(packed, codebook, absmax, k, n, dtype, out)
    return out[:n]


def kbit_linear(A: torch.Tensor, B_packed: torch.Tensor, B_absmax: torch.Tensor,
                codebook: torch.Tensor, k: int, K_dim: int, N: int,
                out: torch.Tensor | None = None, workspace: Any = None) -> torch.Tensor:
    """A [M, K_dim] times repacked weights [N, K_dim], transposed, for any M."""
    y = ops.kbit_gemm_prod(A, B_packed, B_absmax, codebook, K_dim, N, k, 1)
    return y if out is None else out.copy_(y)


def kbit_linear_workspace(M: int, K_dim: int, N: int, dtype: torch.dtype,
                          device=None) -> dict[str, torch.Tensor]:
    """Nothing: no product here needs scratch of the caller's."""
    return {}


def hadamard_rotate(data: torch.Tensor, block_size: int = 32,
                    signs: torch.Tensor | None = None) -> torch.Tensor:
    """Rotates in place, blocks of so many numbers; 0: the whole last dimension."""
    if block_size == 0:
        size = data.shape[-1]
        if size & size - 1 or not 512 <= size <= 8192:
            raise ValueError(
                f"the last dimension must be 512 to 8192 and a power of two, got {size}")
        ops.hadamard_rotate_full_(data, size, signs)
    else:
        if block_size not in (32, 64, 128, 256):
            raise ValueError(f"block_size must be 32, 64, 128 or 256, got {block_size}")
        ops.hadamard_rotate_(data, block_size, signs)
    return data
