"""What a checkpoint holds for modules of models, in memory of torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from .modules import SubbyteExperts, packed_weight
from .weights import PackedWeight

if TYPE_CHECKING:
    import subbyte

# Types of files that numpy has the bits of only.
BITS = {"BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
# A matrix of experts: their module, the number of one, the kind of matrix.
EXPERT = re.compile(r"(.*\.experts)(?:\.(\d+))?\.(gate_up_proj|gate_proj|up_proj|down_proj)$")


def original_tensor(stored: subbyte.Tensor) -> torch.Tensor:
    """A tensor of a checkpoint as it is in its file."""
    array = stored.numpy().copy()
    kind = BITS.get(stored.dtype)
    if stored.dtype == "F8_E8M0":
        kind = torch.float8_e8m0fnu
    result = torch.from_numpy(array)
    return result if kind is None else result.view(kind)


def stored_tensor(checkpoint: subbyte.Checkpoint, name: str) -> torch.Tensor | None:
    """The tensor of that name, or None where there is none."""
    stored = checkpoint.tensors
    return original_tensor(stored[name]) if name in stored else None


def joined(what: str, join: Callable[[list[torch.Tensor]], torch.Tensor],
           biases: list[torch.Tensor | None]) -> torch.Tensor | None:
    """All biases as one, or None where there are none. ValueError: some are missing."""
    missing = sum(b is None for b in biases)
    if 0 < missing < len(biases):
        raise ValueError(f"{what}: expected a bias for all or none, {missing} of "
                         f"{len(biases)} are missing")
    return None if missing else join(biases)


def fill_experts(module: SubbyteExperts, checkpoint: subbyte.Checkpoint, name: str,
                 parts: dict[str, list[str]]) -> None:
    """Gives a layer the experts that a checkpoint has under `name`, by the kinds of matrices."""
    def weights(kind: str) -> list[PackedWeight]:
        if f"{name}.{kind}" in parts[kind]:  # one stack
            stack = checkpoint[f"{name}.{kind}"]
            return [packed_weight(m) for m in (stack if isinstance(stack, list) else [stack])]
        return [packed_weight(checkpoint[f"{name}.{e}.{kind}"]) for e in range(len(parts[kind]))]

    def bias(kind: str) -> torch.Tensor | None:
        stored = stored_tensor(checkpoint, f"{name}.{kind}_bias")
        if stored is not None:
            return stored
        return joined(f"{name}.*.{kind}.bias", torch.stack,
                      [stored_tensor(checkpoint, f"{name}.{e}.{kind}.bias")
                       for e in range(len(parts[kind]))])

    if "gate_up_proj" in parts:
        gate_up, biases = [[w] for w in weights("gate_up_proj")], bias("gate_up_proj")
    else:
        gate_up = [list(both) for both in
                   zip(weights("gate_proj"), weights("up_proj"), strict=True)]
        biases = joined(f"{name}.gate_proj and up_proj", lambda halves: torch.cat(halves, -1),
                        [bias("gate_proj"), bias("up_proj")])
    module.fill(gate_up, weights("down_proj"), biases, bias("down_proj"))
