"""LLM.generate() and chat(), beside goldens of transformers and beside each other."""
from __future__ import annotations

import threading

import numpy as np
import pytest
from conftest import DEMO, Golden

import subbyte
from subbyte import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=12)


def test_generates_the_tokens_of_transformers(golden: Golden) -> None:
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    prompts = [prompt["ids"].tolist() for prompt in golden.prompts]
    answers = golden.llm.generate(prompts, params)  # all at once
    for prompt, answer in zip(golden.prompts, answers):
        assert answer.prompt_token_ids == prompt["ids"].tolist()
        assert answer.outputs[0].token_ids == prompt["greedy"].tolist()
        assert answer.outputs[0].finish_reason == "length"


def test_logits_are_those_of_transformers(golden: Golden) -> None:
    for prompt in golden.prompts:
        logits = golden.llm.logits(prompt["ids"].tolist())
        assert logits.shape == prompt["logits"].shape and logits.dtype == np.float32
        assert np.abs(logits - prompt["logits"]).max() <= golden.tolerance(prompt["logits"])


def test_perplexity_follows_from_logits(golden: Golden) -> None:
    prompt = golden.prompts[2]
    logits, ids = prompt["logits"].astype(np.float64), prompt["ids"]
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    nats = -logs[np.arange(len(ids) - 1), ids[1:]]
    found = golden.llm.perplexity(ids.tolist())
    assert found["scored"] == len(ids) - 1 and found["tokens"] == len(ids)
    bound = 2 * golden.tolerance(prompt["logits"])  # of the logit, and of the sum
    assert abs(found["nats"] / found["scored"] - nats.mean()) <= bound
    assert found["perplexity"] == pytest.approx(np.exp(found["nats"] / found["scored"]))


def test_logprobs_are_the_log_softmax_of_logits(golden: Golden) -> None:
    prompt = golden.prompts[1]
    params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, logprobs=3,
                            prompt_logprobs=1)
    [answer] = golden.llm.generate([prompt["ids"].tolist()], params)
    logits = prompt["logits"].astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    bound = 2 * golden.tolerance(prompt["logits"])
    [found] = answer.outputs[0].logprobs
    best = np.argsort(-logs[-1])[:3].tolist()
    assert list(found) == best and [one.rank for one in found.values()] == [1, 2, 3]
    for token in best:
        assert abs(found[token].logprob - logs[-1, token]) <= bound
    assert answer.prompt_logprobs[0] is None
    for i, one in enumerate(answer.prompt_logprobs[1:], 1):
        token = int(prompt["ids"][i])
        assert next(iter(one)) == token
        assert abs(one[token].logprob - logs[i - 1, token]) <= bound


def test_text_is_that_of_the_tokens(llm: subbyte.LLM) -> None:
    [answer] = llm.generate("Mr. Sherlock Holmes", GREEDY)
    assert answer.prompt == "Mr. Sherlock Holmes" and answer.finished
    assert answer.prompt_token_ids == llm.tokenizer.encode("Mr. Sherlock Holmes")
    sample = answer.outputs[0]
    assert len(sample.token_ids) == 12
    assert sample.text == llm.tokenizer.decode(sample.token_ids)


def test_many_prompts_are_answered_as_alone(llm: subbyte.LLM) -> None:
    prompts = [f"Chapter {i}. The moor" for i in range(20)]  # more than run at a time
    together = llm.generate(prompts, GREEDY)
    assert [answer.prompt for answer in together] == prompts
    for prompt, answer in zip(prompts, together):
        [alone] = llm.generate(prompt, GREEDY)
        assert alone.outputs[0].token_ids == answer.outputs[0].token_ids
        assert alone.outputs[0].text == answer.outputs[0].text


def test_samples_have_seeds(llm: subbyte.LLM) -> None:
    def tokens(**options: object) -> list[list[int]]:
        [answer] = llm.generate("The moor", SamplingParams(max_tokens=16, **options))
        return [sample.token_ids for sample in answer.outputs]

    two = tokens(n=2, seed=7)
    assert two == tokens(n=2, seed=7)
    assert two[1] == tokens(seed=8)[0] and two[0] != two[1]


def test_stop_texts_and_tokens_end_an_answer(llm: subbyte.LLM) -> None:
    whole = llm.generate("The moor", GREEDY)[0].outputs[0]
    word = whole.text.split()[3]
    cut = llm.generate("The moor", SamplingParams(temperature=0, max_tokens=12, stop=word))
    sample = cut[0].outputs[0]
    assert sample.text == whole.text[:whole.text.index(word)]
    assert (sample.finish_reason, sample.stop_reason) == ("stop", word)
    token = whole.token_ids[5]
    cut = llm.generate("The moor", SamplingParams(temperature=0, max_tokens=12,
                                                  stop_token_ids=[token]))
    sample = cut[0].outputs[0]
    assert sample.token_ids == whole.token_ids[:whole.token_ids.index(token)]
    assert (sample.finish_reason, sample.stop_reason) == ("stop", token)


def test_prompts_may_be_of_every_form(llm: subbyte.LLM) -> None:
    ids = llm.tokenizer.encode("The moor")
    forms = ["The moor", ids, tuple(ids), {"prompt": "The moor"}, {"prompt_token_ids": ids}]
    answers = [llm.generate(form, GREEDY)[0].outputs[0].token_ids for form in forms]
    assert all(answer == answers[0] for answer in answers)
    assert [a.outputs[0].token_ids for a in llm.generate(forms, GREEDY)] == answers


def test_a_prompt_has_its_salt(llm: subbyte.LLM) -> None:
    [answer] = llm.generate({"prompt": "The moor", "cache_salt": "of one"}, GREEDY)
    assert answer.outputs[0].token_ids == llm.generate("The moor", GREEDY)[0].outputs[0].token_ids
    for call in (llm.generate, llm.create_completion):
        with pytest.raises(subbyte.Error, match="cache_salt") as caught:
            call({"prompt": "The moor", "cache_salt": 7})
        assert caught.value.code == "json.type"


@pytest.mark.parametrize("is_cached", [True, False])
def test_what_a_prompt_begins_with_is_known_unless_it_is_switched_off(is_cached: bool) -> None:
    with subbyte.Engine(DEMO, device="cpu", threads=1, enable_prefix_caching=is_cached) as engine:
        prompt = engine.tokenizer.encode("The moor was silent, but " * 30)
        cached = []
        for _ in range(2):
            engine.add(prompt, SamplingParams(max_tokens=1))
            cached += [event.stats["cached_tokens"] for event in engine.events() if event.is_last]
    assert cached == [0, len(prompt) - 1 if is_cached else 0]


def test_a_priority_is_a_number_or_one_for_each_prompt(llm: subbyte.LLM) -> None:
    answers = llm.generate(["The moor", "The man"], GREEDY, priority=[3, -3])
    assert answers[0].outputs[0].token_ids == llm.generate("The moor", GREEDY,
                                                           priority=1)[0].outputs[0].token_ids
    for wrong, code in (([1], "completion.params"), ([1, "a"], "usage.argument"),
                        (10**9, "json.range")):
        with pytest.raises(subbyte.Error, match="priority") as caught:
            llm.generate(["The moor", "The man"], GREEDY, priority=wrong)
        assert caught.value.code == code


def test_parameters_are_for_each_prompt(llm: subbyte.LLM) -> None:
    lengths = [1, 3]
    answers = llm.generate(["The moor"] * 2, [SamplingParams(max_tokens=n) for n in lengths])
    assert [len(answer.outputs[0].token_ids) for answer in answers] == lengths
    with pytest.raises(subbyte.Error) as caught:
        llm.generate(["The moor"] * 2, [GREEDY])
    assert caught.value.code == "completion.params"


def test_chat_answers_what_the_tokens_of_its_template_answer(llm: subbyte.LLM) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    [answer] = llm.chat(messages, GREEDY)
    ids = llm.tokenizer.apply_chat_template(messages)
    assert answer.prompt is None and answer.prompt_token_ids == ids
    assert answer.outputs[0].token_ids == llm.generate([ids], GREEDY)[0].outputs[0].token_ids
    with pytest.raises(subbyte.Error):  # its template has no reasoning
        llm.chat(messages, GREEDY, chat_template_kwargs={"enable_thinking": False})
    two = llm.chat([messages, messages[1:]], GREEDY)
    assert two[0].outputs[0].text == answer.outputs[0].text
    assert two[1].prompt_token_ids == llm.tokenizer.apply_chat_template(messages[1:])


def test_one_refused_prompt_ends_all(llm: subbyte.LLM) -> None:
    with pytest.raises(subbyte.Error) as caught:
        llm.generate(["The moor", [10**6]], SamplingParams(max_tokens=900))
    assert caught.value.code == "model.token_range"
    assert llm.engine.num_running == llm.engine.num_waiting == 0


def test_threads_share_a_model(llm: subbyte.LLM) -> None:
    alone = [llm.generate(f"The {word}", GREEDY)[0].outputs[0].token_ids
             for word in ("moor", "man")]
    found: dict[str, list[int]] = {}

    def run(word: str) -> None:
        found[word] = llm.generate(f"The {word}", GREEDY)[0].outputs[0].token_ids

    threads = [threading.Thread(target=run, args=(word,)) for word in ("moor", "man")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found["moor"], found["man"]] == alone


def test_progress_is_told(llm: subbyte.LLM) -> None:
    told: list[tuple[int, int]] = []
    llm.generate(["The moor"] * 3, GREEDY, progress=lambda *numbers: told.append(numbers))
    assert told == [(1, 3), (2, 3), (3, 3)]
    loaded: list[tuple[int, int]] = []
    subbyte.LLM(DEMO, device="cpu", progress=lambda *numbers: loaded.append(numbers))
    assert loaded[-1][0] == loaded[-1][1] > 0


def test_what_does_not_open_says_why() -> None:
    with pytest.raises(subbyte.Error) as caught:
        subbyte.LLM("nowhere")
    assert caught.value.code == "model.not_found" and "nowhere" in str(caught.value)
    with pytest.raises(subbyte.Error) as caught:
        subbyte.LLM(DEMO, device="abacus")
    assert caught.value.code == "device.unknown"
    with pytest.raises(subbyte.Error) as caught:
        subbyte.LLM(DEMO, kv_cache_type="f64")
    assert caught.value.code == "usage.value" and "fp8" in str(caught.value)


def test_what_is_neither_text_nor_token_ids_is_refused() -> None:
    llm = subbyte.LLM(DEMO, device="cpu", threads=1)
    for prompt in ([[1.5]], [["1"]], b"The", [b"The"], bytearray(b"The")):
        with pytest.raises(subbyte.Error, match="prompt"):
            llm.generate(prompt, GREEDY)
    ids = np.array([64, 65])
    assert llm.generate([ids], GREEDY)[0].prompt_token_ids == [64, 65]
