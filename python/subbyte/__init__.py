"""Runs, verifies and converts language models with weights below eight bits.

>>> import subbyte
>>> llm = subbyte.LLM("demo/model")
>>> print(llm.generate("Mr. Sherlock Holmes", subbyte.SamplingParams(max_tokens=20)))

LLM and Engine run models, Tokenizer has their tokens, open_checkpoint() their weights, of which a
Matrix is one. quantize(), convert(), verify(), inspect() and diff() are for whole models. What goes
wrong because of a file, an argument or the machine is a subbyte.Error with a stable code.
docs/python.md is the manual.
"""
from __future__ import annotations

import os as _os
import sys as _sys
from typing import Any as _Any

from . import _core
from ._checkpoint import Checkpoint, Tensor, open_checkpoint
from ._core import DeviceArray, Event, Matrix
from ._engine import Engine
from ._engine_args import EngineArgs
from ._errors import Error
from ._llm import LLM
from ._models import convert, diff, inspect, quantize, set_threads, verify
from ._outputs import CompletionOutput, Logprob, RequestOutput
from ._sampling import SamplingParams
from ._tokenizer import Tokenizer

__version__ = _core.version()
__commit__ = _core.commit()

__all__ = [
    "Checkpoint", "CompletionOutput", "DeviceArray", "Engine", "EngineArgs", "Error", "Event",
    "LLM", "Logprob", "Matrix", "RequestOutput", "SamplingParams", "Tensor", "Tokenizer", "convert",
    "diff", "inspect", "open_checkpoint", "quantize", "set_threads", "verify",
]

# Threads do not come along into the child of a fork: it makes its own.
_os.register_at_fork(after_in_child=_core.forget_threads)


def __getattr__(name: str) -> _Any:
    """Classes of vLLM and llama-cpp-python: what to use instead. `from subbyte import`, which asks
    through importlib, shows the words of an ImportError alone."""
    instead = _core.instead_of_member(name)
    if not instead or not name[:1].isupper():
        raise AttributeError(f"module 'subbyte' has no attribute {name!r}")
    importing = _sys._getframe(1).f_globals.get("__name__") == "importlib._bootstrap"
    raise (ImportError if importing else AttributeError)(f"subbyte has no {name}: {instead}")
