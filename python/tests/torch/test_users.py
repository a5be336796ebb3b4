"""What users of the operators have, beside what is written down in tests/users/."""

from __future__ import annotations

import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


class Users(unittest.TestCase):
    def test_schemas_and_calls_are_those_that_users_have(self):
        command = [sys.executable, ROOT / "tests/users/users.py", "torch_names"]
        compared = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(compared.returncode, 0, compared.stderr)
