"""Options of LLM on the command line of a script, as examples of vLLM have them."""
from __future__ import annotations

import argparse
import inspect
import json
from typing import Any, TypeVar

from . import _core
from ._engine import Engine

Parser = TypeVar("Parser", bound=argparse.ArgumentParser)

_OWN = {name: parameter for name, parameter in inspect.signature(Engine.__init__).parameters.items()
        if name not in ("self", "progress")}
_KINDS: dict[str, Any] = {"int": int, "str": str}


class EngineArgs:
    """The options of LLM for argparse.

    >>> parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    >>> llm = LLM(**vars(parser.parse_args()))
    """

    @staticmethod
    def add_cli_args(parser: Parser) -> Parser:
        """Adds --model, --device, --max-sequences and so on, and names of vLLM such as
        --max-model-len and --tensor-parallel-size. What is not given is not among the results."""
        group = parser.add_argument_group("Options of subbyte.LLM")
        for name, parameter in _OWN.items():
            if parameter.annotation == "bool":
                group.add_argument(_option(name), action=argparse.BooleanOptionalAction,
                                   default=argparse.SUPPRESS)
            else:
                group.add_argument(_option(name), type=_KINDS.get(parameter.annotation, str),
                                   default=argparse.SUPPRESS)
        for name in sorted(set(_core.foreign_argument_names()) - set(_OWN)):
            ours, neutral, _ = _core.foreign_argument(name) or ("", "", "")
            if ours in _OWN or (not ours and neutral):
                group.add_argument(_option(name), type=_value, nargs="?", const=True,
                                   default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        return parser


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _value(text: str) -> Any:
    """A number, true, null, ... or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
