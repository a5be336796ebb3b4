"""Weight matrices."""
from __future__ import annotations

from typing import Any

from . import _core
from ._core import Matrix


def quantize(array: Any, *, format: str = "awq", bits: int | None = None,
             group_size: int | None = None, symmetric: bool | None = None) -> Matrix:
    """Rounds an array [outputs, inputs] to a matrix of few bits.

    array: float32, float64, float16 or bfloat16 of numpy or of whatever speaks DLPack, in the
        memory of the host; it is not copied. float64 is rounded to float32 first.
    format: "awq", "gptq", "mxfp4", "nvfp4", "nf4", ... (docs/quantize.md).
    bits, group_size, symmetric: as the format usually has it; a group_size of 0 is a whole row.

    Raises subbyte.Error: quantize.format, quantize.bits, quantize.group_size, quantize.symmetry,
    quantize.shape, quantize.not_finite, array.*.
    """
    return _core.quantize_array(array, format=format, bits=bits, group_size=group_size,
                                symmetric=symmetric)


def set_threads(num_threads: int) -> None:
    """Says how many threads work on matrices from now on; 0: one for each processor.

    A model has threads of its own (Engine).
    """
    _core.set_threads(num_threads)
