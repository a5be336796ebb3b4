#!/usr/bin/env python3
"""tools/llama_cpp/families.py with programs that only look as if they measured.

    families_test.py FAMILIES
"""
from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FAMILIES = Path(sys.argv.pop(1))
# Of `synth` a config without a word of rope, of `bench` two rates.
PROGRAM = """#!/bin/sh
if [ "$1" = synth ]; then
  mkdir -p "$2"
  echo '{"model_type": "lfm2", "num_hidden_layers": 1}' > "$2/config.json"
else
  echo n_prompt,n_gen,n_depth,avg_ts,gpu_info,cpu_info,n_threads,activations,build_commit
  echo 64,0,0,100,,a processor,1,int8,0
fi
"""


class Families(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.program = self.folder / "program"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def run_with(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, FAMILIES, "--program", self.program, "--folder",
             self.folder / "models", "--rounds", "1", *arguments],
            capture_output=True, text=True, check=False)

    def test_figures_of_tiny_models_are_not_those_of_real_ones(self):
        results = self.folder / "results.json"
        command = ["--only", "gpu", "nemotron-h", "--results", str(results)]
        tiny = self.run_with("--try", *command)
        self.assertEqual(tiny.returncode, 0, tiny.stderr)
        self.assertEqual(len(json.loads(results.read_text())), 1)
        real = self.run_with("--seconds", "0", *command)
        self.assertEqual(real.returncode, 3, real.stdout)
        self.assertIn("left out for want of time", real.stderr)

    def test_what_no_machine_measures_is_refused_in_one_line(self):
        for command in ([], ["--make"]):
            done = self.run_with(*command, "--only", "gpu", "gemma3")
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"\Afamilies.py: --only gpu gemma3, expected [^\n]*\n\Z")

    def test_a_config_that_lacks_a_key_leaves_the_others_and_the_table(self):
        done = self.run_with("--try", "--only", "avx2", "lfm2")
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, r"\Alfm2 1.2b, Q4_0, tiny, avx2: random_gguf.py: "
                         r"config.json of lfm2, expected [^\n]*, found none\n\Z")
        self.assertIn("|model|machine|test|", done.stdout)


if __name__ == "__main__":
    unittest.main()
