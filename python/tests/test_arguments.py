"""Arguments: those of other packages, what Python's protocols call a number, and errors that name
them where they are given."""
from __future__ import annotations

import argparse
import asyncio
import collections
import shutil
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from conftest import DEMO, GOLDENS

import subbyte
from subbyte import LLM, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=3)
MESSAGES = [{"role": "user", "content": "Who are you?"}]
WEATHER = {"type": "function", "function": {
    "name": "weather", "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}}}}}


def refused(call: Callable[[], object], *parts: str) -> subbyte.Error:
    """The error of a call, which has these parts in its message."""
    with pytest.raises(subbyte.Error) as caught:
        call()
    for part in parts:
        assert part in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


def test_neutral_options_of_others_open_a_model() -> None:
    llm = LLM(model=str(DEMO), tensor_parallel_size=1, trust_remote_code=True, enforce_eager=True,
              revision=None, dtype="auto", verbose=False, seed=None, swap_space=4,
              gpu_memory_utilization=0.9, load_format="auto", tokenizer_mode="auto",
              disable_log_stats=True, enable_lora=False, hf_overrides={}, limit_mm_per_prompt={},
              tokenizer=str(DEMO), quantization="awq", chat_format="chatml", n_threads=1,
              max_model_len=100, max_num_seqs=2, kv_cache_dtype="bf16", n_gpu_layers=-1)
    assert llm.engine.context == 100 and "1 thread" in llm.engine.device
    assert llm.generate("The moor", GREEDY)[0].finished


@pytest.mark.parametrize("options", [{"model_path": DEMO}, {"model": DEMO, "n_ctx": 64},
                                     {"model": DEMO, "quantization": "awq_marlin"},
                                     {"model": DEMO, "max_seq_len": np.int64(64)}])
def test_aliases_open_a_model(options: dict[str, object]) -> None:
    llm = LLM(**options, device="cpu")
    assert llm.engine.context == 64 or not {"n_ctx", "max_seq_len"} & set(options)


def test_other_functions_take_what_is_known_elsewhere(llm: LLM) -> None:
    tokenizer = subbyte.Tokenizer.from_pretrained(DEMO, trust_remote_code=True, use_fast=True)
    ids = tokenizer.encode("The moor", return_tensors=None, truncation=False)
    assert ids == llm.tokenizer.encode("The moor")
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == "The moor"
    refused(lambda: tokenizer.encode("a", return_tensors="pt"), "return_tensors", "list")
    weights = np.ones((8, 128), np.float32)
    matrix = subbyte.quantize(weights, q_group_size=64, w_bit=4)
    assert matrix.group_size == 64 and matrix.element == "u4"
    refused(lambda: subbyte.quantize(weights, calib_data=["a"]), "calib_data", "calibration")
    refused(lambda: subbyte.quantize(weights, desc_act=True), "desc_act", "in their order")
    refused(lambda: subbyte.quantize(weights, group=64), "group", "group_size")
    refused(lambda: subbyte.verify(), "verify(): missing", "model")


def test_from_pretrained_is_the_same() -> None:
    assert LLM.from_pretrained(repo_id=str(DEMO), verbose=False).engine.model == str(DEMO)
    refused(lambda: LLM.from_pretrained(repo_id=str(DEMO), filename="*Q8_0.gguf"), "filename",
            "GGUF")


@pytest.mark.parametrize("name, value, helps", [
    ("data_parallel_size", 2, 'device="cuda:N"'),
    ("gpu_memory_utilization", 0.5, "context says how long"),
    ("cpu_offload_gb", 20, "gpu_layers"),
    ("dtype", "float16", "activations and kv_cache_type"),
    ("quantization", "gptq", "'awq'"),
    ("tokenizer", "other", "tokenizer.json"),
    ("chat_format", "vicuna", "one of chatml"),
    ("chat_template", "nowhere.jinja", "a file of one"),
    ("hf_overrides", {"rope_theta": 1}, "config.json"),
    ("enable_lora", True, "adapters are not read"),
    ("speculative_config", {"model": "small"}, "no such thing"),
    ("served_model_name", "me", "directory"),
    ("embedding", True, "texts are generated"),
    ("max_token", 5, "LLM has no such argument"),
    ("contexts", 5, "did you mean context?"),
    ("temperature", 0, "SamplingParams has it"),
    ("max_new_tokens", 5, "SamplingParams has it as max_tokens"),
])
def test_other_options_are_refused_with_what_helps(name: str, value: object, helps: str) -> None:
    error = refused(lambda: LLM(DEMO, **{name: value}), name, helps)
    assert error.code in ("usage.argument", "file.not_found")
    assert "is called cache_positions" not in str(error)


def test_revision_belongs_to_a_name_of_the_cache() -> None:
    assert LLM(DEMO, revision="main").engine.model == str(DEMO)
    error = refused(lambda: LLM("nobody/nothing", revision="v2"), "nobody/nothing@v2")
    assert error.code == "model.not_found"


def test_two_names_of_one_option_are_refused() -> None:
    refused(lambda: LLM(DEMO, context=10, n_ctx=10), "n_ctx", "context")
    refused(lambda: LLM(), "model")
    refused(lambda: LLM(DEMO, model_path=DEMO), "model_path")


def test_calls_take_what_vllm_calls_take(llm: LLM) -> None:
    [answer] = llm.generate("The moor", GREEDY, use_tqdm=False, lora_request=None, priority=None)
    assert answer.outputs[0].finished()
    [with_bar] = llm.generate("The moor", GREEDY, use_tqdm=True)
    assert with_bar.outputs[0].text == answer.outputs[0].text
    [chat] = llm.chat(MESSAGES, GREEDY, use_tqdm=False, chat_template=None, tools=None,
                      add_generation_prompt=True, chat_template_content_format="auto")
    assert chat.prompt_token_ids == llm.tokenizer.apply_chat_template(MESSAGES)
    refused(lambda: llm.generate("The moor", GREEDY, chat_template="{{ x }}"), "chat_template")
    refused(lambda: llm.generate("The moor", max_tokens=3), "max_tokens", "SamplingParams")


@pytest.fixture(scope="module")
def templated(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """The demo model with a template that says what it was given."""
    folder = tmp_path_factory.mktemp("templated")
    for file in DEMO.iterdir():
        shutil.copy(file, folder)
    (folder / "chat_template.jinja").write_text(
        "{% if tools %}{{ tools[0].function.name }};{% endif %}"
        "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
        "{% if add_generation_prompt %}answer:{% endif %}")
    return LLM(folder, device="cpu")


def test_a_chat_has_the_template_of_its_caller(templated: LLM, tmp_path: Path) -> None:
    """For this chat alone; its variables, and the tokens that the model's files name, are there."""
    source = "{% for m in messages %}<{{ m.content }}>{% endfor %}{{ mood }}"
    text = "<Who are you?>calm"
    file = tmp_path / "own.jinja"
    file.write_text(source)
    encode = templated.tokenizer.encode
    for chat_template in (source, file, str(file)):
        own = {"chat_template": chat_template, "chat_template_kwargs": {"mood": "calm"}}
        [answer] = templated.chat(MESSAGES, GREEDY, **own)
        assert answer.prompt_token_ids == encode(text, add_special_tokens=False)
        [answer] = asyncio.run(templated.chat_async(MESSAGES, GREEDY, **own))
        assert answer.prompt_token_ids == encode(text, add_special_tokens=False)
        assert templated.tokenizer.apply_chat_template(
            MESSAGES, chat_template=chat_template, mood="calm", tokenize=False) == text
        templated.engine.add(None, GREEDY, messages=MESSAGES, **own)
        assert {event.error for event in templated.engine.events()} == {None}
    body = templated.create_chat_completion(MESSAGES, chat_template=source, max_tokens=1)
    assert body["usage"]["prompt_tokens"] == len(encode("<Who are you?>"))
    [answer] = templated.chat(MESSAGES, GREEDY)  # the model's own again
    assert answer.prompt_token_ids == templated.tokenizer.apply_chat_template(MESSAGES)
    error = refused(lambda: templated.chat(MESSAGES, GREEDY, chat_template="{% if %}"),
                    "chat_template:1")
    assert error.code == "jinja.syntax"
    refused(lambda: templated.chat(MESSAGES, GREEDY, chat_template="x.jinja"), "a file of one")
    refused(lambda: templated.create_completion("a", chat_template=source), "chat_template")


def test_a_chat_ends_where_its_caller_says(templated: LLM) -> None:
    def prompt(**options: object) -> str:
        [answer] = templated.chat(messages, GREEDY, **options)
        text = templated.tokenizer.apply_chat_template(messages, tokenize=False, **options)
        assert answer.prompt_token_ids == templated.tokenizer.encode(text, add_special_tokens=False)
        return str(text)

    messages = MESSAGES
    assert prompt() == prompt(add_generation_prompt=True) == "user:Who are you?;answer:"
    assert prompt(add_generation_prompt=False) == "user:Who are you?;"
    messages = [*MESSAGES, {"role": "assistant", "content": "I am"}]
    assert prompt(continue_final_message=True) == "user:Who are you?;assistant:I am"
    refused(lambda: templated.chat(messages, add_generation_prompt=True,
                                   continue_final_message=True), "add_generation_prompt")


TALK = [{"role": "system", "content": "S"}, {"role": "user", "content": "A"},
        {"role": "assistant", "content": "B"}, {"role": "user", "content": "C"}]


@pytest.mark.parametrize("options, expected", [
    ({"chat_format": "chatml"}, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nA<|im_end|>\n"
     "<|im_start|>assistant\nB<|im_end|>\n<|im_start|>user\nC<|im_end|>\n<|im_start|>assistant\n"),
    ({"chat_format": "llama-2"},
     "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nA [/INST] B </s><s>[INST] C [/INST]"),
    ({"chat_format": "llama-3"},
     "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nA<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\nB<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nC<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    ({"chat_format": "mistral-instruct"}, "<s>[INST] S\n\nA [/INST]B</s>[INST] C [/INST]"),
    ({"chat_format": "gemma"},
     "<bos><start_of_turn>user\nS\n\nA<end_of_turn>\n<start_of_turn>model\nB<end_of_turn>\n"
     "<start_of_turn>user\nC<end_of_turn>\n<start_of_turn>model\n"),
    ({"chat_template": "{{ messages[0].content }}!"}, "S!"),
])
def test_another_template_is_taken(options: dict[str, str], expected: str) -> None:
    llm = LLM(DEMO, device="cpu", **options)
    assert llm.tokenizer.apply_chat_template(TALK, tokenize=False) == expected
    [answer] = llm.chat(TALK, GREEDY)
    assert answer.prompt_token_ids == llm.tokenizer.encode(expected, add_special_tokens=False,
                                                           parse_special=True)


def test_a_template_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text("{{ messages[0].content }}?")
    llm = LLM(DEMO, device="cpu", chat_template=tmp_path / "own.jinja")
    assert llm.tokenizer.apply_chat_template(TALK, tokenize=False) == "S?"
    refused(lambda: LLM(DEMO, chat_template="{% if %}"), "chat_template")
    refused(lambda: LLM(DEMO, chat_template="{{ x }}", chat_format="chatml"), "chat_format")


def test_tools_reach_the_template(templated: LLM) -> None:
    [answer] = templated.chat(MESSAGES, GREEDY, tools=[WEATHER])
    assert answer.prompt_token_ids == templated.tokenizer.encode(
        "weather;user:Who are you?;answer:", add_special_tokens=False)
    assert answer.outputs[0].tool_calls == []
    answer = asyncio.run(templated.chat_async(MESSAGES, GREEDY, tools=[WEATHER]))[0]
    assert len(answer.prompt_token_ids) > len(templated.chat(MESSAGES, GREEDY)[0].prompt_token_ids)
    refused(lambda: templated.chat(MESSAGES, GREEDY, tools=3), "tools")
    refused(lambda: templated.chat(MESSAGES, GREEDY, tools=["weather"]), "tools")


@pytest.mark.parametrize("fields", [
    {"skip_special_tokens": True}, {"top_k": -1}, {"detokenize": True}, {"best_of": 1},
    {"include_stop_str_in_output": False}, {"bad_words": []}, {"allowed_token_ids": None},
    {"spaces_between_special_tokens": True}, {"max_new_tokens": 3}, {"output_kind": object()},
    {"truncate_prompt_tokens": None}, {"logits_processors": None}, {"repeat_penalty": 1.0}])
def test_sampling_params_take_what_asks_for_nothing(fields: dict[str, object]) -> None:
    params = SamplingParams(**fields)
    assert "max_new_tokens" not in fields or params.max_tokens == 3


@pytest.mark.parametrize("fields", [
    {"temperature": -1}, {"temperature": "hot"}, {"temperature": float("nan")}, {"n": 0},
    {"n": 1.5}, {"top_p": 2}, {"top_k": "5"}, {"max_tokens": 0}, {"min_tokens": 20},
    {"logit_bias": 3}, {"logit_bias": {"a": 1}}, {"stop": 3}, {"stop": ["a", 5]},
    {"stop": "\ud800"}, {"stop_token_ids": [1.5]}, {"seed": -1}, {"logprobs": 21},
    {"prompt_logprobs": 21}, {"skip_special_tokens": False}, {"detokenize": False},
    {"best_of": 2}, {"include_stop_str_in_output": True}, {"bad_words": ["no"]},
    {"allowed_token_ids": [1]}, {"guided_decoding": {"regex": "a"}}, {"wished": 1}])
def test_sampling_params_are_checked_where_they_are_made(fields: dict[str, object]) -> None:
    [name] = fields
    refused(lambda: SamplingParams(**fields), name)


def test_sampling_params_are_checked_again_where_they_are_used(llm: LLM) -> None:
    params = SamplingParams()
    params.temperature = -1
    refused(lambda: llm.generate("The moor", params), "temperature")
    refused(lambda: llm.generate("The moor", {"temperature": 0}), "sampling_params")
    usual = llm.get_default_sampling_params()
    assert usual.max_tokens == 16 and usual.temperature is not None and usual.top_p is not None


def test_what_protocols_call_a_number_is_one(llm: LLM) -> None:
    ids = llm.tokenizer.encode("The moor")
    params = SamplingParams(temperature=np.float32(0), max_tokens=np.int16(3), n=np.uint8(1),
                            stop_token_ids=np.array([5, 6]), ignore_eos=np.bool_(True),
                            logit_bias=MappingProxyType({np.int64(7): np.float64(-1)}))
    expected = llm.generate([ids], params)[0].outputs[0].token_ids
    for prompt in (np.array(ids), np.array(ids, np.int32), collections.deque(ids), iter(ids)):
        assert llm.generate(prompt, params)[0].outputs[0].token_ids == expected
    assert llm.generate(np.array([ids, ids]), params)[1].outputs[0].token_ids == expected
    assert llm.tokenizer.decode(np.array(ids)) == llm.tokenizer.decode(ids)
    assert llm.tokenizer.decode(np.int64(ids[0])) == llm.tokenizer.decode(ids[0])
    assert llm.logits(np.array(ids)).shape[0] == len(ids)
    engine = subbyte.Engine(DEMO, device="cpu", threads=np.int64(1), seed=2**64 - 1,
                            batch_invariant=np.bool_(True))
    assert "1 thread" in engine.device


@pytest.mark.parametrize("name, value", [
    ("threads", 1.5), ("threads", "2"), ("threads", 2**40), ("seed", -1), ("seed", 2**64),
    ("context", "long"), ("context", [1]), ("pin_threads", "yes"), ("device", 0), ("isa", b"avx2"),
    ("max_sequences", 2**70), ("head_bits", 4.0), ("progress", 5), ("model", 3), ("model", "a\0b"),
    ("kv_cache_type", object()), ("device", "\ud800")])
def test_options_of_other_types_are_named(name: str, value: object) -> None:
    options = {"model": DEMO, "device": "cpu", name: value}
    assert refused(lambda: LLM(**options), name).code == "usage.argument"


@pytest.mark.parametrize("call, part", [
    (lambda llm: llm.generate(None), "prompts"), (lambda llm: llm.generate(5), "prompts"),
    (lambda llm: llm.generate("\ud800", GREEDY), "prompt"),
    (lambda llm: llm.generate(b"The"), "prompt"), (lambda llm: llm.generate([[1.5]]), "prompt"),
    (lambda llm: llm.generate([None]), "prompt"), (lambda llm: llm.generate({}), "prompt"),
    (lambda llm: llm.generate({"prompt": "a", "multi_modal_data": {"image": 1}}), "multi_modal"),
    (lambda llm: llm.generate("a", 3), "sampling_params"),
    (lambda llm: llm.generate("a", GREEDY, parse_special="no"), "parse_special"),
    (lambda llm: llm.chat("Hello", GREEDY), "messages: expected a list of dicts"),
    (lambda llm: llm.chat(3), "messages"), (lambda llm: llm.chat(None), "messages"),
    (lambda llm: llm.chat([["Hello"]]), "messages"), (lambda llm: llm.chat([]), "messages"),
    (lambda llm: llm.chat([MESSAGES[0], "Hello"]), "messages[1]"),
    (lambda llm: llm.chat([{"role": "user", "content": object()}]), "content"),
    (lambda llm: llm.create_chat_completion("Hello"), "messages"),
    (lambda llm: llm.create_completion(None), "prompt"),
    (lambda llm: llm.create_completion("a", logit_bias=3), "logit_bias"),
    (lambda llm: llm.create_completion("a", stream="yes"), "stream"),
    (lambda llm: llm.create_completion("a", stream_options=3), "stream_options"),
    (lambda llm: llm.create_completion("a", temperature={1: 2}), "temperature"),
    (lambda llm: llm.create_completion("a", repeat_penalty=1.2, repetition_penalty=1.1),
     "repetition_penalty"),
    (lambda llm: llm.perplexity(3), "text"), (lambda llm: llm.logits(["a"]), "text"),
    (lambda llm: llm.perplexity("a b", window="x"), "window"),
    (lambda llm: llm.engine.cancel("x"), "request_id"),
    (lambda llm: llm.engine.add(5), "prompt"),
    (lambda llm: llm.tokenizer.encode(5), "text"),
    (lambda llm: llm.tokenizer.encode("\ud800"), "text"),
    (lambda llm: llm.tokenizer.decode(["a"]), "token_ids"),
    (lambda llm: llm.tokenizer.token_bytes(2**40), "token_id"),
    (lambda llm: llm.tokenizer.token_to_id(5), "token"),
    (lambda llm: llm.tokenizer.apply_chat_template("Hello"), "messages"),
    (lambda llm: llm.tokenizer.apply_chat_template(MESSAGES, return_tensors="pt"),
     "return_tensors"),
    (lambda llm: subbyte.quantize(np.ones((8, 64), np.float32), format=4), "format"),
    (lambda llm: subbyte.quantize(np.ones((8, 64), np.float32), bits="4"), "bits"),
    (lambda llm: subbyte.quantize(DEMO), "destination"),
    (lambda llm: subbyte.verify(DEMO, threads="2"), "threads"),
    (lambda llm: subbyte.inspect(3), "model"),
    (lambda llm: subbyte.set_threads("2"), "num_threads"),
    (lambda llm: subbyte.quantize(np.ones((8, 128), np.float32)).dequantize(3), "dtype"),
])
def test_errors_name_the_argument(llm: LLM, call: Callable[[LLM], object], part: str) -> None:
    refused(lambda: call(llm), part)
    assert llm.engine.num_running == llm.engine.num_waiting == 0


def test_nothing_is_queued_where_a_later_prompt_is_refused(llm: LLM) -> None:
    refused(lambda: llm.generate(["The moor", "\ud800"], SamplingParams(max_tokens=900)), "prompt")
    assert llm.engine.num_running == llm.engine.num_waiting == 0


def test_dtypes_are_those_of_numpy() -> None:
    matrix = subbyte.quantize(np.ones((8, 128), np.float32))
    assert matrix.dequantize(np.float16).dtype == np.float16
    assert matrix.dequantize(np.dtype("float64")).dtype == np.float64


def test_a_limit_below_one_is_none_where_llama_cpp_has_none() -> None:
    llm = LLM(DEMO, device="cpu", context=40)
    for limit in (-1, 0, None):
        body = llm("The moor", max_tokens=limit, ignore_eos=True)
        assert body["usage"]["total_tokens"] in (40, 41)  # the last one is not in the cache
    echo = llm("The moor", max_tokens=0, echo=True, logprobs=1)
    assert echo["choices"][0]["text"] == "The moor"
    chat = llm.create_chat_completion(MESSAGES, max_tokens=-1, ignore_eos=True,
                                      repeat_penalty=1.0, typical_p=1.0, mirostat_mode=0,
                                      grammar=None, functions=None)
    assert chat["choices"][0]["finish_reason"] == "length"
    assert chat["usage"]["total_tokens"] in (40, 41)


def test_methods_of_others_say_what_to_do(llm: LLM) -> None:
    with pytest.raises(AttributeError, match=r"tokenizer\.encode"):
        llm.tokenize(b"a")
    assert not hasattr(llm, "embed") and not hasattr(llm, "nothing_of_the_kind")


def test_a_model_is_closed() -> None:
    with LLM(DEMO, device="cpu") as llm:
        assert repr(llm).startswith(f"LLM({str(DEMO)!r}, qwen3, ") and "kernels" in repr(llm)
        number = llm.engine.add("The moor")
        stream = llm.create_completion("The moor", stream=True)
        next(stream)
    assert "closed" in repr(llm) and llm.engine.num_running == llm.engine.num_waiting == 0
    assert llm.tokenizer.decode(llm.tokenizer.encode("The moor")) == "The moor"
    llm.engine.cancel(number)
    llm.close()
    for call in (lambda: llm.generate("a"), lambda: list(llm.engine.events()),
                 lambda: list(stream), lambda: llm.logits([1])):
        assert refused(call).code == "session.closed"


def test_objects_say_what_they_are(llm: LLM) -> None:
    assert "Engine(" in repr(llm.engine) and "tokens)" in repr(llm.tokenizer)
    checkpoint = subbyte.open_checkpoint(GOLDENS / "qwen3-awq")
    assert "awq" in repr(checkpoint) and str(len(checkpoint)) in repr(checkpoint)


def test_options_of_a_script_are_those_of_the_package() -> None:
    parser = argparse.ArgumentParser()
    subbyte.EngineArgs.add_cli_args(parser)
    parser.set_defaults(model=str(DEMO))
    parser.add_argument("--max-tokens", type=int)
    given = vars(parser.parse_args([
        "--max-model-len", "64", "--tensor-parallel-size", "1", "--enforce-eager", "--device",
        "cpu", "--max-tokens", "3"]))
    assert given.pop("max_tokens") == 3
    assert LLM(**given).engine.context == 64
