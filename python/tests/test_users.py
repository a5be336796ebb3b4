"""What users of the package have, beside what is written down in tests/users/."""
from __future__ import annotations

import subprocess
import sys

from conftest import ROOT


def test_public_names_are_those_that_users_have() -> None:
    command = [sys.executable, ROOT / "tests/users/users.py", "python_names"]
    compared = subprocess.run(command, capture_output=True, text=True)
    assert compared.returncode == 0, compared.stderr
