"""A model that says what this file has it say, with the same numbers on every machine: its blocks
add nothing, so that a token alone decides which one is the likeliest after it.

The embedding of a token is a row of signs, and lm_head has at each token the sum of the rows of
those that it follows, weighted by the logit that it gets there."""
from __future__ import annotations

import json
import random
import struct
from pathlib import Path

WIDTH = 128
END = "<|end|>"
CALLS = ['{"name": "weather", "arguments": {"city": "Paris"}}',
         '{"name": "clock", "arguments": {"zone": "UTC", "seconds": true}}']
# What follows what: the second line of a pair gets the second largest logit.
TEXTS = [
    ["Count:", " one", " two", " three", " four", "...", END],
    ["Count:", " uno", " dos", " tres", END],
    [" two", " too", "\u00e9t\u00e9", END],
    ["<|assistant|>", "Hello", ", world", "!!", END],
    ["<|assistant|>", "Good", " morning", END],
    ["<|tools|>", "<tool_call>\n", CALLS[0], "\n</tool_call>\n<tool_call>\n", CALLS[1],
     "\n</tool_call>", END],
    ["<|think|>", "<think>", "Paris, then.", "</think>", "\n\nParis", " it is", END],
]
TEMPLATE = """{%- for tool in tools or [] %}<|tool|>{{ tool | tojson }}{% endfor -%}
{%- for message in messages -%}
<|{{ message.role }}|>{{ message.reasoning_content or '' }}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{%- if tools %}<|tools|>{% elif enable_thinking %}<|think|>{% else %}<|assistant|>{% endif -%}
{%- endif -%}"""


def byte_characters() -> list[str]:
    """The character that stands for each byte in a tokenizer of bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in shown else next(others)) for byte in range(256)]


def words() -> list[str]:
    return list(dict.fromkeys([END, *(word for text in TEXTS for word in text)]))


def tokenizer() -> dict[str, object]:
    added = [{"id": 256 + i, "content": word, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False,
              "special": word.startswith("<|")} for i, word in enumerate(words())]
    side = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": None, "pre_tokenizer": side, "post_processor": None,
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "byte_fallback": False,
                      "ignore_merges": False, "merges": [],
                      "vocab": {char: i for i, char in enumerate(byte_characters())}}}


def matrices(size: int) -> tuple[list[list[float]], list[list[float]]]:
    """The embedding and lm_head, [size][WIDTH]."""
    signs = random.Random(58)
    rows = [[float(signs.choice((-1, 1))) for _ in range(WIDTH)] for _ in range(size)]
    head = [[0.0] * WIDTH for _ in range(size)]
    ids = {word: 256 + i for i, word in enumerate(words())}
    seen: set[str] = set()
    for text in TEXTS:
        for before, after in zip(text, text[1:]):
            logit = 9 if before in seen else 10
            for i, sign in enumerate(rows[ids[before]]):
                head[ids[after]][i] += sign * logit / WIDTH
        seen.update(text)
    return rows, head


def tensors() -> dict[str, tuple[list[int], list[float]]]:
    size = 256 + len(words())
    rows, head = matrices(size)
    flat = {"model.embed_tokens.weight": rows, "lm_head.weight": head}
    made = {name: ([size, WIDTH], [x for row in matrix for x in row])
            for name, matrix in flat.items()}
    layer = "model.layers.0."
    for name in ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                 "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]:
        made[f"{layer}{name}.weight"] = ([WIDTH, WIDTH], [0.0] * WIDTH**2)
    for name in [f"{layer}input_layernorm", f"{layer}post_attention_layernorm", "model.norm"]:
        made[f"{name}.weight"] = ([WIDTH], [1.0] * WIDTH)
    return made


def write_tensors(path: Path) -> None:
    header, data = {}, b""
    for name, (shape, values) in tensors().items():
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_model(folder: Path) -> None:
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH,
              "intermediate_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2,
              "num_key_value_heads": 2, "head_dim": WIDTH // 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "tie_word_embeddings": False, "vocab_size": 256 + len(words()), "bos_token_id": None,
              "eos_token_id": 256, "torch_dtype": "float32"}
    files = {"config.json": config, "tokenizer.json": tokenizer(),
             "tokenizer_config.json": {"chat_template": TEMPLATE, "eos_token": END},
             "generation_config.json": {"eos_token_id": 256, "do_sample": False}}
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    write_tensors(folder / "model.safetensors")
