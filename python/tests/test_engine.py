"""Engine: several requests at once, their events, their end."""
from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from conftest import DEMO

import subbyte
from subbyte import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


@pytest.fixture
def engine() -> subbyte.Engine:
    return subbyte.Engine(DEMO, device="cpu", max_sequences=2)


def test_events_add_up_to_the_answers(engine: subbyte.Engine, llm: subbyte.LLM) -> None:
    prompts = {engine.add(text, GREEDY): text for text in ("The moor", "The man", "The hound")}
    texts = dict.fromkeys(prompts, "")
    ends = []
    for event in engine.events():
        texts[event.request_id] += event.text
        if event.is_last:
            ends.append(event.request_id)
            assert event.finish_reason == "length"
            assert event.stats["generated_tokens"] == 8
    assert sorted(ends) == sorted(prompts)
    for number, prompt in prompts.items():
        assert texts[number] == llm.generate(prompt, GREEDY)[0].outputs[0].text


def test_stages_have_the_logits_of_one_machine(engine: subbyte.Engine) -> None:
    ids = engine.tokenizer.encode("The moor was silent, but the hound")
    options = {"device": "cpu", "batch_invariant": True}
    with (subbyte.Engine(DEMO, threads=1, **options) as one,
          subbyte.Engine(DEMO, threads=2, pipeline_parallel_size=2, **options) as stages):
        assert "2 stages" in stages.device
        assert np.array_equal(stages.logits(ids), one.logits(ids))


def test_those_of_a_lower_priority_come_sooner() -> None:
    with subbyte.Engine(DEMO, device="cpu", threads=1, max_sequences=1) as engine:
        numbers = [engine.add("The moor", GREEDY, priority=priority) for priority in (0, 7, -1)]
        ends = [event.request_id for event in engine.events() if event.is_last]
    assert ends == [numbers[2], numbers[0], numbers[1]]


def test_requests_come_and_go_meanwhile(engine: subbyte.Engine) -> None:
    first = engine.add("The moor", SamplingParams(max_tokens=900, ignore_eos=True))
    late = None
    seen = []
    for event in engine.events():
        seen.append(event.request_id)
        if late is None:
            late = engine.add("The man", GREEDY)
        if event.request_id == late:
            engine.cancel(first)
    assert late is not None and seen.count(late) == 8
    assert first not in seen[seen.index(late) + 1:]
    assert engine.num_running == engine.num_waiting == 0
    assert list(engine.events()) == []


def test_cancelling_twice_or_what_never_was_does_nothing(engine: subbyte.Engine) -> None:
    number = engine.add("The moor", GREEDY)
    engine.cancel(number)
    engine.cancel(number)
    engine.cancel(12345)
    assert list(engine.events()) == []


def test_measuring_waits_for_no_requests(engine: subbyte.Engine) -> None:
    number = engine.add("The moor", GREEDY)
    with pytest.raises(subbyte.Error) as caught:
        engine.logits([1, 2])
    assert caught.value.code == "session.busy"
    engine.cancel(number)
    assert engine.logits([1, 2]).shape == (2, engine.vocab_size)


def test_ctrl_c_ends_the_call_and_not_the_engine() -> None:
    program = textwrap.dedent(f"""
        import os, signal, threading
        import subbyte
        llm = subbyte.LLM({str(DEMO)!r}, device="cpu")
        long = subbyte.SamplingParams(max_tokens=1000, ignore_eos=True)
        told = 0
        def interrupt():
            while llm.engine.num_running == 0:
                pass
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            llm.generate(["The moor"] * 200, long)
        except KeyboardInterrupt:
            assert llm.engine.num_running == llm.engine.num_waiting == 0
            short = subbyte.SamplingParams(max_tokens=3)
            print(len(llm.generate("The moor", short)[0].outputs[0].token_ids))
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_ctrl_c_ends_loading() -> None:
    program = textwrap.dedent(f"""
        import os, signal
        import subbyte
        def interrupt(done, total):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):  # where Python looks for signals
                pass
        try:
            subbyte.LLM({str(DEMO)!r}, device="cpu", progress=interrupt)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
