"""Our int4 products in the place of aten's, for programs that call aten by name."""

from __future__ import annotations

import warnings

import torch

ops = torch.ops.subbyte
NAMES = ("_weight_int4pack_mm_for_cpu", "_convert_weight_to_int4pack_for_cpu",
         "_convert_weight_to_int4pack", "_weight_int4pack_mm",
         "_weight_int4pack_mm_with_scales_and_zeros")


class Int4OfAten:
    """aten's five int4 operators are ours on CPUs while this object lives.

        with subbyte.torch.Int4OfAten():
            model.generate(...)        # layers of GPTQModel and torchao that call aten

    Weights that aten has packed are read as they are, and the other way round. aten itself has two
    of the five on CPUs; the others, with the words of CUDA and XPU, run there only so.
    """

    def __init__(self) -> None:
        self._library: torch.library.Library | None = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            # torch warns of every operator that is replaced, which is what was asked for.
            warnings.simplefilter("ignore")
            for name in NAMES:
                self._library.impl(name, getattr(ops, name).default, "CPU", allow_override=True)

    def undo(self) -> None:
        """Gives aten its own kernels back."""
        if self._library is not None:
            self._library._destroy()
            self._library = None

    def __enter__(self) -> Int4OfAten:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()
