"""Whole models: what is in them, what is wrong with them, and the same weights otherwise.

The dicts are what --json of the program's commands prints.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Union, overload

from . import _core
from ._arguments import flag, integer, number, path, refusal, text
from ._arguments import texts as texts_of
from ._core import Matrix
from ._errors import Error
from ._foreign import takes_foreign
from ._progress import Progress, reporter

Path = Union[str, "os.PathLike[str]"]


@overload
def quantize(source: Path, destination: Path, *, format: str = ..., bits: float | None = ...,
             group_size: int | None = ..., symmetric: bool | None = ...,
             ignore: str | Sequence[str] = ..., rules: Path | None = ..., head: bool = ...,
             embedding: bool = ..., experts_only: bool = ..., allow_lossy: bool = ...,
             texts: str | Sequence[str] = ..., threads: int = ...,
             progress: Progress = ...) -> dict[str, Any]: ...


@overload
def quantize(source: Any, *, format: str = ..., bits: int | None = ...,
             group_size: int | None = ..., symmetric: bool | None = ...) -> Matrix: ...


@takes_foreign("quantize()")
def quantize(source: Any, destination: Path | None = None, *, format: str = "awq",
             bits: float | None = None, group_size: int | None = None,
             symmetric: bool | None = None, ignore: str | Sequence[str] = (),
             rules: Path | None = None, head: bool = False, embedding: bool = False,
             experts_only: bool = False, allow_lossy: bool = False,
             texts: str | Sequence[str] = (), threads: int = 0,
             progress: Progress = None) -> Matrix | dict[str, Any]:
    """Rounds an array to a Matrix, or a model of 16 or 32 bits to a model directory of few.

    source: an array [outputs, inputs] of float32, float64 (rounded to float32 first), float16 or
        bfloat16, of numpy or of whatever speaks DLPack, in the memory of the host, which is not
        copied; or with a destination a model directory or org/name of the cache.
    destination: the directory to make, which appears whole or not at all.
    format: "awq", "gptq", "mxfp4", "nvfp4", "nf4", ... (docs/quantize.md); of an array also an
        element ("u4") or what Matrix.format says ("u4 g128 scale f16 zero u8").
    bits, group_size, symmetric: as the format usually has it; a group_size of 0 is a whole row, and
        without one the usual size is halved until it divides the inputs.
    The rest is for models, as `subbyte quantize` has it: ignore (names or patterns that are kept),
    rules (a JSON file), head, embedding, experts_only, allow_lossy; threads 0 are all processors;
    progress is told bytes and all. With `bits` that are a mean, such as 3.4, what each matrix gets
    follows from how much worse the model predicts `texts` (the first 2,048 tokens count), or as
    many tokens that it writes itself, as with `--text`.

    Returns of a model the report: "format", "modules", "bits_per_weight", "signal_to_noise_db",
    "worst", "seconds", "notices" (of what earlier runs left behind), ... Raises subbyte.Error:
    quantize.*, array.*, file.*, quantize.loss where too little is left of a matrix.
    """
    form: dict[str, Any] = {
        "format": text("format", format),
        "group_size": None if group_size is None else integer("group_size", group_size),
        "symmetric": None if symmetric is None else flag("symmetric", symmetric)}
    width = None if bits is None else number("bits", bits)
    if destination is None:
        if isinstance(source, (str, os.PathLike)):
            raise Error("destination: expected the directory to make of a model, found none",
                        "usage.argument")
        return _core.quantize_array(source, bits=_whole(width), **form)
    with reporter(progress, "quantizing", "B") as tell:
        return _core.quantize_model(
            path("source", source), path("destination", destination), bits=width, **form,
            ignore=texts_of("ignore", ignore), rules="" if rules is None else path("rules", rules),
            head=flag("head", head), embedding=flag("embedding", embedding),
            experts_only=flag("experts_only", experts_only),
            allow_lossy=flag("allow_lossy", allow_lossy), text="\n".join(texts_of("texts", texts)),
            threads=_threads(threads), progress=tell)


def _whole(bits: float | None) -> int | None:
    """The bits of the codes of an array."""
    if bits is None or (bits.is_integer() and abs(bits) < 2**31):
        return None if bits is None else int(bits)
    raise refusal("bits", "whole bits for an array, as means are for models", bits, "quantize.bits")


def _threads(threads: object) -> int:
    return integer("threads", threads, -2**31, 2**31 - 1)


def set_threads(num_threads: int) -> None:
    """Says how many threads work on matrices and checkpoints from now on; 0: one for each
    processor. A model has threads of its own (Engine). Raises subbyte.Error: execution.options."""
    _core.set_threads(integer("num_threads", num_threads))


@takes_foreign("convert()")
def convert(source: Path, destination: Path, format: str, *, allow_lossy: bool = False,
            threads: int = 0, progress: Progress = None) -> dict[str, Any]:
    """Writes the same weights in another format: docs/conversions.md.

    source: a directory, a GGUF, ak47 or ak48 file, or org/name of the cache. destination: the
    directory to make, which appears whole or not at all. format: "awq", "gptq",
    "compressed-tensors", "bf16", ... allow_lossy: scales or weights may be rounded, which is an
    error otherwise.

    Returns the report: "format", "modules", "rounded_modules" (0: every weight is what it was, to
    the bit), "max_difference", "signal_to_noise_db", "seconds", ... Raises subbyte.Error:
    convert.*, recast.*, export.*, import.*, file.*.
    """
    with reporter(progress, "converting", "B") as tell:
        return _core.convert(path("source", source), path("destination", destination),
                             format=text("format", format),
                             allow_lossy=flag("allow_lossy", allow_lossy),
                             threads=_threads(threads), progress=tell)


@takes_foreign("verify()")
def verify(model: Path, *, checksums: bool = False, threads: int = 0,
           progress: Progress = None) -> dict[str, Any]:
    """Reads a whole checkpoint and lists what is wrong: docs/verify.md.

    Returns "errors", "warnings" and "notes" (their numbers) and "findings", dicts with "code",
    "severity", "where", "expected" and "found"; with checksums "sha256" of every tensor. Raises
    subbyte.Error for what cannot be opened at all.
    """
    with reporter(progress, "verifying", "B") as tell:
        return _core.verify(path("model", model), checksums=flag("checksums", checksums),
                            threads=_threads(threads), progress=tell)


@takes_foreign("inspect()")
def inspect(model: Path, *, threads: int = 0) -> dict[str, Any]:
    """What is in a checkpoint: architecture, formats, sizes, and a dict for each tensor.

    "problems" says what keeps it from running, "notes" what it lacks for text. Raises subbyte.Error
    for what cannot be opened.
    """
    return _core.inspect(path("model", model), threads=_threads(threads))


@takes_foreign("diff()")
def diff(first: Path, second: Path, *, threads: int = 0) -> dict[str, Any]:
    """Whether two models hold the same weights, however they store them.

    Returns "verdict" ("same_bytes", "same_values" or "different"), "counts" by verdict, "worst" and
    "weights", a dict for each. Raises subbyte.Error: import.*, file.*.
    """
    return _core.diff(path("first", first), path("second", second), threads=_threads(threads))
