#!/usr/bin/env python3
"""Ranks that are processes, started by mpirun, beside ranks that are threads of one process.

    mpi_test.py PROGRAM [--all] [TEST...]

--all: every golden, and 50 moments at which a rank is killed; else what takes a minute. Seeds are
fixed, but for when a process is where at a moment.
"""
from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "data" / "goldens"
GGUF = ROOT / "tests" / "data" / "gguf" / "qwen3" / "model.gguf"
DEMO = ROOT / "demo" / "model"
PROGRAM = str(Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else "subbyte"
ALL = "--all" in sys.argv
#: Of each way in which something is divided one.
SHORT = ["autoawq", "qwen2-moe-bf16", "gpt-oss-mxfp4", "bamba-bf16", "deepseek-v3-fp8", "lfm2-bf16"]
#: A golden that one rank refuses, too.
REFUSED = "gptqmodel-gpt-oss"
NUM_KILLS = 50 if ALL else 4
SECONDS = 10  # in which a group ends with one of its ranks
IDS = "1,5,9,90,17,33,41,7,2,88,94,3,6,27,11,12"
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MPIRUN = ["mpirun", "--oversubscribe"]


RANKS = "--tensor-parallel"
STAGES = "--pipeline-parallel"


def on_ranks(ranks: int, *arguments: object, by: str = RANKS) -> list[str]:
    """A command on so many processes, of a thread each."""
    return [*MPIRUN, "-n", str(ranks), *program(ranks, *arguments, by=by)]


def program(ranks: int, *arguments: object, by: str = RANKS) -> list[str]:
    return [PROGRAM, *map(str, arguments), "--device", "cpu", by, str(ranks), "--threads", "1"]


def in_one_process(ranks: int, *arguments: object, by: str = RANKS) -> list[str]:
    """The same with ranks that are threads."""
    return [*program(ranks, *arguments, by=by)[:-1], str(ranks)]


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300,
                          stdin=subprocess.DEVNULL, check=False, **options)


def lines_of_ours(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("subbyte: error")]


def rank_of(process: int) -> int | None:
    """The rank of a process of the program that mpirun has started."""
    try:
        if Path(os.readlink(f"/proc/{process}/exe")) != Path(PROGRAM):
            return None
        for variable in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
            if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                return int(variable.partition(b"=")[2])
    except OSError:
        pass
    return None


def ranks_that_run() -> dict[int, int]:
    """Process ids by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        rank = rank_of(int(folder.name))
        if rank is not None:
            found[rank] = int(folder.name)
    return found


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, env=ENVIRONMENT, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


class Goldens(unittest.TestCase):
    """Processes and threads give the same bits, as both add in the order of ranks. Stages add in no
    other order than one machine does."""

    def test_logits_of_stages_are_those_of_one(self) -> None:
        goldens = [GOLDENS / name for name in ("gpt-oss-mxfp4", "bamba-bf16", "deepseek-v3-fp8")]
        for model in (*goldens, GGUF):
            with self.subTest(model), tempfile.TemporaryDirectory() as folder:
                out = [Path(folder) / "one", Path(folder) / "processes"]
                ask = ["logits", model, "--ids", IDS, "--out"]
                one = run(program(1, *ask, out[0]))
                self.assertEqual(one.returncode, 0, one.stderr)
                many = run(on_ranks(2, *ask, out[1], by=STAGES))
                self.assertEqual(many.returncode, 0, many.stderr)
                self.assertEqual(out[0].read_bytes(), out[1].read_bytes())

    def test_logits_are_those_of_threads(self) -> None:
        names = sorted(p.name for p in GOLDENS.iterdir() if (p / "config.json").exists()
                       and p.name != REFUSED)
        for name in names if ALL else SHORT:
            for ranks in (2, 4):
                with self.subTest(name, ranks=ranks), tempfile.TemporaryDirectory() as folder:
                    out = [Path(folder) / "threads", Path(folder) / "processes"]
                    ask = ["logits", GOLDENS / name, "--ids", IDS, "--out"]
                    one = run(in_one_process(ranks, *ask, out[0]))
                    self.assertEqual(one.returncode, 0, one.stderr)
                    many = run(on_ranks(ranks, *ask, out[1]))
                    self.assertEqual(many.returncode, 0, many.stderr)
                    self.assertEqual(out[0].read_bytes(), out[1].read_bytes())

    def test_a_text_is_that_of_one_rank(self) -> None:
        ask = ["run", DEMO, "-p", "The moor was silent, but", "-n", 40, "--temp", 0,
               "--color", "never"]
        alone = run(program(1, *ask))
        self.assertEqual(alone.returncode, 0, alone.stderr)
        for ranks, by in ((2, RANKS), (4, RANKS), (3, STAGES)):
            many = run(on_ranks(ranks, *ask, by=by))
            self.assertEqual(many.returncode, 0, many.stderr)
            self.assertEqual(many.stdout, alone.stdout)


    def test_no_layers_on_a_gpu_are_those_of_the_cpu(self) -> None:
        ask = ["run", DEMO, "-p", "The moor was silent, but", "-n", 8, "--temp", 0, "--color",
               "never"]
        alone = run(program(1, *ask))
        command = [*on_ranks(2, *ask), "--gpu-layers", "0"]
        command[command.index("cpu")] = "cuda"
        many = run(command)
        self.assertEqual(many.returncode, 0, many.stderr)
        self.assertEqual(many.stdout, alone.stdout)


class Output(unittest.TestCase):
    """Open MPI 4 gives each rank a terminal of its own, which is not the user's."""

    def test_a_text_has_no_colours(self) -> None:
        ask = ["run", DEMO, "-p", "The moor", "-n", 4, "--temp", 0, "--quiet"]
        with unittest.mock.patch.dict(ENVIRONMENT, TERM="xterm"):
            many = run(on_ranks(2, *ask))
        self.assertEqual(many.returncode, 0, many.stderr)
        self.assertNotIn("\x1b", many.stdout)

    def test_a_table_is_whole(self) -> None:
        many = run(on_ranks(2, "bench", DEMO, "-p", 1, "-n", 0, "-r", 1, "--quiet"))
        self.assertEqual(many.returncode, 0, many.stderr)
        self.assertIn("| backend |", many.stdout)

    def test_a_list_of_threads_is_refused_before_the_work(self) -> None:
        command = on_ranks(2, "bench", DEMO, "-p", 1, "-n", 0, "-r", 1)
        many = run([*command[:-1], "1,2"])  # what --threads has
        self.assertEqual(many.returncode, 2, many.stderr)
        self.assertEqual(many.stdout, "")
        self.assertIn("--threads: processes of mpirun load a model once", many.stderr)


class Server(unittest.TestCase):
    """Requests side by side share pages, which every rank copies."""

    def ask(self, address: str, prompt: str) -> str:
        connection = http.client.HTTPConnection(address, timeout=60)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": prompt, "max_tokens": 24, "temperature": 0, "n": 3}),
            {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        return "|".join(choice["text"] for choice in answer["choices"])

    def answers(self, command: list[str]) -> list[str]:
        with started(command) as server:
            for line in server.stderr:
                if "ready on" in line:
                    break
            address = line.split("http://")[1].strip()
            prompts = ["Holmes laughed. " * 12, "Holmes laughed. " * 12 + "I", "The door", "It was"]
            found = [self.ask(address, prompt) for prompt in prompts]
            os.kill(ranks_that_run().get(0, server.pid), signal.SIGTERM)
            self.assertEqual(server.wait(30), 0, server.stderr.read())
            return found

    def test_answers_are_those_of_threads(self) -> None:
        ask = ["serve", DEMO, "--port", 0, "--log", "none", "--batch-invariant"]
        for by in (RANKS, STAGES):
            self.assertEqual(self.answers(on_ranks(2, *ask, by=by)),
                             self.answers(in_one_process(2, *ask, by=by)))


class Gpus(unittest.TestCase):
    """GPUs that are ranks in processes of their own, and in one."""

    def test_a_text_is_that_of_one_process(self) -> None:
        devices = run([PROGRAM, "devices", "--json"]).stdout
        if '"cuda:1"' not in devices:
            self.skipTest("two GPUs are ranks of two processes, and this machine has fewer")
        ask = ["run", DEMO, "-p", "The moor was silent, but", "-n", 40, "--temp", 0,
               "--color", "never"]
        here, there = in_one_process(2, *ask), on_ranks(2, *ask)
        for command in (here, there):
            command[command.index("cpu")] = "cuda"
        alone, many = run(here), run(there)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        self.assertEqual(many.returncode, 0, many.stderr)
        self.assertEqual(many.stdout, alone.stdout)


class Manual(unittest.TestCase):
    """Lines of docs/cluster.md, with the processes of this host for those of several."""

    def lines(self) -> list[list[str]]:
        text = (ROOT / "docs" / "cluster.md").read_text()
        found = [shlex.split(line) for line in text.splitlines()
                 if line.startswith("mpirun ") and "--device cpu" in line]
        for words in found:
            if "--host" in words:
                del words[words.index("--host"):words.index("--host") + 2]
            words[words.index("subbyte")] = PROGRAM
            words[words.index("./model")] = str(DEMO)
            words[words.index("--bind-to") + 1] += ":overload-allowed"
            words.insert(1, "--oversubscribe")
        return found

    def test_lines_do_what_they_say(self) -> None:
        commands = self.lines()
        self.assertEqual([words[words.index(PROGRAM) + 1] for words in commands], ["run", "serve"])
        self.assertEqual(run(commands[0]).returncode, 0)
        with started([*commands[1], "--port", "0"]) as server:
            self.assertTrue(any("ready on" in line for line in server.stderr))


class Refusals(unittest.TestCase):
    def expect_line(self, command: list[str], expected: str, **options: object) -> None:
        result = run(command, **options)
        self.assertNotEqual(result.returncode, 0)
        lines = lines_of_ours(result.stderr)
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertIn(expected, lines[0])
        self.assertEqual(result.stdout, "")

    def test_a_library_that_does_not_see_its_mpirun(self) -> None:
        for by in (RANKS, STAGES):
            command = ["env", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
                       *program(2, "run", DEMO, "-p", "x", by=by)]
            self.expect_line(command, "as 1 of 2, and MPI knows it as 0 of 1: is libmpi.so.40")

    def test_another_number_of_ranks(self) -> None:
        command = on_ranks(2, "run", DEMO, "-p", "x")
        command[command.index("--tensor-parallel") + 1] = "3"
        self.expect_line(command, "mpirun has started 2 processes, and 3 ranks are asked for")

    def test_another_number_of_stages(self) -> None:
        command = on_ranks(2, "run", DEMO, "-p", "x", by=STAGES)
        command[command.index(STAGES) + 1] = "3"
        self.expect_line(command, "mpirun has started 2 processes, and 3 stages are asked for")

    def test_a_stage_beside_a_rank(self) -> None:
        ask = ["run", DEMO, "-p", "x"]
        command = [*MPIRUN, "-n", "1", *program(2, *ask), ":",
                   "-n", "1", *program(2, *ask, by=STAGES)]
        self.expect_line(command, "rank 1 of 2: expected what rank 0 is, a rank on the CPU, "
                         "found a stage on the CPU")

    def test_gpus_are_stages_of_one_process(self) -> None:
        command = on_ranks(2, "run", DEMO, "-p", "x", by=STAGES)
        command[command.index("cpu")] = "cuda"
        self.expect_line(command, "GPUs are stages of one process")

    @unittest.skipUnless(ALL, "takes a minute")
    def test_a_process_that_never_comes(self) -> None:
        for by in (RANKS, STAGES):
            ask = program(2, "run", DEMO, "-p", "x", by=by)
            self.expect_line([*MPIRUN, "-n", "1", *ask, ":", "-n", "1", "true"],
                             "another process of mpirun has not come")

    def test_a_cache_that_no_memory_holds(self) -> None:
        command = on_ranks(2, "serve", DEMO, "--port", "0", "--cache-positions", "99999999999")
        self.expect_line(command, "in as many machines as processes beside the weights")

    def test_a_model_beside_another_one(self) -> None:
        self.expect_line(on_ranks(2, "perplexity", DEMO, __file__, "--compare", DEMO),
                         "--compare runs two models in one process: leave mpirun out")

    def test_a_model_that_is_not_there(self) -> None:
        self.expect_line(on_ranks(2, "run", "no/model", "-p", "x"), "no/model")

    def test_an_option_that_is_not_there(self) -> None:
        self.expect_line(on_ranks(2, "run", DEMO, "--no-such-option"), "--no-such-option")

    def test_another_model_on_a_rank(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for host in ("a", "b"):
                shutil.copytree(DEMO, Path(folder) / host / "model")
            config = Path(folder) / "b" / "model" / "config.json"
            config.write_text(config.read_text() + "\n")
            ask = program(2, "run", "model", "-p", "x")
            command = [*MPIRUN, "-wdir", f"{folder}/a", "-n", "1", *ask, ":",
                       "-wdir", f"{folder}/b", "-n", "1", *ask]
            self.expect_line(command, "rank 1 of 2: the model")

    def test_another_gguf_file_on_a_rank(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for host in ("a", "b"):
                (Path(folder) / host).mkdir()
                shutil.copy(GGUF, Path(folder) / host / "model.gguf")
            with (Path(folder) / "b" / "model.gguf").open("r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"x")
            ask = program(2, "run", "model.gguf", "-p", "x")
            command = [*MPIRUN, "-wdir", f"{folder}/a", "-n", "1", *ask, ":",
                       "-wdir", f"{folder}/b", "-n", "1", *ask]
            self.expect_line(command, "rank 1 of 2: the model")

    def test_a_model_that_one_rank_lacks(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(DEMO, Path(folder) / "a" / "model")
            (Path(folder) / "b").mkdir()
            ask = program(2, "run", "model", "-p", "x")
            command = [*MPIRUN, "-wdir", f"{folder}/a", "-n", "1", *ask, ":",
                       "-wdir", f"{folder}/b", "-n", "1", *ask]
            self.expect_line(command, "rank 1 of 2: ")

    def test_another_program_on_a_rank(self) -> None:
        text = run([PROGRAM, "--version"]).stdout
        commit = text.split("commit ")[1].split()[0].rstrip(",)").encode()
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder) / "subbyte"
            other.write_bytes(Path(PROGRAM).read_bytes().replace(commit, b"x" * len(commit)))
            other.chmod(0o755)
            ask = program(2, "run", DEMO, "-p", "x")
            command = [*MPIRUN, "-n", "1", *ask, ":", "-n", "1", str(other), *ask[1:]]
            self.expect_line(command, "rank 1 of 2: the program")

    def test_other_arithmetic_on_a_rank(self) -> None:
        for words in (["--batch-invariant"], ["--activations", "bf16"]):
            ask = program(2, "run", DEMO, "-p", "x")
            command = [*MPIRUN, "-n", "1", *ask, ":", "-n", "1", *ask, *words]
            self.expect_line(command, "rank 1 of 2: the arithmetic is not that of rank 0")

    def test_a_prompt_that_the_first_rank_refuses(self) -> None:
        self.expect_line(on_ranks(2, "run", DEMO, "-p", ""), "the prompt is empty")

    def test_numbers_that_are_not_finite(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model"
            shutil.copytree(DEMO, model)
            with (model / "model.safetensors").open("r+b") as file:
                size = int.from_bytes(file.read(8), "little")
                tensor = json.loads(file.read(size))["model.layers.1.self_attn.k_norm.weight"]
                begin, end = tensor["data_offsets"]
                file.seek(8 + size + begin)
                file.write(b"\xff\x7b" * ((end - begin) // 2))  # 65504
            ask = ["run", model, "-p", "x", "--temp", 0, "--quiet"]
            for by, expected in ((RANKS, "those of layers.1.self_attn"),
                                 (STAGES, "those of a stage in another process [sampling")):
                result = run(on_ranks(2, *ask, by=by))
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(expected, lines_of_ours(result.stderr)[0])

    @unittest.skipIf(run(["unshare", "--mount", "true"]).returncode != 0,
                     "a library is hidden by a mount, which this user or container may not")
    def test_no_library_of_mpi(self) -> None:
        found = run(["sh", "-c", "ldconfig -p | grep -o '/.*libmpi.so.40$'"]).stdout.split()
        self.assertTrue(found)
        hide = "".join(f"mount --bind /dev/null {os.path.realpath(path)} && " for path in found)
        command = ["env", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "unshare", "--mount",
                   "sh", "-c", hide + 'exec "$@"', "sh", *program(2, "run", DEMO, "-p", "x")]
        self.expect_line(command, "apt-get install openmpi-bin")


class LeftOut(unittest.TestCase):
    """Without --tensor-parallel each process does all of it, and one line says so."""

    def errors_of(self, *arguments: object) -> list[str]:
        result = run([*MPIRUN, "-n", "2", PROGRAM, *map(str, arguments)])
        self.assertEqual(result.returncode, 0, result.stderr)
        return [line for line in result.stderr.splitlines() if "mpirun has started" in line]

    def test_a_model_on_each_process(self) -> None:
        ask = ["run", DEMO, "-p", "x", "-n", 1, "--device", "cpu", "--threads", 1]
        said = self.errors_of(*ask)
        self.assertEqual(len(said), 1, said)
        self.assertIn("2 processes", said[0])
        self.assertEqual(self.errors_of(*ask, "--quiet"), [])

    def test_a_command_that_is_never_divided(self) -> None:
        self.assertEqual(self.errors_of("inspect", DEMO), [])


class Kills(unittest.TestCase):
    """kill -9 of a rank at any moment: mpirun ends, names it, and nothing is left."""

    def errors_of_end(self, process: subprocess.Popen[str]) -> str:
        start = time.monotonic()
        _, errors = process.communicate(timeout=SECONDS)
        while ranks_that_run():
            self.assertLess(time.monotonic() - start, SECONDS, "a rank is left")
            time.sleep(0.05)
        return errors

    def test_ranks_at_random_moments(self) -> None:
        moments = random.Random(64)
        ask = ["bench", DEMO, "--repetitions", 1000]
        for i in range(NUM_KILLS):
            # Before MPI has begun mpirun 4.1 sometimes reaps nobody, and waits (docs/cluster.md).
            rank, wait = i % 3, moments.uniform(0.7, 2.7)
            with self.subTest(rank=rank, seconds=wait), started(on_ranks(3, *ask)) as process:
                while len(ranks_that_run()) < 3:
                    time.sleep(0.01)
                time.sleep(wait)
                os.kill(ranks_that_run()[rank], signal.SIGKILL)
                self.assertIn(f"rank {rank}", self.errors_of_end(process))
                self.assertGreater(process.returncode, 0)

    @unittest.skipUnless(ALL, "takes a minute")
    def test_one_that_is_stopped(self) -> None:
        for ranks in (2, 3):
            ask = ["serve", DEMO, "--port", 0, "--log", "none"]
            with self.subTest(ranks), started(on_ranks(ranks, *ask)) as process:
                while len(ranks_that_run()) < ranks:
                    time.sleep(0.01)
                time.sleep(1)
                os.kill(ranks_that_run()[1], signal.SIGSTOP)
                errors = process.communicate(timeout=60 + 2 * SECONDS)[1]
                self.assertIn(f"rank 1 of {ranks}: has given no sign of life", errors)
                self.assertEqual(ranks_that_run(), {})

    def test_mpirun_itself(self) -> None:
        with started(on_ranks(3, "bench", DEMO, "--repetitions", 1000)) as process:
            while len(ranks_that_run()) < 3:
                time.sleep(0.01)
            time.sleep(1)
            process.kill()
            self.errors_of_end(process)
            self.assertEqual(process.returncode, -signal.SIGKILL)


if __name__ == "__main__":
    if shutil.which("mpirun") is None:
        print("mpi_test.py: no mpirun on this machine: openmpi-bin has one")
        sys.exit(77)  # skipped
    unittest.main(argv=[sys.argv[0], *(a for a in sys.argv[2:] if a != "--all")], verbosity=2)
