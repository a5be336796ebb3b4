"""Completions in OpenAI's form, at once, as streams and for asyncio."""
from __future__ import annotations

import asyncio
import time

import pytest

import subbyte
from subbyte import SamplingParams

MESSAGES = [{"role": "user", "content": "Who are you?"}]
GREEDY = {"temperature": 0, "max_tokens": 10}


def test_a_completion_is_a_body_of_openai(llm: subbyte.LLM) -> None:
    body = llm.create_completion("The moor", logprobs=2, **GREEDY)
    [answer] = llm.generate("The moor", SamplingParams(logprobs=2, **GREEDY))
    sample = answer.outputs[0]
    assert body["object"] == "text_completion" and body["id"].startswith("cmpl-")
    assert body["model"] == "model" and abs(body["created"] - time.time()) < 600
    [choice] = body["choices"]
    assert (choice["index"], choice["text"]) == (0, sample.text)
    assert choice["finish_reason"] == "length"
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == sample.text
    # Requests that run together and alone may differ in the last places.
    assert logprobs["token_logprobs"] == pytest.approx(
        [one[token].logprob for token, one in zip(sample.token_ids, sample.logprobs)], abs=1e-2)
    assert logprobs["text_offset"][:2] == [0, len(logprobs["tokens"][0])]
    assert body["usage"] == {"prompt_tokens": 2, "completion_tokens": 10, "total_tokens": 12}


def test_a_completion_has_16_tokens_unless_more_are_asked_for(llm: subbyte.LLM) -> None:
    assert llm.create_completion("The moor", ignore_eos=True)["usage"]["completion_tokens"] == 16


def test_a_chat_completion_is_a_body_of_openai(llm: subbyte.LLM) -> None:
    body = llm.create_chat_completion(MESSAGES, n=2, logprobs=True, top_logprobs=1, **GREEDY)
    assert body["object"] == "chat.completion" and body["id"].startswith("chatcmpl-")
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    message = body["choices"][0]["message"]
    assert message["role"] == "assistant"
    content = body["choices"][0]["logprobs"]["content"]
    assert b"".join(bytes(one["bytes"]) for one in content).decode() == message["content"]
    assert body["usage"]["prompt_tokens"] == len(llm.tokenizer.apply_chat_template(MESSAGES))
    assert body["usage"]["completion_tokens"] == 20


def test_a_stream_adds_up_to_the_whole(llm: subbyte.LLM) -> None:
    whole = llm.create_completion("The moor", logprobs=1, **GREEDY)
    chunks = list(llm.create_completion("The moor", logprobs=1, stream=True,
                                        stream_options={"include_usage": True}, **GREEDY))
    *texts, usage = chunks
    assert len({chunk["id"] for chunk in chunks}) == 1 and len(texts) == 10
    choices = [chunk["choices"][0] for chunk in texts]
    [choice] = whole["choices"]
    assert "".join(each["text"] for each in choices) == choice["text"]
    for key in ("tokens", "text_offset"):
        assert sum((each["logprobs"][key] for each in choices), []) == choice["logprobs"][key]
    assert [each["finish_reason"] for each in choices] == [None] * 9 + ["length"]
    assert usage["choices"] == [] and usage["usage"] == whole["usage"]


def test_a_stream_of_a_chat_says_the_role_once(llm: subbyte.LLM) -> None:
    whole = llm.create_chat_completion(MESSAGES, **GREEDY)
    chunks = list(llm.create_chat_completion(MESSAGES, stream=True, **GREEDY))
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert ["role" in delta for delta in deltas] == [True] + [False] * (len(deltas) - 1)
    content = "".join(delta["content"] for delta in deltas)
    assert content == whole["choices"][0]["message"]["content"]


def test_a_closed_stream_is_not_computed(llm: subbyte.LLM) -> None:
    stream = llm.create_completion("The moor", max_tokens=900, ignore_eos=True, stream=True)
    next(stream)
    assert llm.engine.num_running == 1
    stream.close()
    assert llm.engine.num_running == 0


def test_fields_that_are_not_computed_are_refused(llm: subbyte.LLM) -> None:
    for fields, code in (({"guided_regex": "a+"}, "completion.field"),
                         ({"mirostat": 2}, "completion.field"),
                         ({"max_tokens": "ten"}, "json.type"),
                         ({"temperature": float("nan")}, "json.type"),
                         ({"stop": object()}, "json.type")):
        with pytest.raises(subbyte.Error) as caught:
            llm.create_completion("The moor", **fields)
        assert caught.value.code == code


def test_tasks_are_answered_together(llm: subbyte.LLM) -> None:
    async def run() -> tuple[object, ...]:
        return await asyncio.gather(
            llm.generate_async(["The moor", "The man"], SamplingParams(**GREEDY)),
            llm.chat_async(MESSAGES, SamplingParams(**GREEDY)),
            llm.create_completion_async("The moor", **GREEDY),
            llm.create_chat_completion_async(MESSAGES, **GREEDY))

    texts, chat, completion, chat_completion = asyncio.run(run())
    expected = [answer.outputs[0].text for answer in
                llm.generate(["The moor", "The man"], SamplingParams(**GREEDY))]
    assert [answer.outputs[0].text for answer in texts] == expected
    assert completion["choices"][0]["text"] == expected[0]
    assert chat_completion["choices"][0]["message"]["content"] == chat[0].outputs[0].text


def test_streams_are_asynchronous_iterators(llm: subbyte.LLM) -> None:
    async def run() -> str:
        stream = await llm.create_completion_async("The moor", stream=True, **GREEDY)
        return "".join([chunk["choices"][0]["text"] async for chunk in stream])

    assert asyncio.run(run()) == llm.create_completion("The moor", **GREEDY)["choices"][0]["text"]


def test_a_cancelled_task_ends_its_requests(llm: subbyte.LLM) -> None:
    async def run() -> None:
        long = SamplingParams(max_tokens=900, ignore_eos=True)
        task = asyncio.create_task(llm.generate_async("The moor", long))
        while llm.engine.num_running == 0:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The next request finds the place of the cancelled one free.
        await llm.generate_async("The moor", SamplingParams(**GREEDY))

    asyncio.run(run())
    assert llm.engine.num_running == llm.engine.num_waiting == 0


def test_a_stream_that_nobody_reads_is_not_computed(llm: subbyte.LLM) -> None:
    llm.create_completion("The moor", stream=True)
    assert llm.engine.num_running == llm.engine.num_waiting == 0


def test_other_tasks_run_while_a_prompt_is_computed(llm: subbyte.LLM) -> None:
    async def run() -> int:
        long = llm.tokenizer.encode("The moor was silent. " * 150)
        tasks = [asyncio.create_task(llm.generate_async([long], SamplingParams(max_tokens=1)))
                 for _ in range(4)]
        turns = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.001)
            turns += 1
        return turns

    assert asyncio.run(run()) > 3  # there are four prompts, each of them a long step
