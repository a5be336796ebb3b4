"""The blocks of docs/torch.md, as a reader types them; with_transformers has what all of them want:
the whole package, and transformers."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "torch.md"


def run_blocks(without: str = r"(?!)") -> dict[str, object]:
    """Runs those that do not have a pattern, all if none is given, and returns what they define."""
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        if not re.search(without, block):
            exec(compile(block, "docs/torch.md", "exec"), names)
    return names


class Manual(unittest.TestCase):
    def test_blocks_run(self):
        names = run_blocks(without=r"transformers|subbyte\.flashinfer")
        self.assertEqual(tuple(names["y"].shape), (2, 4096))


if __name__ == "__main__":
    unittest.main()
