"""PyTorch: the schemas of all operators that are registered, and calls of each with what `opcheck`
is given in the tests.

Run by an interpreter that has torch; PYTHONPATH leads to the operators."""
from __future__ import annotations

import importlib
import io
import sys
import unittest
from pathlib import Path

import torch

from kept import ROOT, Texts, as_text

TESTS = ROOT / "python/tests/torch"


def schemas() -> set[str]:
    """All but those of subbyte_gradients, which operators call by themselves."""
    return {str(schema) for schema in torch._C._jit_get_all_schemas()
            if not schema.name.startswith("subbyte_gradients::")}


def described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.") + str(list(value.shape))
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(described(element) for element in value) + ")"
    return repr(value)


class Recorder:
    """Stands in the place of torch.library.opcheck: what it is called with."""

    def __init__(self) -> None:
        self.cases: set[str] = set()

    def __call__(self, operator: object, arguments: tuple[object, ...] = (),
                 named: dict[str, object] | None = None, **_: object) -> None:
        values = [*arguments, *(named or {}).values()]
        if any(isinstance(value, torch.Tensor) and value.is_cuda for value in values):
            return  # What is written down is the same with a GPU and without.
        given = [described(value) for value in arguments]
        given += [f"{name}={described(value)}" for name, value in (named or {}).items()]
        name = str(operator).removesuffix(".default")
        self.cases.add(f"{name}({', '.join(given)})")


def tests_of_opcheck() -> unittest.TestSuite:
    loader = unittest.TestLoader()
    loader.testNamePatterns = ["*opcheck*"]
    return loader.discover(str(TESTS), pattern="test_*.py", top_level_dir=str(TESTS))


def opcheck_cases() -> set[str]:
    """Those of the tests, on the CPU; without what is compiled there."""
    recorder = Recorder()
    opcheck, compiled = torch.library.opcheck, torch.compile
    torch.library.opcheck = recorder
    torch.compile = lambda function, **_: function
    try:
        result = unittest.TextTestRunner(stream=io.StringIO()).run(tests_of_opcheck())
        import torch_cases
        for operator, arguments, named in torch_cases.cases():
            operator(*arguments, **named)
            recorder(operator, arguments, named)
    finally:
        torch.library.opcheck, torch.compile = opcheck, compiled
    if traces := [trace for _, trace in result.failures + result.errors]:
        raise SystemExit("".join(traces))
    return recorder.cases


def texts(build: Path) -> Texts:
    before = schemas()
    importlib.import_module("subbyte.torch")
    sys.path.insert(0, str(TESTS))
    importlib.import_module("test_compatible")  # which loads the modules with others' names
    registered = sorted(schemas() - before)
    cases = opcheck_cases()
    called = {case.partition("(")[0].replace(".", "::", 1) for case in cases}
    names = [schema.partition("(")[0] for schema in registered]
    if missing := [name for name in names if name not in called]:
        raise SystemExit(f"tests/users/torch_cases.py: no call of {', '.join(missing)}")
    return {"torch_schemas.txt": as_text(registered), "torch_opcheck.txt": as_text(sorted(cases))}
