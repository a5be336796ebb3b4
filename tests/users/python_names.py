"""Python: what is public in each module of the package, with signatures.

Run by an interpreter that has the package."""
from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import python_files
from kept import Texts, as_text

# Without what these need, torch or Ray, they cannot be imported.
NEED_OTHERS = ("awq_ext", "bitsandbytes", "flashinfer", "ray", "torch", "transformers", "vllm")


def signature(thing: object) -> str:
    """"(x: int) -> str"; of functions of nanobind what they say themselves."""
    if said := getattr(thing, "__nb_signature__", None):
        return " | ".join(re.sub(r"^def \w+", "", overload[0]) for overload in said)
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(thing)))
    except (TypeError, ValueError):
        return ""


def kind_and_signature(value: object) -> str:
    if isinstance(value, property):
        return "property" + (", may be set" if value.fset else "") + returned(value.fget)
    if isinstance(value, (classmethod, staticmethod)):
        return type(value).__name__ + " " + signature(value.__func__)
    if callable(value):
        return signature(value)
    return "attribute" if inspect.isdatadescriptor(value) else f"= {value!r}"


def returned(getter: object) -> str:
    found = re.search(r"-> (.*)$", signature(getter))
    return f" {found[1]}" if found else ""


def members(cls: type) -> list[str]:
    """Public ones, and the constructor, of the class and of those of ours that it is made of."""
    found: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] == "subbyte":
            found.update(vars(base))
    own = {"__init__", "__call__", "__len__", "__iter__", "__getitem__", "__contains__",
           "__enter__", "__exit__", "__array__", "__dlpack__", "__dlpack_device__"}
    return [f"  {name} {kind_and_signature(found[name])}".rstrip() for name in sorted(found)
            if name in own or not name.startswith("_")]


def described(module: ModuleType) -> list[str]:
    """Its public names: those of __all__, or those that it defines itself."""
    defined = [name for name, value in vars(module).items() if not name.startswith("_")
               and getattr(value, "__module__", "") == module.__name__]
    lines = []
    for name in sorted(getattr(module, "__all__", defined)):
        thing = getattr(module, name)
        if inspect.isclass(thing):
            bases = ", ".join(base.__name__ for base in thing.__bases__)
            lines += [f"class {module.__name__}.{name}({bases})", *members(thing)]
        elif isinstance(thing, ModuleType):
            lines.append(f"module {module.__name__}.{name}")
        else:
            lines.append(f"{module.__name__}.{name}{signature(thing)}")
    return lines


def modules(package: ModuleType) -> list[str]:
    return sorted(found.name for found in pkgutil.iter_modules(package.__path__)
                  if not found.name.startswith("_"))


def texts(build: Path) -> Texts:
    package = importlib.import_module("subbyte")
    lines: list[str] = []
    for name in modules(package):
        if name in NEED_OTHERS:
            lines += python_files.texts_of(Path(package.__file__).parent, name)
        else:
            lines += described(importlib.import_module(f"subbyte.{name}"))
    return {"python.txt": as_text(lines + described(package))}
