"""What users of the operators have, beside what is written down in tests/users/."""

from __future__ import annotations

import subprocess
import sys
import unittest
from pathlib import Path

import torch

from support import TorchTest

USERS = Path(__file__).resolve().parents[3] / "tests/users"


class Users(TorchTest):
    def test_schemas_and_calls_are_those_that_users_have(self):
        command = [sys.executable, USERS / "users.py", "torch_names"]
        compared = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(compared.returncode, 0, compared.stderr)

    def test_opcheck_of_variants_that_write(self):
        sys.path.insert(0, str(USERS))
        import torch_cases

        for operator, arguments, named in torch_cases.variants():
            # torch cannot compare tensors of 8-bit floats, so the other checks have to do.
            has_e4m3 = any(isinstance(value, torch.Tensor) and value.dtype == torch.float8_e4m3fn
                           for value in arguments)
            tests = ["test_autograd_registration", "test_faketensor"]
            with self.subTest(operator=str(operator)):
                torch.library.opcheck(operator, arguments, named, test_utils=(
                    tests if has_e4m3 else [*tests, "test_schema"]))


if __name__ == "__main__":
    unittest.main()
