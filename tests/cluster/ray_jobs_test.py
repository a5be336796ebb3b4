#!/usr/bin/env python3
"""Jobs over many prompts and checkpoints on a local cluster of Ray, beside the same one by one.

    ray_jobs_test.py [TEST...]

Wants an interpreter with the package and with Ray: ./dev cluster-test ray makes one.
"""
from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

import ray
from ray_cluster import FOLDER, environment, kill, model, start_ray, wait_until

import subbyte
import subbyte.ray

NUM_MODELS = 20
PLACE = Path(FOLDER.name)


def models() -> list[Path]:
    return [model("llama", f"model{i:02}", "--seed", str(i), "--format", "bf16")
            for i in range(NUM_MODELS)]


def pairs(folder: str) -> list[tuple[Path, Path]]:
    return [(source, PLACE / folder / source.name) for source in models()]


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes()
            for file in folder.rglob("*") if file.is_file()}


def without_time(report: dict) -> dict:
    return {name: value for name, value in report.items() if name not in ("seconds", "destination")}


class Checkpoints(unittest.TestCase):
    def compare(self, rows: list[dict], serial: list[dict], folder: str, beside: str) -> None:
        """The same files to the bit, and the same reports."""
        self.assertEqual([row["error"] for row in rows], [None] * len(rows))
        self.assertEqual([without_time(row["report"]) for row in rows],
                         [without_time(report) for report in serial])
        self.assertEqual([row["destination"] for row in rows],
                         [str(destination) for _, destination in pairs(folder)])
        found = files_of(PLACE / folder)
        self.assertEqual(found, files_of(PLACE / beside))
        self.assertEqual(len({content for name, content in found.items()
                              if name.endswith(".safetensors")}), NUM_MODELS)

    def test_many_are_quantized_as_one_by_one(self) -> None:
        rows = subbyte.ray.quantize(pairs("awq"), format="awq", group_size=32)
        serial = [subbyte.quantize(*pair, format="awq", group_size=32)
                  for pair in pairs("awq-serial")]
        self.compare(rows, serial, "awq", "awq-serial")

    def test_many_are_converted_and_verified_as_one_by_one(self) -> None:
        sources = [PLACE / "mxfp4" / source.name for source in models()]
        for row in subbyte.ray.quantize(pairs("mxfp4"), format="mxfp4", threads=2):
            self.assertIsNone(row["error"])
        made = [(source, PLACE / "bf16" / source.name) for source in sources]
        rows = subbyte.ray.convert(made, "bf16")
        serial = [subbyte.convert(source, PLACE / "bf16-serial" / source.name, "bf16")
                  for source in sources]
        self.compare(rows, serial, "bf16", "bf16-serial")
        rows = subbyte.ray.verify(sources, checksums=True)
        self.assertEqual([without_time(row["report"]) for row in rows],
                         [without_time(subbyte.verify(source, checksums=True))
                          for source in sources])

    def test_one_that_fails_is_a_row(self) -> None:
        good, other = models()[:2]
        there = PLACE / "rows"
        rows = subbyte.ray.quantize([(PLACE / "nowhere", there / "a"), (good, there / "b")],
                                    format="awq", group_size=32)
        self.assertEqual((rows[0]["report"], rows[0]["code"]), (None, "model.not_found"))
        self.assertEqual(rows[1]["report"]["format"], "awq")
        rows = subbyte.ray.quantize([(other, there / "b")], format="awq", group_size=32)
        with self.assertRaises(subbyte.Error) as error:
            subbyte.quantize(other, there / "b", format="awq", group_size=32)
        self.assertEqual((rows[0]["error"], rows[0]["code"]),
                         (str(error.exception), error.exception.code))

    def test_a_process_that_is_killed_loses_nothing(self) -> None:
        """One of two tasks is killed as soon as it is seen; Ray runs it once more."""
        options = {"format": "gptq", "bits": 3.4, "group_size": 32, "texts": "A dark night. " * 200}
        there = PLACE / "killed"
        made = [(source, there / source.name) for source in models()[:2]]
        rows: list[dict] = []
        job = threading.Thread(target=lambda: rows.extend(subbyte.ray.quantize(made, **options)))
        job.start()
        wait_until(lambda: bool(self.working()))
        killed = self.working()[0]
        time.sleep(0.5)  # it takes four seconds
        kill(killed)
        job.join()
        for row, (source, destination) in zip(rows, made):
            self.assertIsNone(row["error"])
            alone = there / f"{source.name}-alone"
            subbyte.quantize(source, alone, threads=1, **options)
            self.assertEqual(files_of(destination), files_of(alone))

    @staticmethod
    def working() -> list[int]:
        """Processes that run a task for a checkpoint."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "cmdline").read_bytes().startswith(b"ray::_row"):
                    found.append(int(process.name))
            except OSError:
                pass
        return found


class Prompts(unittest.TestCase):
    PARAMS = subbyte.SamplingParams(temperature=0, max_tokens=8)

    def test_answers_are_those_of_the_model(self) -> None:
        chats = [[{"role": "user", "content": f"Question {i}"}] for i in range(50)]
        chats[7].insert(0, {"role": "system", "content": "Be brief."})
        rows = ray.data.from_items([{"id": i, "messages": chat} for i, chat in enumerate(chats)])
        answers = subbyte.ray.answer(rows, model(), self.PARAMS, replicas=2, batch_size=8,
                                     batch_invariant=True).take_all()
        llm = subbyte.LLM(model(), device="cpu", batch_invariant=True)
        alone = llm.chat(chats, self.PARAMS)
        self.assertEqual(len(answers), 50)
        for row in answers:
            output = alone[row["id"]]
            self.assertEqual(row["answer"], output.outputs[0].text)
            self.assertEqual(row["finish_reason"], output.outputs[0].finish_reason)
            self.assertEqual(row["prompt_tokens"], len(output.prompt_token_ids))
            self.assertEqual(row["completion_tokens"], len(output.outputs[0].token_ids))
            self.assertIsNone(row["error"])

    def test_one_that_is_refused_is_a_row(self) -> None:
        rows = ray.data.from_items([{"prompt": "Once"}, {"prompt": "x" * 20_000}, {"prompt": "A"}])
        answers = subbyte.ray.answer(rows, model(), self.PARAMS, column="prompt").take_all()
        errors = {row["prompt"][:4]: row["error"] for row in answers}
        self.assertIsNone(errors["Once"])
        self.assertIsNone(errors["A"])
        self.assertIn("context", errors["xxxx"])


class Commands(unittest.TestCase):
    @staticmethod
    def run_command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "subbyte.ray", *words], capture_output=True,
                              text=True, timeout=120, env=environment())

    def test_checkpoints(self) -> None:
        first, second = (str(source) for source in models()[:2])
        to = str(PLACE / "by-command")
        made = self.run_command("quantize", first, second, "--to", to, "--format", "awq",
                                "--group-size", "32")
        self.assertEqual(made.returncode, 0, made.stderr)
        rows = [json.loads(line) for line in made.stdout.splitlines()]
        self.assertEqual([row["destination"] for row in rows],
                         [f"{to}/{Path(source).name}" for source in (first, second)])
        good = self.run_command("verify", rows[0]["destination"], first)
        self.assertEqual(good.returncode, 0, good.stderr)
        twice = self.run_command("quantize", first, f"/other/{Path(first).name}", "--to", to,
                                 "--format", "awq")
        self.assertEqual(twice.returncode, 2)
        bad = self.run_command("verify", first, "/nowhere")
        self.assertEqual(bad.returncode, 1)
        self.assertEqual(json.loads(bad.stdout.splitlines()[1])["code"], "model.not_found")

    def test_answers(self) -> None:
        source = PLACE / "questions.jsonl"
        source.write_text("".join(json.dumps({"messages": [
            {"role": "user", "content": f"Question {i}"}]}) + "\n" for i in range(5)))
        made = self.run_command("answer", str(model()), str(source), str(PLACE / "answers"),
                                "--max-tokens", "8")
        self.assertEqual(made.returncode, 0, made.stderr)
        lines = [json.loads(line) for file in (PLACE / "answers").iterdir()
                 for line in file.read_text().splitlines()]
        self.assertEqual(len(lines), 5)
        self.assertTrue(all(line["answer"] and not line["error"] for line in lines))

    def test_help_has_examples(self) -> None:
        self.assertIn("examples:", self.run_command("--help").stdout)
        wrong = self.run_command("verify", "a", "--", "--parallel", "4")
        self.assertEqual(wrong.returncode, 2)


def main() -> int:
    start_ray()
    try:
        result = unittest.main(exit=False).result
    finally:
        ray.shutdown()
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
