"""Models of the tests, and files read without the library."""
from __future__ import annotations

import collections
import ctypes
import json
import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

import subbyte

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "demo" / "model"
GOLDENS = ROOT / "tests" / "data" / "goldens"

DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "U8": "u1"}


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file; bf16 as its bits."""
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[8 + length + entry["data_offsets"][0]:
                                     8 + length + entry["data_offsets"][1]],
                                DTYPES[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items()}


class OpenedFiles:
    """How often files of a directory are opened, as the system counts (inotify)."""

    OPEN, CLOSE = 0x20, 0x18  # of like events in a row one is kept, so that others stand between

    def __init__(self, directory: Path) -> None:
        system = ctypes.CDLL(None, use_errno=True)
        self._queue = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert system.inotify_add_watch(self._queue, bytes(directory), self.OPEN | self.CLOSE) > 0

    def take(self) -> collections.Counter[str]:
        """Counts since this was made."""
        counts: collections.Counter[str] = collections.Counter()
        data = os.read(self._queue, 1 << 16)
        os.close(self._queue)
        while data:
            _, mask, _, length = struct.unpack_from("iIII", data)
            if mask & self.OPEN:
                counts[data[16:16 + length].rstrip(b"\0").decode()] += 1
            data = data[16 + length:]
        return counts


@pytest.fixture(scope="session")
def llm() -> subbyte.LLM:
    """The demo model."""
    return subbyte.LLM(DEMO, device="cpu", threads=1)


class Golden:
    """A golden model, with the logits and tokens of transformers."""

    def __init__(self, name: str, folder: Path) -> None:
        shutil.copytree(GOLDENS / name, folder, dirs_exist_ok=True)
        # Goldens have none, and their prompts are token ids.
        shutil.copy(DEMO / "tokenizer.json", folder)
        self.config = json.loads((folder / "config.json").read_text())
        reference = read_safetensors(folder / "reference.safetensors")
        self.prompts = [{key: reference[f"prompt{i}.{key}"] for key in ("ids", "logits", "greedy")}
                        for i in range(3)]
        self.llm = subbyte.LLM(folder, device="cpu", isa="scalar", kv_cache_type="f32")

    def tolerance(self, logits: np.ndarray) -> float:
        """The largest difference of logits: tests/support/golden_bound.h derives it."""
        c, tokens = self.config, len(logits)
        heads = c["num_attention_heads"] * c["head_dim"]
        terms = c["hidden_size"] + c["num_hidden_layers"] * (
            2 * c["hidden_size"] + c["intermediate_size"] + c["head_dim"] + tokens + heads)
        size = np.sqrt(np.mean(np.square(logits, dtype=np.float64)))
        return 2 * np.sqrt(2 * np.log(logits.size)) * size * 2.0**-24 * np.sqrt(terms)


@pytest.fixture(scope="session", params=["qwen3-bf16", "qwen3-awq", "qwen3-gptq-act-order"])
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    return Golden(request.param, tmp_path_factory.mktemp("golden"))
