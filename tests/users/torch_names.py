"""PyTorch: the schemas of all operators that are registered, calls of each with what `opcheck` is
given in the tests, and the modules with names of other software.

Run by an interpreter that has torch and the package; PYTHONPATH leads to it."""
from __future__ import annotations

import importlib
import io
import sys
import unittest
from pathlib import Path

import torch

import python_names
from kept import ROOT, Texts, as_text

TESTS = ROOT / "python/tests/torch"
MODULES = ["subbyte.torch", "subbyte.flashinfer", "subbyte.awq_ext",
           "subbyte.bitsandbytes.functional"]


def schemas() -> set[str]:
    return {str(schema) for schema in torch._C._jit_get_all_schemas()}


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
    sys.path.insert(0, str(TESTS))
    recorder = Recorder()
    opcheck, compiled = torch.library.opcheck, torch.compile
    torch.library.opcheck = recorder
    torch.compile = lambda function, **_: function
    try:
        result = unittest.TextTestRunner(stream=io.StringIO()).run(tests_of_opcheck())
        # Of those that run on GPUs alone the arguments are there as tensors of the CPU.
        from test_cuda_operators import Calls, function_of
        for name, arguments in Calls().exact():
            recorder(function_of(name).default if "." not in name else function_of(name), arguments)
    finally:
        torch.library.opcheck, torch.compile = opcheck, compiled
    for _, trace in result.failures + result.errors:
        print(trace, file=sys.stderr)
    return recorder.cases


def texts(build: Path) -> Texts:
    before = schemas()
    modules = [importlib.import_module(name) for name in MODULES]
    registered = sorted(schemas() - before)
    cases = opcheck_cases()
    called = {case.partition("(")[0].replace(".", "::", 1) for case in cases}
    names = [schema.partition("(")[0] for schema in registered]
    lines = sorted(cases) + [f"no case: {name}" for name in names if name not in called]
    return {
        "torch_schemas.txt": as_text(registered),
        "torch_opcheck.txt": as_text(lines),
        "torch_modules.txt": as_text([line for module in modules
                                      for line in python_names.described(module)]),
    }
