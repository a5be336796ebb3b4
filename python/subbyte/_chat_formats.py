"""Chat templates that a caller names instead of the model's own."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Union

from ._arguments import path, refusal, text
from ._errors import Error

_CHATML = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

# Of formats without a system: its text begins the first message of the user.
_SYSTEM_FIRST = """\
{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}\
{% set ns.system = m.content + '\\n\\n' %}{% endif %}{% endfor %}"""

#: By their names in llama-cpp-python.
FORMATS = {
    "chatml": _CHATML,
    "qwen": _CHATML,
    "llama-2": """\
{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}\
{% set ns.system = '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' %}{% elif m.role == 'user' %}\
<s>[INST] {{ ns.system }}{{ m.content }} [/INST]{% set ns.system = '' %}{% else %}\
 {{ m.content }} </s>{% endif %}{% endfor %}""",
    "llama-3": """\
<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>

{{ m.content }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}\
<|start_header_id|>assistant<|end_header_id|>

{% endif %}""",
    "mistral-instruct": _SYSTEM_FIRST + """\
<s>{% for m in messages %}{% if m.role == 'user' %}[INST] {{ ns.system }}{{ m.content }} [/INST]\
{% set ns.system = '' %}{% elif m.role == 'assistant' %}{{ m.content }}</s>{% endif %}\
{% endfor %}""",
    "gemma": _SYSTEM_FIRST + """\
<bos>{% for m in messages %}{% if m.role == 'user' %}<start_of_turn>user
{{ ns.system }}{{ m.content }}<end_of_turn>
{% set ns.system = '' %}{% elif m.role == 'assistant' %}<start_of_turn>model
{{ m.content }}<end_of_turn>
{% endif %}{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}""",
}


#: The text of a template, or a file of one; None: the model's own.
Template = Union[str, os.PathLike[str], None]


def template_of(chat_template: object, chat_format: object = None) -> str:
    """The source of a template: a text or a file of one, or a format by its name; empty for that of
    the model. Raises subbyte.Error."""
    if chat_format and chat_template:
        raise Error("chat_format: expected nothing beside chat_template, found both",
                    "usage.argument")
    if chat_format:
        source = FORMATS.get(text("chat_format", chat_format))
        if source is None:
            raise refusal("chat_format", f"one of {', '.join(FORMATS)}: the model's own template "
                          "is used without it", chat_format)
        return source
    if not chat_template:
        return ""
    if isinstance(chat_template, str) and ("{" in chat_template or "\n" in chat_template):
        return text("chat_template", chat_template)
    file = path("chat_template", chat_template)
    if not os.path.isfile(file):
        raise refusal("chat_template", "the text of a template, or a file of one", file,
                      "file.not_found")
    return Path(file).read_text(encoding="utf-8")
