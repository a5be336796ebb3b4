"""Arguments that callers know from vLLM, transformers and llama-cpp-python.

app/foreign_names.def is the table, for the program and for this package.
"""
from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping, MutableMapping
from difflib import get_close_matches
from typing import Any, TypeVar

from . import _core
from ._arguments import shown
from ._errors import Error

Function = TypeVar("Function", bound=Callable[..., Any])

#: The arguments of each function that takes those of others, by what messages call it.
ARGUMENTS: dict[str, list[str]] = {}


def asks_for_nothing(value: object, neutral: str) -> bool:
    """Whether a value is None, empty or one of `neutral`, JSON with commas between; "*" is all."""
    if value is None or neutral == "*":
        return True
    if not isinstance(value, (bool, int, float, str)):
        return hasattr(value, "__len__") and len(value) == 0
    return value == "" or value in json.loads(f"[{neutral}]")


def refuse_member(owner: str, name: str) -> AttributeError:
    """What to say of an attribute that there is not."""
    instead = "" if name.startswith("_") else _core.instead_of_member(name)
    return AttributeError(f"{owner} has no {name}" + (f": {instead}" if instead else ""))


def take_foreign(called: str, given: MutableMapping[str, Any], own: Mapping[str, Any],
                 code: str = "usage.argument") -> None:
    """Replaces arguments that are not `own` by those of ours that do the same, and takes out those
    that ask for nothing. Raises subbyte.Error for the others, with what to do instead."""
    for name in [name for name in given if name not in own]:
        value = given.pop(name)
        ours, neutral, instead = _core.foreign_argument(name) or ("", None, "")
        if neutral is not None and asks_for_nothing(value, neutral):
            continue
        if ours not in own:
            raise Error(_refusal(called, name, value, own, ours, instead), code)
        if ours in given:
            raise Error(f"{name}: it is called {ours} here, which {called} is given, too", code)
        given[ours] = value


def _refusal(called: str, name: str, value: object, own: Mapping[str, Any], ours: str,
             instead: str) -> str:
    """What to say of an argument that is none of a function."""
    owners = [other for other, names in ARGUMENTS.items() if (ours or name) in names]
    if owners and (not instead or {"LLM", "SamplingParams"} & set(owners)):
        return (f"{name}: {called} has no such argument; {' and '.join(owners)} "
                f"{'has' if len(owners) == 1 else 'have'} it{f' as {ours}' if ours else ''}")
    if instead:
        return f"{name}={shown(value)}: {instead}"
    near = get_close_matches(name, own, 1)
    return (f"{name}: {called} has no such argument; "
            + (f"did you mean {near[0]}?" if near else f"it has {', '.join(own)}"))


def takes_foreign(called: str) -> Callable[[Function], Function]:
    """Makes a function take the arguments of others. None for an argument whose default is
    something else asks for the default. `called` is its name in messages."""
    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = {name: parameter for name, parameter in signature.parameters.items()
               if name not in ("self", "cls")}
        ARGUMENTS.setdefault(called, list(own))

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if not named.keys() <= own.keys():
                take_foreign(called, named, own)
            for name in [name for name, value in named.items() if value is None]:
                if own[name].default not in (None, inspect.Parameter.empty):
                    del named[name]
            try:
                signature.bind(*arguments, **named)
            except TypeError as error:
                raise Error(f"{called}: {error}", "usage.argument") from None
            return function(*arguments, **named)

        if not inspect.iscoroutinefunction(function):
            return call  # type: ignore[return-value]

        @functools.wraps(function)
        async def call_async(*arguments: Any, **named: Any) -> Any:
            return await call(*arguments, **named)

        return call_async  # type: ignore[return-value]

    return decorate
