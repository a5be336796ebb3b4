"""Checkpoints, module by module and tensor by tensor."""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Union

from . import _core
from ._arguments import path as path_of
from ._arguments import text
from ._core import Matrix

#: What a module holds: a matrix, or the matrices of the experts of a stack.
Weights = Union[Matrix, list[Matrix]]


class Tensor:
    """A tensor of a checkpoint, where it lies in its file.

    name, dtype ("BF16", "I32", ..., as the file says) and shape are facts.
    """

    def __init__(self, checkpoint: _core.Checkpoint, name: str) -> None:
        self._checkpoint = checkpoint
        self.name = name
        self.dtype: str = checkpoint.dtype(name)
        self.shape: tuple[int, ...] = tuple(checkpoint.shape(name))

    def numpy(self) -> Any:
        """An array that cannot be written, without a copy.

        bf16 and 8-bit floats, which numpy lacks, come as unsigned integers of their bits; types
        with several elements in a byte as uint8 [bytes].
        """
        return self._checkpoint.array(self.name)

    def __dlpack__(self, **arguments: Any) -> Any:
        """For torch.from_dlpack() and the like, which know bf16; without a copy."""
        return self._checkpoint.dlpack(self.name).__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host."""
        return self._checkpoint.dlpack(self.name).__dlpack_device__()

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.dtype}, {list(self.shape)})"


class _Tensors(Mapping[str, Tensor]):
    """Tensors by their names."""

    def __init__(self, checkpoint: _core.Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._names = dict.fromkeys(checkpoint.tensors)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        return Tensor(self._checkpoint, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Checkpoint(Mapping[str, Weights]):
    """The linear layers of a checkpoint by their names, whatever the tensors are that store them.

    >>> checkpoint = subbyte.open_checkpoint("demo/model")
    >>> matrix = checkpoint["model.layers.0.mlp.down_proj"]

    A value is read when it is asked for: a Matrix, or of a stack of experts a list of one for each.
    """

    def __init__(self, checkpoint: _core.Checkpoint, path: str) -> None:
        self._checkpoint = checkpoint
        self._path = path
        self._modules = dict.fromkeys(checkpoint.modules)
        self._tensors = _Tensors(checkpoint)

    def __repr__(self) -> str:
        return f"Checkpoint({self._path!r}, {self.quantization}, {len(self)} modules)"

    def __getitem__(self, name: str) -> Weights:
        if name not in self._modules:
            raise KeyError(name)
        return self._checkpoint.load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """All tensors of the files by their names, as they are stored."""
        return self._tensors

    @property
    def quantization(self) -> str:
        """How config.json says that the weights are quantized: "awq", "none", ..."""
        return self._checkpoint.quantization

    def describe(self, name: str) -> dict[str, Any]:
        """Facts of a module without reading its weights: "kind" (how it is stored), "format",
        "shape" (outputs, inputs), "experts", "bytes", "act_order" and the names of its "tensors".

        Raises KeyError, and subbyte.Error where its tensors contradict themselves or the config.
        """
        return self._checkpoint.describe(text("name", name))


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Opens a model directory, a GGUF, .safetensors, ak47 or ak48 file, or org/name of the cache.

    Files are mapped: nothing but headers is read. Raises subbyte.Error: model.not_found, file.*,
    safetensors.*, index.*, json.*, quantization.*; import.* for a module when it is asked for, and
    file.changed where the files were written to meanwhile.
    """
    name = path_of("path", path)
    return Checkpoint(_core.Checkpoint(name), name)
