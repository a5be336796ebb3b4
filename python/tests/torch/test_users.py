"""What users of the operators have, beside what is written down in tests/users/."""

from __future__ import annotations

import subprocess
import sys
import unittest
from pathlib import Path

USERS = Path(__file__).resolve().parents[3] / "tests/users"


class Users(unittest.TestCase):
    def test_schemas_and_calls_are_those_that_users_have(self):
        command = [sys.executable, USERS / "users.py", "torch_names"]
        compared = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(compared.returncode, 0, compared.stderr)


if __name__ == "__main__":
    unittest.main()
