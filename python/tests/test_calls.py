"""Calls that come while another one runs, or when there is nobody any more: from signal handlers,
progress functions, forked children, and threads that the interpreter outruns."""
from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import numpy as np
import pytest
from conftest import DEMO

import subbyte
from subbyte import LLM, SamplingParams

LONG = SamplingParams(max_tokens=900, ignore_eos=True)
SHORT = SamplingParams(temperature=0, max_tokens=3)
START = f"""
import os, signal, sys, threading
import numpy as np
import subbyte
from subbyte import LLM, SamplingParams
DEMO = {str(DEMO)!r}
long = SamplingParams(max_tokens=900, ignore_eos=True)
short = SamplingParams(temperature=0, max_tokens=3)
"""

# A model that is at work until go_on is set.
AT_WORK = """
        llm = LLM(DEMO, device="cpu", threads=1)
        started, go_on = threading.Event(), threading.Event()
        def progress(done, total):
            started.set()
            go_on.wait()
        worker = threading.Thread(target=lambda: llm.logits([5, 6], progress=progress))
        worker.start()
        started.wait()
"""


def run(program: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, which is ended if it waits for ever. Later Pythons warn of
    each fork of a process with threads."""
    return subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c",
                           START + textwrap.dedent(program)],
                          capture_output=True, text=True, timeout=seconds)


@pytest.mark.parametrize("call", [
    "llm.generate('The moor', long)",
    "list(llm.create_completion('The moor', max_tokens=900, ignore_eos=True, stream=True))",
    "llm.chat([{'role': 'user', 'content': 'Why?'}], long)",
    "llm.perplexity('The moor was silent. ' * 400)",
    "llm.logits([5] * 900)",
])
def test_a_signal_handler_calls_the_model_that_is_at_work(call: str) -> None:
    done = run(f"""
        llm = LLM(DEMO, device="cpu", threads=1)
        seen = []
        def handler(*_):
            try:
                seen.append(llm.generate("The man", short)[0].outputs[0].token_ids)
            except subbyte.Error as error:
                seen.append(error.code)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        while not seen:
            {call}
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        expected = llm.generate("The man", short)[0].outputs[0].token_ids
        print(all(each in (expected, "session.busy") for each in seen))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_a_signal_handler_multiplies_while_matrices_are_made() -> None:
    done = run("""
        matrix = subbyte.quantize(np.ones((8, 128), np.float32))
        seen = []
        def handler(*_):
            try:
                seen.append(matrix.linear(np.ones(128, np.float32)).shape == (8,))
            except subbyte.Error as error:
                seen.append(error.code == "session.busy")
            signal.setitimer(signal.ITIMER_REAL, 0.05)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        large = np.random.default_rng(0).standard_normal((2048, 4096), np.float32)
        while not seen:
            subbyte.quantize(large, format="kbit3")
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        print(all(seen))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_progress_functions_that_call_back_are_refused(llm: LLM) -> None:
    seen: list[object] = []

    def call(work: Callable[[], object]) -> Callable[[int, int], None]:
        def progress(done: int, total: int) -> None:
            try:
                seen.append(work())
            except subbyte.Error as error:
                seen.append((error.code, str(error)))
        return progress

    llm.perplexity("The moor", progress=call(lambda: llm.generate("The man", SHORT)))
    llm.logits([5, 6], progress=call(lambda: llm.logits([5])))
    assert seen and all(one[0] == "session.busy" and "progress function" in one[1] for one in seen)
    seen.clear()
    answers = llm.generate(["The moor"] * 2, SHORT, progress=call(
        lambda: llm.generate("The man", SHORT)[0].outputs[0].token_ids))
    assert len(answers) == 2 and seen == [seen[0]] * 2 and isinstance(seen[0], list)


def test_ctrl_c_ends_a_call_that_waits_for_its_turn() -> None:
    done = run(AT_WORK + """
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            llm.generate("The moor", short)
        except KeyboardInterrupt:
            print("interrupted")
        go_on.set()
        worker.join()
        print(len(llm.generate("The moor", short)[0].outputs[0].token_ids))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n3\n", "")


def test_ctrl_c_of_a_call_that_waits_ends_what_others_cancelled() -> None:
    """Who waits for a turn ends what is cancelled meanwhile, also where its handler raises."""
    done = run(AT_WORK + """
        def handler(*_):  # the call that waits is the next one from here on
            go_on.set()
            worker.join()
            stream = llm.create_completion("The moor", max_tokens=900, ignore_eos=True, stream=True)
            next(stream)
            print(llm.engine.num_running)
            stream.close()
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            llm.logits([5])
        except KeyboardInterrupt:
            print(llm.engine.num_running)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n0\n", "")


@pytest.mark.parametrize("last", ["llm.generate, 'The moor', short", "matrix.linear, x"])
def test_what_ends_with_the_interpreter_waits_for_no_daemon_thread(last: str) -> None:
    """A generator is closed when daemon threads stand still, with the turns that it asks for."""
    done = run(f"""
        import functools
        llm = LLM(DEMO, device="cpu", threads=1)
        matrix, x = subbyte.quantize(np.ones((8, 128), np.float32)), np.ones(128, np.float32)
        large = np.random.default_rng(0).standard_normal((8192, 8192), np.float32)
        def scope(llm, last, error):
            with llm:
                try:
                    yield
                finally:
                    try:
                        last()
                    except error as caught:
                        print(caught.code)
        generator = scope(llm, functools.partial({last}), subbyte.Error)
        next(generator)
        # Functions of this file would keep its names alive, and the generator open.
        threading.Thread(target=llm.perplexity, args=["The moor. " * 50000], daemon=True).start()
        threading.Thread(target=subbyte.quantize, args=[large], kwargs={{"format": "kbit3"}},
                         daemon=True).start()
        threading.Event().wait(0.5)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "session.ending\n", "")


@pytest.mark.parametrize("call", [
    "llm.generate('The moor', long)",
    "list(llm.create_completion('The moor', max_tokens=900, ignore_eos=True, stream=True))",
    "llm.perplexity('The moor was silent. ' * 5000)",
    "subbyte.verify(DEMO, progress=lambda *_: None)",
    "subbyte.quantize(large, format='kbit3')",
    "matrix.linear(x)",
])
def test_a_daemon_thread_at_work_ends_with_the_interpreter(call: str) -> None:
    for seed in range(4):  # at four moments
        done = run(f"""
            llm = LLM(DEMO, device="cpu", threads=1)
            large = np.random.default_rng(0).standard_normal((1024, 4096), np.float32)
            matrix, x = subbyte.quantize(large), np.ones((64, 4096), np.float32)
            started = threading.Event()
            def work():
                while True:
                    started.set()
                    {call}
            threading.Thread(target=work, daemon=True).start()
            started.wait()
            threading.Event().wait({0.03 + 0.017 * seed})
        """)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_many_threads_get_their_turns(llm: LLM) -> None:
    expected = llm.generate("The moor", SHORT)[0].outputs[0].token_ids
    answers: list[list[int]] = []

    def work() -> None:
        for _ in range(5):
            answers.append(llm.generate("The moor", SHORT)[0].outputs[0].token_ids)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [expected] * 60


def test_a_forked_child_is_told_to_load_the_model_itself() -> None:
    done = run("""
        llm = LLM(DEMO, device="cpu", threads=2)
        stream = llm.create_completion("The moor", max_tokens=900, ignore_eos=True, stream=True)
        next(stream)
        child = os.fork()
        if child == 0:
            codes = []
            for call in (lambda: llm.generate("a"), lambda: next(stream), llm.close,
                         lambda: llm.logits([1])):
                try:
                    call()
                except subbyte.Error as error:
                    codes.append(error.code)
            stream.close()
            ids = llm.tokenizer.encode("The moor")
            own = LLM(DEMO, device="cpu", threads=1).generate([ids], short)
            print(set(codes), len(codes), len(own[0].outputs[0].token_ids), flush=True)
            sys.exit()  # an end as any other: all objects are freed
        print(os.waitpid(child, 0)[1], next(stream)["object"])
    """)
    assert done.stdout == "{'session.forked'} 4 3\n0 text_completion\n", done.stderr
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_of_a_thread_that_computes_ends() -> None:
    done = run("""
        llm = LLM(DEMO, device="cpu", threads=2)
        threading.Thread(target=lambda: llm.generate("The moor", long), daemon=True).start()
        while llm.engine.num_running == 0:
            pass
        for _ in range(20):
            child = os.fork()
            if child == 0:
                sys.exit()
            assert os.waitpid(child, 0)[1] == 0
        print("ended")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_set_threads_waits_for_its_turn() -> None:
    large = np.random.default_rng(0).standard_normal((1024, 2048), np.float32)
    thread = threading.Thread(target=lambda: subbyte.quantize(large, format="mxfp4"))
    thread.start()
    try:
        subbyte.set_threads(1)
        thread.join(60)
        assert not thread.is_alive()
    finally:
        subbyte.set_threads(0)


def test_a_model_is_closed_while_others_use_it() -> None:
    llm = LLM(DEMO, device="cpu", threads=1)
    codes: list[str] = []

    def work() -> None:
        try:
            while True:
                llm.generate("The moor", SHORT)
        except subbyte.Error as error:
            codes.append(error.code)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    llm.generate("The man", SHORT)
    llm.close()
    for thread in threads:
        thread.join(60)
    assert codes == ["session.closed"] * 3
