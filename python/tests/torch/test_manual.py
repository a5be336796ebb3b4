"""The blocks of docs/torch.md, as a reader types them."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "torch.md"


class Manual(unittest.TestCase):
    def test_blocks_run(self):
        blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
        self.assertGreaterEqual(len(blocks), 1)
        names: dict[str, object] = {}
        for block in blocks:
            exec(compile(block, "docs/torch.md", "exec"), names)
        self.assertEqual(tuple(names["y"].shape), (2, 4096))


if __name__ == "__main__":
    unittest.main()
