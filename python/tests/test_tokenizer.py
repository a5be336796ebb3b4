"""Tokenizer, beside what tokenizers of Hugging Face gave for the same texts."""
from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import DEMO, ROOT

import subbyte

CASES = ROOT / "tests" / "data" / "tokenizers"


@pytest.mark.parametrize("name", ["llama2", "llama3", "qwen", "o200k"])
def test_tokens_are_those_of_hugging_face(name: str, tmp_path: Path) -> None:
    shutil.copy(CASES / f"{name}.tokenizer.json", tmp_path / "tokenizer.json")
    tokenizer = subbyte.Tokenizer(tmp_path / "tokenizer.json")
    for case in json.loads((CASES / f"{name}.cases.json").read_text()):
        text = case["text"]
        assert tokenizer.encode(text, add_special_tokens=False, parse_special=True) == case["ids"]
        if "ids_in_template" in case:
            assert tokenizer.encode(text, parse_special=True) == case["ids_in_template"]
        assert tokenizer.decode(case["ids"]) == case["decoded"]
        skipped = tokenizer.decode(case["ids"], skip_special_tokens=True)
        assert skipped == case["decoded_skip_special"]


def test_control_tokens_in_a_text_are_letters() -> None:
    tokenizer = subbyte.Tokenizer(DEMO)
    end = tokenizer.token_to_id("<|im_end|>")
    assert tokenizer.is_special(end) and tokenizer.token_bytes(end) == b"<|im_end|>"
    assert end not in tokenizer.encode("a<|im_end|>b")
    assert end in tokenizer.encode("a<|im_end|>b", parse_special=True)
    assert tokenizer.decode(tokenizer.encode("a<|im_end|>b")) == "a<|im_end|>b"
    assert len(tokenizer) == tokenizer.vocab_size == end + 1
    messages = [{"role": "user", "content": "a<|im_end|>b"}]
    assert tokenizer.apply_chat_template(messages).count(end) == 1


def test_a_template_gives_text_or_tokens() -> None:
    tokenizer = subbyte.Tokenizer(DEMO)
    messages = [{"role": "user", "content": "Why?"}]
    text = "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.apply_chat_template(messages, tokenize=False) == text
    ids = tokenizer.apply_chat_template(messages)
    assert ids == tokenizer.encode(text, add_special_tokens=False, parse_special=True)


def test_a_model_without_a_template_has_the_format_of_its_family(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(DEMO / name, tmp_path)
    tokenizer, messages = subbyte.Tokenizer(tmp_path), [{"role": "user", "content": "Why?"}]
    with_template = subbyte.Tokenizer(DEMO)
    for tokenize in (True, False):
        assert (tokenizer.apply_chat_template(messages, tokenize=tokenize)
                == with_template.apply_chat_template(messages, tokenize=tokenize))


def test_a_text_is_that_of_the_tokens(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(DEMO / name, tmp_path)
    (tmp_path / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}")
    tokenizer = subbyte.Tokenizer(tmp_path)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    assert text == "user:a\nb;"
    assert tokenizer.apply_chat_template(messages) == tokenizer.encode(
        text, add_special_tokens=False)


def test_errors_have_codes(tmp_path: Path) -> None:
    tokenizer = subbyte.Tokenizer(DEMO)
    for call, code in (
            (lambda: tokenizer.decode(-1), "tokenizer.bad_id"),
            (lambda: tokenizer.apply_chat_template([{"role": "dog", "content": ""}]),
             "completion.role"),
            (lambda: subbyte.Tokenizer(tmp_path), "model.not_found"),
            (lambda: subbyte.Tokenizer(DEMO / "tokenizer.json").apply_chat_template([]),
             "tokenizer.no_model")):
        with pytest.raises(subbyte.Error) as caught:
            call()
        assert caught.value.code == code
