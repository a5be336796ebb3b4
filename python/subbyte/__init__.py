"""Runs, verifies and converts language models with weights below eight bits.

>>> import subbyte
>>> llm = subbyte.LLM("demo/model")
>>> print(llm.generate("Mr. Sherlock Holmes", subbyte.SamplingParams(max_tokens=20)))

LLM and Engine run models, Tokenizer has their tokens, Matrix is a weight matrix. What goes wrong
because of a file, an argument or the machine is a subbyte.Error with a stable code.
docs/python.md is the manual.
"""
from __future__ import annotations

import os as _os

from . import _core
from ._core import Event
from ._engine import Engine
from ._errors import Error
from ._llm import LLM
from ._matrix import Matrix, quantize, set_threads
from ._outputs import CompletionOutput, Logprob, RequestOutput
from ._sampling import SamplingParams
from ._tokenizer import Tokenizer

__version__ = _core.version()
__commit__ = _core.commit()

__all__ = [
    "CompletionOutput", "Engine", "Error", "Event", "LLM", "Logprob", "Matrix", "RequestOutput",
    "SamplingParams", "Tokenizer", "quantize", "set_threads",
]

# Threads do not come along into the child of a fork: it makes its own.
_os.register_at_fork(after_in_child=_core.forget_threads)
