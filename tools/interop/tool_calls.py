#!/usr/bin/env python3
"""Answers with calls of tools in each dialect, and what vLLM's parsers make of them.

    PYTHON tools/interop/tool_calls.py [--write]

Writes tests/data/calls/cases.json, or says where it differs. PYTHON needs vllm and transformers.
What is expected is worked out here, from what an answer is made of: of several calls those that can
be read, in their places, and all other text as it is. Where vLLM gives something else of a case,
that stands beside it: vLLM drops text around calls, cuts values at marks that stand in them, and
gives out arguments that are not JSON.
"""

import argparse
import json
import logging
import os
import pathlib
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = ROOT / "tests/data/calls/cases.json"
TOKENIZER = ROOT / "tests/data/tokenizers/qwen.tokenizer.json"
TYPES = {"n": "integer", "x": "number", "s": "string", "b": "boolean", "l": "array", "o": "object"}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {key: {"type": kind} for key, kind in keys.items()}}}}
    for name, keys in {"f": TYPES, "g": {}}.items()]
PLAIN = {"n": 3, "s": "a b"}
ALL = {"n": -12, "x": 1.5, "s": "two\nlines", "b": True, "l": [1, "a"], "o": {"k": {"v": False}}}
QUOTES = {"s": "it's \"so\" \\ {1}"}
LETTERS = {"s": "Z\u00fcrich, \u6771\u4eac \U0001F600"}


def text_of(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def in_json(name, arguments):
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def in_functions(name, arguments):
    lines = "".join(f"<parameter={key}>\n{text_of(value)}\n</parameter>\n"
                    for key, value in arguments.items())
    return f"<function={name}>\n{lines}</function>"


def in_invokes(name, arguments):
    lines = "".join(f'<parameter name="{key}">{text_of(value)}</parameter>\n'
                    for key, value in arguments.items())
    return f'<invoke name="{name}">\n{lines}</invoke>'


def in_keys(name, arguments):
    return name + "".join(f"\n<arg_key>{key}</arg_key>\n<arg_value>{text_of(value)}</arg_value>"
                          for key, value in arguments.items()) + "\n"


def in_python(name, arguments):
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def bare(value):
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{bare(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(bare, value)) + "]"
    return json.dumps(value)


class Dialect:
    """How calls are written: one, marks around one and around several, and one that is broken."""

    def __init__(self, write, call=("", ""), section=("", ""), between="", broken='{"n": ',
                 in_lists=False, tokens=()):
        self.write, self.call, self.section, self.between = write, call, section, between
        self.broken, self.in_lists = broken, in_lists
        self.tokens = [mark for mark in (*call, *section, *tokens) if mark]

    def unit(self, name, arguments):
        return self.call[0] + self.write(name, arguments) + self.call[1]

    def broken_unit(self):
        return self.call[0] + self.broken + self.call[1]

    def block(self, *units):
        return self.section[0] + self.between.join(units) + self.section[1]

    def calls(self, *calls):
        if not self.in_lists:
            return self.block(*(self.unit(*call) for call in calls))
        begin, end = ("", "") if self.in_lists == "lines" else "[]"
        separator = "\n" if self.in_lists == "lines" else ", "
        return self.call[0] + begin + separator.join(self.write(*call) for call in calls) + end \
            + self.call[1]


def wide(words):
    """A mark of DeepSeek."""
    return "<\uff5c" + words.replace(" ", "\u2581") + "\uff5c>"


def kimi():
    numbers = iter(range(100))
    return lambda name, arguments: (f"functions.{name}:{next(numbers)}"
                                    f"<|tool_call_argument_begin|>{text_of(arguments)}")


FUNCTIONS = {"write": in_functions, "between": "\n", "broken": "<function=f>\n<parameter=n>1\n"
             "</function>"}
DIALECTS = {
    "json": Dialect(lambda *call: "\n" + in_json(*call) + "\n", ("<tool_call>", "</tool_call>"),
                      between="\n", broken='{"name": "f", "arguments": {"n": }}'),
    "functions": Dialect(section=("<tool_call>\n", "\n</tool_call>"), **FUNCTIONS),
    "seed_functions": Dialect(section=("<seed:tool_call>\n", "\n</seed:tool_call>"), **FUNCTIONS),
    "invokes": Dialect(in_invokes, between="\n",
                       section=("<minimax:tool_call>\n", "\n</minimax:tool_call>"),
                       broken='<invoke name="f">\n<parameter name="n">1\n</invoke>'),
    "keys": Dialect(in_keys, ("<tool_call>", "</tool_call>"), between="\n",
                     broken="f\n<arg_key>n</arg_key>\n"),
    "separated": Dialect(lambda name, arguments: f"{name}{wide('tool sep')}{text_of(arguments)}",
                         (wide("tool call begin"), wide("tool call end")),
                         (wide("tool calls begin"), wide("tool calls end")),
                         broken=f'f{wide("tool sep")}{{"n": }}', tokens=(wide("tool sep"),)),
    "numbered": Dialect(kimi(), ("<|tool_call_begin|>", "<|tool_call_end|>"),
                       ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
                       broken='functions.f:100<|tool_call_argument_begin|>{"n": }',
                       tokens=("<|tool_call_argument_begin|>",)),
    "bare_keys": Dialect(lambda name, arguments: f"call:{name}{bare(arguments)}",
                      ("<|tool_call>", "<tool_call|>"), broken="call:f{n:1,", tokens=('<|"|>',)),
    "named_json": Dialect(lambda name, arguments: f"{name}[ARGS]{text_of(arguments)}",
                       ("[TOOL_CALLS]", ""), broken='f[ARGS]{"n": }', tokens=("[ARGS]",)),
    "python_list": Dialect(in_python, ("<|tool_call_start|>", "<|tool_call_end|>"), in_lists="list",
                    broken="[f(n=, s='a')]"),
    "python_lines": Dialect(in_python, ("<function_calls>", "</function_calls>"), in_lists="lines",
                     broken="f(n=, s='a')"),
    "json_tool_calls": Dialect(in_json, ("<tool_calls>", "</tool_calls>"), in_lists="list",
                            broken='[{"name": "f", "arguments": {"n": }}]'),
    "json_toolcall": Dialect(in_json, ("<TOOLCALL>", "</TOOLCALL>"), in_lists="list",
                             broken='[{"name": "f", "arguments": {"n": }}]'),
    "json_to_the_end": Dialect(in_json, ("<|tool_call|>", ""), in_lists="list",
                       broken='[{"name": "f", "arguments": {"n": }}]'),
}
# The parsers of vLLM 0.33; it has none of json_toolcall any more.
PARSERS = {"json": ["hermes", "granite4", "ernie45"], "functions": ["qwen3_coder"],
           "seed_functions": ["seed_oss"], "invokes": ["minimax_m2"], "keys": ["glm45"],
           "separated": ["deepseek_v31"], "numbered": ["kimi_k2"], "bare_keys": ["gemma4"],
           "named_json": ["mistral"], "python_list": ["lfm2"], "python_lines": ["olmo3"],
           "json_tool_calls": ["hunyuan_a13b"], "json_toolcall": [],
           "json_to_the_end": ["granite"]}


def answers(dialect):
    """Twenty of them: a name, a text, and its parts: texts, and names with arguments."""
    f, g = ["f", PLAIN], ["g", {}]
    one, both = dialect.calls(f), dialect.calls(f, g)
    yield "one", one, [f]
    yield "parallel", both, [f, g]
    yield "three", dialect.calls(g, ["f", ALL], g), [g, ["f", ALL], g]
    yield "types", dialect.calls(["f", ALL]), [["f", ALL]]
    yield "quotes", dialect.calls(["f", QUOTES]), [["f", QUOTES]]
    yield "letters", dialect.calls(["f", LETTERS]), [["f", LETTERS]]
    yield "no_arguments", dialect.calls(g), [g]
    yield "other_name", dialect.calls(["a-b.c_1", {"s": "1"}]), [["a-b.c_1", {"s": "1"}]]
    yield "text_before", "I look.\n\n" + one, ["I look.", f]
    yield "text_after", one + "\n\nDone.", [f, "Done."]
    yield "text_around", "I look. " + both + " Done.", ["I look.", f, g, "Done."]
    yield "blocks", one + "\n" + dialect.calls(g), [f, g]
    yield "text_between", one + " Then. " + dialect.calls(g), [f, "Then.", g]
    marks = {"s": f"a {dialect.call[1] or dialect.section[1] or 'x'} b"}
    yield "mark_in_value", dialect.calls(["f", marks]), [["f", marks]]
    broken = dialect.block(dialect.broken_unit())
    yield "broken", broken, [broken]
    if dialect.in_lists:
        yield "broken_first", broken + one, [broken, f]
        yield "broken_last", one + broken, [f, broken]
    else:
        unit = dialect.broken_unit()
        yield "broken_first", dialect.block(unit, dialect.unit(*f)), [dialect.section[0] + unit, f]
        yield "broken_last", dialect.block(dialect.unit(*f), unit), [f, unit]
    end = dialect.call[1] + dialect.section[1]
    yield "no_end", one.removesuffix(end), [f]
    cut = one[:one.rindex("a b") + 1]
    yield "cut", cut, [cut]
    yield "no_calls", "A <b> and {\"name\": 1} [x].", ["A <b> and {\"name\": 1} [x]."]


class Reference:
    def __init__(self, parser, tokens):
        logging.disable(logging.CRITICAL)
        from transformers import PreTrainedTokenizerFast
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.tool_parsers import ToolParserManager
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER))
        tokenizer.add_special_tokens({"additional_special_tokens": [one.strip() for one in tokens]})
        self.request = ChatCompletionRequest(model="m", messages=[], tools=TOOLS)
        self.make = lambda: ToolParserManager.get_tool_parser(parser)(tokenizer, self.request.tools)

    def parts(self, text):
        """Its calls after its text, without white space around it, which differs by parser."""
        found = self.make().extract_tool_calls(text, self.request)
        content = (found.content or "").strip()
        calls = [[call.function.name, value_of(call.function.arguments)]
                 for call in found.tool_calls]
        return [content] * bool(content) + calls


def value_of(arguments):
    try:
        return json.loads(arguments)
    except json.JSONDecodeError:
        return arguments


def in_order_of_reference(parts):
    texts = [part for part in parts if isinstance(part, str)]
    calls = [part for part in parts if not isinstance(part, str)]
    return ([" ".join(texts)] if texts else []) + calls


def all_cases():
    for name, dialect in DIALECTS.items():
        references = {parser: Reference(parser, dialect.tokens) for parser in PARSERS[name]}
        for case, text, parts in answers(dialect):
            row = {"dialect": name, "case": case, "text": text, "parts": parts}
            others = {parser: found for parser, reference in references.items()
                      if (found := reference.parts(text)) != in_order_of_reference(parts)}
            yield {**row, **({"vllm": others} if others else {})}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    rows = [json.dumps(row, ensure_ascii=False) for row in all_cases()]
    text = json.dumps({"tools": TOOLS})[:-1] + ', "cases": [\n' + ",\n".join(rows) + "\n]}\n"
    if write:
        CASES.parent.mkdir(exist_ok=True)
        CASES.write_text(text)
    others = sum("\"vllm\": " in row for row in rows)
    same = CASES.read_text() == text
    print(f"{len(rows)} answers, {others} of which vLLM reads otherwise; "
          f"{CASES.name} {'has' if same else 'does not have'} them")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
