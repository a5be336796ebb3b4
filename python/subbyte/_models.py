"""Whole models: what is in them, what is wrong with them, and the same weights otherwise.

The dicts are what --json of the program's commands prints.
"""
from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import Any, Union, overload

from . import _core
from ._core import Matrix
from ._errors import Error
from ._paths import path_text
from ._progress import Progress, reporter

Path = Union[str, "os.PathLike[str]"]


@overload
def quantize(source: Path, destination: Path, *, format: str = ..., bits: float | None = ...,
             group_size: int | None = ..., symmetric: bool | None = ...,
             ignore: Sequence[str] = ..., rules: Path | None = ..., head: bool = ...,
             embedding: bool = ..., experts_only: bool = ..., allow_lossy: bool = ...,
             texts: str | Sequence[str] = ..., threads: int = ...,
             progress: Progress = ...) -> dict[str, Any]: ...


@overload
def quantize(source: Any, *, format: str = ..., bits: int | None = ...,
             group_size: int | None = ..., symmetric: bool | None = ...) -> Matrix: ...


def quantize(source: Any, destination: Path | None = None, *, format: str = "awq",
             bits: float | None = None, group_size: int | None = None,
             symmetric: bool | None = None, ignore: Sequence[str] = (), rules: Path | None = None,
             head: bool = False, embedding: bool = False, experts_only: bool = False,
             allow_lossy: bool = False, texts: str | Sequence[str] = (), threads: int = 0,
             progress: Progress = None) -> Matrix | dict[str, Any]:
    """Rounds an array to a Matrix, or a model of 16 or 32 bits to a model directory of few.

    source: an array [outputs, inputs] of float32, float64 (rounded to float32 first), float16 or
        bfloat16, of numpy or of whatever speaks DLPack, in the memory of the host, which is not
        copied; or with a destination a model directory or org/name of the cache.
    destination: the directory to make, which appears whole or not at all.
    format: "awq", "gptq", "mxfp4", "nvfp4", "nf4", ... (docs/quantize.md).
    bits, group_size, symmetric: as the format usually has it; a group_size of 0 is a whole row.
    The rest is for models, as `subbyte quantize` has it: ignore (names or patterns that are kept),
    rules (a JSON file), head, embedding, experts_only, allow_lossy; threads 0 are all processors;
    progress is told bytes and all. With `bits` that are a mean, such as 3.4, what each matrix gets
    follows from how much worse the model predicts `texts` (the first 2,048 tokens count), or as
    many tokens that it writes itself, as with `--text`.

    Returns of a model the report: "format", "modules", "bits_per_weight", "signal_to_noise_db",
    "worst", "seconds", "notices" (of what earlier runs left behind), ... Raises subbyte.Error:
    quantize.*, array.*, file.*, quantize.loss where too little is left of a matrix.
    """
    if destination is None:
        if isinstance(source, (str, os.PathLike)):
            raise TypeError("a model needs a destination: the directory to make")
        return _core.quantize_array(source, format=format, bits=_whole(bits),
                                    group_size=group_size, symmetric=symmetric)
    with reporter(progress, "quantizing", "B") as tell:
        return _core.quantize_model(
            path_text(source), path_text(destination), format=format, bits=bits,
            group_size=group_size, symmetric=symmetric, ignore=list(ignore),
            rules="" if rules is None else path_text(rules), head=head, embedding=embedding,
            experts_only=experts_only, allow_lossy=allow_lossy,
            text=texts if isinstance(texts, str) else "\n".join(texts), threads=threads,
            progress=tell)


def _whole(bits: float | None) -> int | None:
    """The bits of the codes of an array."""
    if bits is None:
        return None
    if isinstance(bits, float):
        if not bits.is_integer():
            raise Error(f"expected whole bits for an array, found {bits}: means are for models",
                        "quantize.bits")
        return int(bits)
    return operator.index(bits)


def convert(source: Path, destination: Path, format: str, *, allow_lossy: bool = False,
            threads: int = 0, progress: Progress = None) -> dict[str, Any]:
    """Writes the same weights in another format: docs/conversions.md.

    source: a directory, an ak47 or ak48 file, or org/name of the cache. destination: the directory
    to make, which appears whole or not at all. format: "awq", "gptq", "compressed-tensors", "bf16",
    ... allow_lossy: scales or weights may be rounded, which is an error otherwise.

    Returns the report: "format", "modules", "rounded_modules" (0: every weight is what it was, to
    the bit), "max_difference", "signal_to_noise_db", "seconds", ... Raises subbyte.Error:
    convert.*, recast.*, export.*, import.*, file.*.
    """
    with reporter(progress, "converting", "B") as tell:
        return _core.convert(path_text(source), path_text(destination), format=format,
                             allow_lossy=allow_lossy, threads=threads, progress=tell)


def verify(model: Path, *, checksums: bool = False, threads: int = 0,
           progress: Progress = None) -> dict[str, Any]:
    """Reads a whole checkpoint and lists what is wrong: docs/verify.md.

    Returns "errors", "warnings" and "notes" (their numbers) and "findings", dicts with "code",
    "severity", "where", "expected" and "found"; with checksums "sha256" of every tensor. Raises
    subbyte.Error for what cannot be opened at all.
    """
    with reporter(progress, "verifying", "B") as tell:
        return _core.verify(path_text(model), checksums=checksums, threads=threads, progress=tell)


def inspect(model: Path, *, threads: int = 0) -> dict[str, Any]:
    """What is in a checkpoint: architecture, formats, sizes, and a dict for each tensor.

    "problems" says what keeps it from running. Raises subbyte.Error for what cannot be opened.
    """
    return _core.inspect(path_text(model), threads=threads)


def diff(first: Path, second: Path, *, threads: int = 0) -> dict[str, Any]:
    """Whether two models hold the same weights, however they store them.

    Returns "verdict" ("same_bytes", "same_values" or "different"), "counts" by verdict, "worst" and
    "weights", a dict for each. Raises subbyte.Error: import.*, file.*.
    """
    return _core.diff(path_text(first), path_text(second), threads=threads)
