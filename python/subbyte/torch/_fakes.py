"""Shapes and types of results, for torch.compile and torch.export: no kernel runs.

They come from the signatures of the library (src/torch_operators/signature.h says how to read
them), by which the kernels check their operands as well. What depends on values, or on the words of
a format, the kernel alone refuses.
"""

from __future__ import annotations

import re
from types import CodeType
from typing import Any

import torch

from ._formats import bits_of, is_dense
from ._library import LIBRARY

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64,
         "u8": torch.uint8, "i8": torch.int8, "u16": torch.uint16, "i16": torch.int16,
         "i32": torch.int32, "i64": torch.int64, "e4m3": torch.float8_e4m3fn,
         "e5m2": torch.float8_e5m2, "e8m0": getattr(torch, "float8_e8m0fnu", None)}
SETS = {"floats": "f32|f16|bf16", "halves": "f16|bf16"}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def per(a: int, b: int) -> int:
    return (a + b - 1) // b


def up(a: int, b: int) -> int:
    return per(a, b) * b


FUNCTIONS = {
    "per": per,
    "up": up,
    "groups": lambda k, g: 1 if g == 0 else per(k, g),
    "scale_rows": lambda m, layout: m if layout == 2 else up(m, 128 if layout == 0 else 8),
    "scale_cols": lambda c, layout: c if layout == 2 else up(c, 4),
    "bytes": lambda dtype: dtype.itemsize,
}
Values = dict[str, Any]


def evaluate(code: CodeType, values: Values) -> Any:
    return eval(code, FUNCTIONS, values)  # noqa: S307  an expression of the library's


def split(text: str, separator: str) -> list[str]:
    """Parts between separators that are in no brackets."""
    parts, depth = [""], 0
    for piece in re.split(f"({re.escape(separator)}|[][(){{}}])", text):
        depth += (piece in ("(", "[", "{")) - (piece in (")", "]", "}"))
        if piece == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return [part for part in parts if part]


def size_of(text: str) -> str | CodeType:
    return text if text in ("_", "...") or text.endswith("=") else compile(text, text, "eval")


class Note:
    """What a signature says of a tensor, of a type or of a list of sizes."""

    def __init__(self, text: str) -> None:
        types, _, rest = text.removeprefix("anywhere ").partition(" ")
        rest, _, choice = rest.partition(" @ ")
        self.types = [t for word in types.split("|") for t in SETS.get(word, word).split("|")]
        self.choice = compile(choice or "0", choice, "eval")
        self.is_count = rest.startswith("(")
        inner, _, unit = rest[1:-1].partition(": ") if self.is_count else (rest[1:-1], "", "")
        self.unit = unit or "numbers"
        self.sizes = [size_of(s) for s in split(inner, ", ")] if rest else None
        self.has_batch = self.sizes is not None and self.sizes[:1] == ["..."]

    def dtypes(self, values: Values) -> list[torch.dtype]:
        return [TYPES[t] if t in TYPES else getattr(values[t], "dtype", values[t])
                for t in self.types if t != "any"]

    def shape(self, values: Values) -> list[Any]:
        """Sizes, where any will do None."""
        sizes: list[Any] = list(values["..."]) if self.has_batch else []
        for size in self.sizes[self.has_batch:]:
            if isinstance(size, str):
                sizes.append(None if size == "_" else values[size[:-1]])
            else:
                sizes.append(evaluate(size, values))
        return sizes

    def name_sizes(self, sizes: list[Any], values: Values) -> None:
        first = len(sizes) - len(self.sizes) + self.has_batch
        if self.has_batch:
            values.setdefault("...", sizes[:first])
        for size, value in zip(self.sizes[self.has_batch:], sizes[first:], strict=True):
            if isinstance(size, str) and size.endswith("="):
                values[size[:-1]] = value


def shown(sizes: list[Any]) -> str:
    return "[" + ", ".join("_" if size is None else str(size) for size in sizes) + "]"


def check(is_right: Any, name: str, expected: str, tensor: torch.Tensor) -> None:
    torch._check(is_right, lambda: f"{name}: expected {expected}, found "
                 f"{NAMES.get(tensor.dtype, 'another type')} {shown(list(tensor.shape))}")


def dequantized_cols(codes: torch.Tensor, fmt: str, cols: int | None = None) -> int:
    if cols is not None:
        return cols
    if " cols " in fmt:
        return int(fmt.rpartition(" ")[2])
    return codes.shape[1] if is_dense(fmt) else codes.shape[1] * 8 // bits_of(fmt)


class Fake:
    """The fake kernel of an operator."""

    def __init__(self, text: str) -> None:
        before, _, results = text.rpartition(") -> ")
        self.name, _, arguments = before.partition("(")
        packet, _, overload = self.name.partition(".")
        schema = getattr(getattr(torch.ops.subbyte, packet), overload or "default")._schema
        self.defaults = {argument.name: argument.default_value for argument in schema.arguments}
        self.notes: dict[str, Note] = {}  # of tensors, types and lists
        self.types: set[str] = set()  # names of arguments that are types
        self.choices: dict[str, list[str]] = {}  # of texts
        self.format = ""  # the argument that says K
        notes = dict(re.findall(r"(\w+)\{(.*?)\}", arguments))
        for argument in schema.arguments:
            kind, note = str(argument.real_type), notes.get(argument.name)
            if note == "K=codes":
                self.format = argument.name
            elif note and "str" in kind:
                self.choices[argument.name] = note.split("|")
            elif note and kind == "List[int]":
                self.notes[argument.name] = Note(f"any [{note}]")
            elif note and ("Tensor" in kind or "ScalarType" in kind):
                self.notes[argument.name] = Note(note)
                if "ScalarType" in kind:
                    self.types.add(argument.name)
        self.results = [Note(n) for n in re.findall(r"Tensor\{(.*?)\}", results)]

    def values(self, given: Values) -> Values:
        """What the names of the signature mean in a call."""
        values = {name: -1 if value is None else value for name, value in given.items()}
        for name, choices in self.choices.items():
            values[name] = choices.index(given[name]) + 1 if given[name] in choices else 0
        if self.format:
            values["K"] = dequantized_cols(given["codes"], given[self.format], given.get("cols"))
        for name, note in self.notes.items():
            value = given[name]
            if isinstance(value, torch.Tensor) and note.is_count:
                if isinstance(note.sizes[0], str):
                    values[note.sizes[0][:-1]] = value.numel()
            elif isinstance(value, torch.Tensor) and note.sizes is not None:
                rest, least = len(note.sizes) - note.has_batch, "at least " * note.has_batch
                check(value.dim() >= rest if note.has_batch else value.dim() == rest, name,
                      f"{least}{rest} dimension{'s' * (rest != 1)}", value)
                note.name_sizes(list(value.shape), values)
            elif isinstance(value, (list, tuple)):
                note.name_sizes(list(value), values)
            elif value is None and name in self.types:
                values[name] = note.dtypes(values)[0]
        values["rows"] = 1
        for size in values.setdefault("...", []):
            values["rows"] = values["rows"] * size
        return values

    def check(self, given: Values, values: Values) -> None:
        for name, note in self.notes.items():
            tensor = given[name]
            if not isinstance(tensor, torch.Tensor):
                continue
            if dtypes := note.dtypes(values):
                check(tensor.dtype in dtypes, name,
                      " or ".join(NAMES[dtype] for dtype in dtypes), tensor)
            if note.sizes is None:
                continue
            sizes = note.shape(values)
            if note.is_count:
                check(tensor.numel() == sizes[0], name, f"{sizes[0]} {note.unit}", tensor)
                continue
            is_last = len(note.sizes) == 2 and list(tensor.shape[:-1]) == sizes[:-1]
            words = f"a last dimension of {sizes[-1]}" if note.has_batch and is_last else \
                f"sizes {shown(sizes)}"
            check(tensor.dim() == len(sizes), name, words, tensor)
            for found, expected in zip(tensor.shape, sizes, strict=True):
                if expected is not None:
                    check(found == expected, name, words, tensor)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        given = {**self.defaults, **dict(zip(self.defaults, arguments, strict=False)), **named}
        values = self.values(given)
        self.check(given, values)
        like = next(v for v in given.values() if isinstance(v, torch.Tensor))
        results = []
        for note in self.results:
            dtype = note.dtypes(values)[evaluate(note.choice, values)]
            results.append(like.new_empty(note.shape(values), dtype=dtype))
        return results[0] if len(results) == 1 else tuple(results) or None


def register() -> None:
    for text in LIBRARY.subbyte_torch_signatures().decode().splitlines():
        fake = Fake(text)
        torch.library.register_fake(f"subbyte::{fake.name}")(fake)


register()
