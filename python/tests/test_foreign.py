"""Every argument of vLLM's and llama-cpp-python's functions: taken, neutral or refused."""
from __future__ import annotations

import json

import pytest
from argument_page import NAMES, OURS, PAGE, page, rule_of

import subbyte
from subbyte._foreign import ARGUMENTS, take_foreign

CASES = [(function, name) for function, names in NAMES.items() for name in names]


def test_the_page_says_what_the_package_does() -> None:
    assert PAGE.read_text() == page(), "python/tests/argument_page.py writes it"
    assert set(OURS) == set(NAMES) and len(CASES) > 350


@pytest.mark.parametrize("function, name", CASES)
def test_an_argument_is_decided(function: str, name: str) -> None:
    """None and neutral values go through; anything else is refused by name, with a sentence."""
    kind, first, instead = rule_of(function, name)
    called, has_fields = OURS[function]
    if kind == "taken":
        return
    values = [None] if first == "*" else [None, *json.loads(f"[{first}]")]
    for value in [*values, *([object()] if first == "*" else [])]:
        take(called, has_fields, name, value)
    if first == "*":
        return
    with pytest.raises(subbyte.Error) as caught:
        take(called, has_fields, name, {"what": ["nobody", "asks", "for"]})
    assert name in str(caught.value) and len(str(caught.value)) > len(name) + 20


def take(called: str, has_fields: bool, name: str, value: object) -> None:
    """What a call does with the argument."""
    if has_fields:
        subbyte.SamplingParams(**{name: value})
    else:
        take_foreign(called, {name: value}, dict.fromkeys(ARGUMENTS[called]))


def test_classes_of_others_say_what_to_do_instead() -> None:
    for name, words in (("Llama", "LLM as Llama"), ("LlamaGrammar", "grammar"),
                        ("AsyncLLMEngine", "subbyte.Engine"), ("PoolingParams", "generated"),
                        ("Llava15ChatHandler", "text alone")):
        with pytest.raises(ImportError, match=f"subbyte has no {name}: .*{words}"):
            exec(f"from subbyte import {name}")
        assert not hasattr(subbyte, name)
        with pytest.raises(AttributeError, match=f"subbyte has no {name}: .*{words}"):
            getattr(subbyte, name)
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from subbyte import Nothing")
    assert not hasattr(subbyte, "nothing")
