"""What tools/measure_readers.py has the program read: an input of any size for each reader."""
from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from reader_stage import Input, Reader, Stage, changed, of_model, size_of, write_tensors

# ---- containers

def empty_tensors(count: int) -> dict[str, tuple[str, list[int], bytes]]:
    return {f"t{i}": ("U8", [0], b"") for i in range(count)}


def header(stage: Stage, count: int) -> Input:
    file = stage.empty() / "model.safetensors"
    write_tensors(file, empty_tensors(count))
    return Input(["verify", str(file)], size_of(file))


def metadata(stage: Stage, count: int) -> Input:
    file = stage.empty() / "model.safetensors"
    text = json.dumps({"__metadata__": {f"k{i}": "v" for i in range(count)},
                       "t": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    return Input(["verify", str(file)], size_of(file))


def index(stage: Stage, count: int) -> Input:
    to = stage.copy(stage.qwen)
    (to / "model.safetensors").unlink()
    write_tensors(to / "model-1.safetensors", empty_tensors(count))
    weight_map = {f"t{i}": "model-1.safetensors" for i in range(count)}
    (to / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return Input(["verify", str(to)], size_of(to))


def shards(stage: Stage, count: int) -> Input:
    to = stage.copy(stage.qwen)
    (to / "model.safetensors").unlink()
    weight_map = {}
    for i in range(count):
        write_tensors(to / f"m{i}.safetensors", {f"t{i}": ("U8", [0], b"")})
        weight_map[f"t{i}"] = f"m{i}.safetensors"
    (to / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return Input(["verify", str(to)], size_of(to))


def orin_layers(stage: Stage, count: int) -> Input:
    """ak47 (F16) with a tiny layer: 2 norms, q, k, v, o, gate, up, down, q_norm, k_norm."""
    file = stage.empty() / "model.ak47"
    hidden = inner = heads = kv = head = 2
    layer = 2 * hidden + 2 * heads * head * hidden + 2 * kv * head * hidden + 3 * inner * hidden \
        + 2 * head
    numbers = 2 * hidden + hidden * 10 + count * layer
    start = struct.pack("<I8iB", 0x616B3437, 4, hidden, inner, count, heads, kv, 10, 32, 1)
    start += struct.pack("<i", head)
    file.write_bytes(start.ljust(256, b"\0") + bytes(2 * numbers))
    return Input(["inspect", str(file)], size_of(file))


# ---- configurations

def config(stage: Stage, count: int) -> Input:
    return of_model(stage, "verify", "config.json", stage.qwen,
                    lambda c: c.update({f"k{i}": i for i in range(count)}))


def layer_types(stage: Stage, count: int) -> Input:
    return of_model(stage, "verify", "config.json", stage.qwen,
                    lambda c: c.update(layer_types=["full_attention"] * count))


def generation(stage: Stage, count: int) -> Input:
    return of_model(stage, "verify", "generation_config.json", stage.qwen,
                    lambda c: c.update({"eos_token_id": list(range(count)),
                                        **{f"k{i}": i for i in range(count)}}))


def quantization_list(stage: Stage, count: int) -> Input:
    """As many names that are not to be converted as there are tensors."""
    to = stage.copy(stage.qwen)
    (to / "model.safetensors").unlink()
    changed(to / "config.json", lambda c: c["quantization_config"].update(
        modules_to_not_convert=[f"layer{i}" for i in range(count)]))
    write_tensors(to / "model.safetensors",
                  {f"layer{i}.weight": ("BF16", [0, 0], b"") for i in range(count)})
    return Input(["verify", str(to)], size_of(to))


def quantization_groups(stage: Stage, count: int) -> Input:
    def change(value: dict) -> None:
        weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
                   "group_size": 32}
        value["quantization_config"] = {
            "quant_method": "compressed-tensors", "format": "pack-quantized",
            "ignore": [f"re:layer{i}" for i in range(count)],
            "config_groups": {f"group_{i}": {"targets": [f"re:x{i}"], "weights": weights}
                              for i in range(count)}}
    return of_model(stage, "verify", "config.json", stage.qwen, change)


def gptq_dynamic(stage: Stage, count: int) -> Input:
    def change(value: dict) -> None:
        value["quantization_config"] = {
            "quant_method": "gptq", "bits": 4, "group_size": 128,
            "dynamic": {f"+:layer{i}.*": {"bits": 8} for i in range(count)}}
    return of_model(stage, "verify", "config.json", stage.qwen, change)


def quantized_layers(stage: Stage, count: int) -> Input:
    """Of ModelOpt; none is understood, and the module of none is there."""
    def change(value: dict) -> None:
        value["quantization_config"] = {
            "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {f"layer{i}": {"quant_algo": "NEW"} for i in range(count)}}
    return of_model(stage, "verify", "config.json", stage.qwen, change)


# ---- tokenizers

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def words() -> Iterator[str]:
    """aa, ab, ..., 99, aaa, ...: the first letters of each are an earlier one."""
    last = list(LETTERS)
    while True:
        last = [word + letter for word in last for letter in LETTERS]
        yield from last


def of_tokenizer(stage: Stage, change: Callable[[dict], object], text: str = "a text") -> Input:
    to = stage.copy(stage.qwen)
    file = to / "tokenizer.json"
    changed(file, change)
    return Input(["tokenize", str(to), "--stdin"], size_of(file) + len(text), stage.text(text))


def byte_tokens(value: dict) -> dict[str, int]:
    return {token: i for i, token in
            enumerate(token for token in value["model"]["vocab"] if len(token) == 1)}


def vocabulary(stage: Stage, count: int) -> Input:
    def change(value: dict) -> None:
        vocab = byte_tokens(value)
        for word in islice(words(), count):
            vocab[word] = len(vocab)
        value["model"].update(vocab=vocab, merges=[])
        value["added_tokens"] = []
    return of_tokenizer(stage, change)


def merges(stage: Stage, count: int) -> Input:
    def change(value: dict) -> None:
        vocab, pairs = byte_tokens(value), []
        for word in islice(words(), count):
            vocab[word] = len(vocab)
            pairs.append([word[:-1], word[-1]])
        value["model"].update(vocab=vocab, merges=pairs)
        value["added_tokens"] = []
    return of_tokenizer(stage, change)


def added_tokens(stage: Stage, count: int) -> Input:
    def change(value: dict) -> None:
        first = len(value["model"]["vocab"]) + len(value["added_tokens"])
        value["added_tokens"] += [
            {"id": first + i, "content": f"<|{'x' * 100}{i}|>", "single_word": False,
             "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for i in range(count)]
    return of_tokenizer(stage, change, "<|" + "x" * 1000)


def pattern(stage: Stage, count: int) -> Input:
    def change(value: dict) -> None:
        value["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "|".join(
            f"a{i}" for i in range(count))
    return of_tokenizer(stage, change, "a" * 1000)


def literal(stage: Stage, count: int) -> Input:
    """A normalizer's literal whose end alone differs from the text everywhere."""
    def change(value: dict) -> None:
        value["normalizer"] = {"type": "Replace", "pattern": {"String": "a" * (count // 2) + "b"},
                               "content": "c"}
    return of_tokenizer(stage, change, "a" * count)


def text(stage: Stage, count: int) -> Input:
    return Input(["tokenize", str(stage.qwen), "--stdin"], 10 * count,
                 stage.text("It was 23\n" * count))


def one_word(stage: Stage, count: int) -> Input:
    return Input(["tokenize", str(stage.qwen), "--stdin"], count, stage.text("a" * count))


def chat_template(stage: Stage, count: int) -> Input:
    return of_model(stage, "verify", "tokenizer_config.json", stage.qwen,
                    lambda c: c.update(chat_template="<|" * count + "|>"))


def control_tokens(stage: Stage, count: int) -> Input:
    return of_model(stage, "verify", "tokenizer_config.json", stage.qwen,
                    lambda c: c.update(chat_template="".join(f"<|{i}|>" for i in range(count))))


def added_decoder(stage: Stage, count: int) -> Input:
    return of_model(stage, "verify", "tokenizer_config.json", stage.qwen,
                    lambda c: c.update(added_tokens_decoder={
                        str(200_000 + i): {"content": f"<|{i}|>", "special": True}
                        for i in range(count)}))


# ---- requests, answers, conversations. A wrong line at the end keeps the model from running.

def of_prompts(stage: Stage, lines: Iterable[str], results: Iterable[str] = ()) -> Input:
    folder = stage.empty()
    (folder / "in").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    (folder / "out").write_text("".join(line + "\n" for line in results), encoding="utf-8")
    if not results:
        (folder / "out").unlink()
    return Input(["run", str(stage.qwen), "--prompts", str(folder / "in"), "--output",
                  str(folder / "out")], size_of(folder))


def prompts(stage: Stage, count: int) -> Input:
    return of_prompts(stage, [f'{{"id":{i},"prompt":"It was"}}' for i in range(count)] + ["{"])


def long_prompt(stage: Stage, count: int) -> Input:
    return of_prompts(stage, [json.dumps({"prompt": "It was 23 " * count}), "{"])


def messages(stage: Stage, count: int) -> Input:
    one = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    return of_prompts(stage, [json.dumps({"messages": one * count}), "{"])


def result_line(number: int, response: str = "null") -> str:
    return (f'{{"line":{number},"custom_id":null,"request_sha256":"{number:064x}",'
            f'"response":{response},"error":null}}')


def results(stage: Stage, count: int) -> Input:
    return of_prompts(stage, ['{"prompt":"a"}'], [result_line(i + 1) for i in range(count)])


def long_answer(stage: Stage, count: int) -> Input:
    token = '{"token":"a","logprob":-1.5,"bytes":[97],"top_logprobs":[]}'
    return of_prompts(stage, ['{"prompt":"a"}'], [result_line(1, f"[{','.join([token] * count)}]")])


def conversation(stage: Stage, count: int) -> Input:
    file = stage.empty() / "chat.json"
    one = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    file.write_text(json.dumps({"messages": one * count}))
    return Input(["chat", str(stage.qwen)], size_of(file), stage.text(f"/load {file}\n/exit\n"))


def files_of_model(stage: Stage, count: int) -> Input:
    to = stage.copy(stage.qwen)
    for i in range(count):
        (to / f"f{i}.json").write_text("{}")
    (to / "in").write_text('{"prompt":"a"}\n{\n')
    return Input(["run", str(to), "--prompts", str(to / "in"), "--output", "output"], size_of(to))


def chat_templates(stage: Stage, count: int) -> Input:
    to = stage.copy(stage.qwen)
    (to / "additional_chat_templates").mkdir()
    for i in range(count):
        (to / "additional_chat_templates" / f"t{i}.jinja").write_text("x")
    return Input(["run", str(to), "-p", "a", "-n", "1"], size_of(to / "additional_chat_templates"))


# ---- what was left behind

def partial_name(target: str, number: int) -> str:
    name = f"{target}.partial-4000000-{number:08x}"
    return name + hashlib.sha256(b"subbyte output " + name.encode()).hexdigest()[:12]


def leftovers(stage: Stage, count: int) -> Input:
    folder = stage.empty()
    for i in range(count):
        (folder / partial_name("output", i)).write_text("half")
    return Input(["clean", str(folder), "--dry-run"], size_of(folder))


def resume_record(stage: Stage, count: int) -> Input:
    folder = stage.empty()
    left = folder / partial_name("output", 1)
    left.mkdir(mode=0o700)
    (left / "resume.json").write_text("x" * count)
    return Input(["convert", str(stage.qwen), str(folder / "output"), "--to", "gptq"], count)


# ---- weights

def experts_in_config(stage: Stage, count: int) -> Input:
    """Layers and experts that have no tensors: 1,024 layers of `count` experts."""
    to = stage.copy(stage.moe)
    changed(to / "config.json", lambda c: c.update(
        num_hidden_layers=1024, num_experts=count, num_experts_per_tok=1))
    write_tensors(to / "model.safetensors", {
        f"model.layers.{layer}.mlp.experts.{part}.weight": ("BF16", [0, 0], b"")
        for layer in range(1024) for part in ("gate_proj", "up_proj", "down_proj")})
    return Input(["verify", str(to)], size_of(to))


def experts(stage: Stage, count: int) -> Input:
    to = stage.copy(stage.moe)
    changed(to / "config.json", lambda c: c.update(num_experts=min(count, 4096)))
    write_tensors(to / "model.safetensors", {
        f"model.layers.0.mlp.experts.{e}.{part}.weight": ("BF16", [1, 1], b"\0\0")
        for e in range(count) for part in ("gate_proj", "up_proj", "down_proj")})
    return Input(["verify", str(to)], size_of(to))


def stack_of_experts(stage: Stage, count: int) -> Input:
    to = stage.copy(stage.gpt_oss)
    changed(to / "config.json", lambda c: c.update(num_local_experts=min(count, 4096)))
    name = "model.layers.0.mlp.experts.gate_up_proj"
    write_tensors(to / "model.safetensors", {
        name + "_blocks": ("U8", [count, 2, 1, 16], b"\x7f" * (32 * count)),
        name + "_scales": ("U8", [count, 2, 1], b"\x7f" * (2 * count))})
    return Input(["convert", str(to), "output", "--to", "mxfp4_pack_quantized"], size_of(to))


def stacks_of_experts(stage: Stage, count: int) -> Input:
    to = stage.copy(stage.gpt_oss)
    tensors = {}
    for i in range(count):
        name = f"model.layers.{i}.mlp.experts.gate_up_proj"
        tensors[name + "_blocks"] = ("U8", [1, 2, 1, 16], b"\x7f" * 32)
        tensors[name + "_scales"] = ("U8", [1, 2, 1], b"\x7f" * 2)
        tensors[name + "_bias"] = ("BF16", [1, 2], b"\0" * 4)
    write_tensors(to / "model.safetensors", tensors)
    return Input(["convert", str(to), "output", "--to", "mxfp4_pack_quantized"], size_of(to))


def single_experts(stage: Stage, count: int) -> Input:
    """That become one stack: gate and up of each, as compressed-tensors has them."""
    to = stage.copy(stage.gpt_oss)
    weights = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "group",
               "group_size": 32, "scale_dtype": "torch.uint8"}
    changed(to / "config.json", lambda c: c.update(quantization_config={
        "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "ignore": [],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}))
    tensors = {}
    for e in range(count):
        for part in ("gate_proj", "up_proj"):
            name = f"model.layers.0.mlp.experts.{e}.{part}"
            tensors[name + ".weight_packed"] = ("U8", [1, 16], b"\x7f" * 16)
            tensors[name + ".weight_scale"] = ("U8", [1, 1], b"\x7f")
    write_tensors(to / "model.safetensors", tensors)
    return Input(["convert", str(to), "output", "--to", "mxfp4"], size_of(to))


def diff_of_stack(stage: Stage, count: int) -> Input:
    made = stack_of_experts(stage, count)
    return Input(["diff", made.arguments[1], made.arguments[1]], made.size)


def layers_of_stacks(stage: Stage, count: int) -> Input:
    """As many experts as there may be in each of `count` layers, which become modules."""
    to = stage.copy(stage.gpt_oss)
    experts = 4096
    changed(to / "config.json", lambda c: c.update(num_local_experts=experts))
    tensors = {}
    for i in range(count):
        name = f"model.layers.{i}.mlp.experts.gate_up_proj"
        tensors[name + "_blocks"] = ("U8", [experts, 2, 1, 16], b"\x7f" * (32 * experts))
        tensors[name + "_scales"] = ("U8", [experts, 2, 1], b"\x7f" * (2 * experts))
    write_tensors(to / "model.safetensors", tensors)
    return Input(["convert", str(to), "output", "--to", "mxfp4_pack_quantized"], size_of(to))


def unread_parts(stage: Stage, count: int) -> Input:
    """Modules of a draft head that no importer takes."""
    to = stage.copy(stage.dense)
    file = to / "model.safetensors"
    write_tensors(file, {f"mtp.layers.{i}.up_proj.{part}": ("U8", [1, 1], b"\0")
                         for i in range(count) for part in ("weight_packed", "weight_scale")})
    return Input(["convert", str(to), "output", "--to", "f32"], size_of(to))


def packed_experts(stage: Stage, count: int) -> Input:
    """Lines of metadata of experts that config.json does not have."""
    to = stage.copy(stage.qwen)
    (to / "model.safetensors").unlink()
    line = {"layout": "int4pack-xpu", "version": 1, "tile": "", "shape": [2, 8, 32],
            "modules": True, "element": "u4", "scale": "f16", "zero": "u8", "group_size": 32,
            "flavour": "awq", "tensors": [".qweight"]}
    text = json.dumps({"__metadata__": {f"m{i}.experts.packed": json.dumps(line)
                                        for i in range(count)},
                       "t": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}).encode()
    file = to / "packed.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    return Input(["unpack", str(to), "output"], size_of(to))


def modules(command: str, *options: str) -> Callable[[Stage, int], Input]:
    def make(stage: Stage, count: int) -> Input:
        to = stage.copy(stage.dense)
        write_tensors(to / "model.safetensors", {
            f"model.layers.{i}.mlp.up_proj.weight": ("BF16", [8, 32], bytes(range(256)) * 2)
            for i in range(count)})
        again = [str(to)] if command == "diff" else ["output"] if options else []
        return Input([command, str(to), *again, *options], size_of(to))
    return make


def layers(stage: Stage, count: int) -> Input:
    """A whole model of as many layers, all like the first one."""
    to = stage.copy(stage.dense)
    changed(to / "config.json", lambda c: c.update(num_hidden_layers=count))
    file = to / "model.safetensors"
    data = file.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    found = {name: (t["dtype"], t["shape"], data[start + t["data_offsets"][0]:
                                                 start + t["data_offsets"][1]])
             for name, t in json.loads(data[8:start]).items() if name != "__metadata__"}
    first = "model.layers.0."
    tensors = {name: t for name, t in found.items() if not name.startswith("model.layers.")}
    for i in range(count):
        tensors.update({name.replace(first, f"model.layers.{i}."): t
                        for name, t in found.items() if name.startswith(first)})
    write_tensors(file, tensors)
    return Input(["quantize", str(to), "output"], size_of(to))


READERS = [
    Reader("safetensors: header", "tensors", header, 10_000, 1_000_000),
    Reader("safetensors: metadata", "entries", metadata, 10_000, 2_000_000),
    Reader("index of shards", "tensors", index, 10_000, 300_000),
    Reader("shards", "files", shards, 500, 8_000),
    Reader("file of OrinMLLM", "layers", orin_layers, 256, 1024),
    Reader("config.json", "keys", config, 10_000, 400_000),
    Reader("config.json: layer_types", "layers", layer_types, 25_000, 100_000),
    Reader("generation_config.json", "keys and ids", generation, 15_000, 60_000),
    Reader("quantization_config: names and modules", "of each", quantization_list, 5_000, 200_000),
    Reader("quantization_config: groups and patterns", "of each", quantization_groups, 1_800,
           7_200),
    Reader("quantization_config: dynamic", "patterns", gptq_dynamic, 9_500, 38_000),
    Reader("quantization_config: quantized_layers", "entries", quantized_layers, 8_000, 32_000),
    Reader("tokenizer.json: vocabulary", "tokens", vocabulary, 20_000),
    Reader("tokenizer.json: merges", "merges", merges, 20_000),
    Reader("tokenizer.json: added tokens", "tokens", added_tokens, 1_000, 200_000),
    Reader("tokenizer.json: pattern", "alternatives", pattern, 200, 10_000, capped=1),
    Reader("text and a literal of its normalizer", "letters", literal, 100_000, 1_000_000),
    Reader("text", "lines", text, 50_000, 6_000_000),
    Reader("text of one word", "letters", one_word, 500_000, 60_000_000),
    Reader("tokenizer_config.json: chat_template", "beginnings", chat_template, 20_000, 100_000),
    Reader("tokenizer_config.json: control tokens", "names", control_tokens, 5_000, 25_000),
    Reader("tokenizer_config.json: added tokens", "tokens", added_decoder, 5_000, 20_000),
    Reader("prompts", "lines", prompts, 10_000),
    Reader("prompts: one text", "words", long_prompt, 50_000, 1_500_000),
    Reader("prompts: messages", "messages", messages, 10_000, 500_000),
    Reader("results", "lines", results, 20_000),
    Reader("results: one answer", "tokens", long_answer, 100_000),
    Reader("conversation", "messages", conversation, 160_000, 700_000),
    Reader("files of a model, for a job", "files", files_of_model, 1_000, 100_000),
    Reader("chat templates in a folder", "files", chat_templates, 1_000, 200_000),
    Reader("leftovers", "files", leftovers, 1_000, 100_000),
    Reader("resume.json", "bytes", resume_record, 2_000_000, 16_000_000),
    Reader("verify: experts without tensors", "experts of 1,024 layers", experts_in_config, 512,
           4096),
    Reader("verify: experts", "experts", experts, 500, 200_000),
    Reader("verify: modules", "modules", modules("verify"), 1_000),
    Reader("inspect: modules", "modules", modules("inspect"), 1_000),
    Reader("convert: a stack", "experts", stack_of_experts, 1_000, 4_096),
    Reader("convert: stacks", "stacks", stacks_of_experts, 500),
    Reader("convert: to a stack", "experts", single_experts, 1_000),
    Reader("convert: modules", "modules", modules("convert", "--to", "f32"), 1_000),
    Reader("convert: layers of stacks", "layers of 4,096 experts", layers_of_stacks, 4, 256),
    Reader("convert: parts that nobody reads", "modules", unread_parts, 5_000, 200_000),
    Reader("unpack: experts of nobody", "lines", packed_experts, 2_000, 100_000),
    Reader("quantize", "layers", layers, 16, 512),
    Reader("diff: modules", "modules", modules("diff"), 1_000),
    Reader("diff: a stack", "experts", diff_of_stack, 1_000),
]
