"""Operators of subbyte for PyTorch 2.10 and later: torch.ops.subbyte (docs/torch.md).

    import torch, subbyte.torch
    weight = subbyte.torch.quantize(torch.randn(4096, 4096), "nf4")
    y = subbyte.torch.linear(torch.randn(2, 4096), weight)
"""

from . import _library  # noqa: F401  registers the operators, which the others need
from . import _fakes, _gradients  # noqa: F401
from .aten import Int4OfAten
from .weights import PackedWeight, dequantize, forget, kept_bytes, linear, quantize

__all__ = ["Int4OfAten", "PackedWeight", "dequantize", "forget", "kept_bytes", "linear", "quantize"]
