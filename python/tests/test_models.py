"""Checkpoints and what is done with whole models, beside the program and numpy."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from conftest import DEMO, GOLDENS, OpenedFiles, read_safetensors

import subbyte

LAYER = "model.layers.0.mlp.down_proj"


def program(*arguments: object) -> dict[str, object]:
    """What a command of the program prints with --json."""
    done = subprocess.run([sys.executable, "-m", "subbyte", *map(str, arguments), "--json"],
                          capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)


def bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model in bf16."""
    folder = tmp_path_factory.mktemp("models") / "dense"
    report = subbyte.convert(DEMO, folder, "bf16", allow_lossy=True)
    assert report["rounded_modules"] > 0 and report["destination"] == str(folder)
    return folder


def test_modules_of_awq_are_what_its_tensors_say() -> None:
    checkpoint = subbyte.open_checkpoint(GOLDENS / "qwen3-awq")
    tensors = read_safetensors(GOLDENS / "qwen3-awq" / "model.safetensors")
    assert checkpoint.quantization == "awq" and LAYER in checkpoint
    assert list(checkpoint.tensors) == sorted(tensors)
    words = {part: tensors[f"{LAYER}.{part}"].view(np.uint32) for part in ("qweight", "qzeros")}
    scales = tensors[f"{LAYER}.scales"].astype(np.float64)
    order = np.array([0, 4, 1, 5, 2, 6, 3, 7]) * 4  # of the eight nibbles of a word in AWQ
    unpacked = {part: (bits[:, :, None] >> order & 15).reshape(bits.shape[0], -1)
                for part, bits in words.items()}
    group = unpacked["qweight"].shape[0] // scales.shape[0]
    zeros, factors = (np.repeat(each, group, axis=0) for each in (unpacked["qzeros"], scales))
    expected = ((unpacked["qweight"].astype(np.int64) - zeros) * factors).T
    matrix = checkpoint[LAYER]
    assert matrix.shape == expected.shape and matrix.element == "u4"
    assert np.array_equal(matrix.dequantize("float64"), expected)
    facts = checkpoint.describe(LAYER)
    assert facts["kind"] == "awq" and facts["shape"] == expected.shape
    assert set(facts["tensors"]) == {f"{LAYER}.{p}" for p in ("qweight", "qzeros", "scales")}
    with pytest.raises(KeyError):
        checkpoint["model.layers.99"]


def test_tensors_lie_in_their_file() -> None:
    checkpoint = subbyte.open_checkpoint(GOLDENS / "qwen3-bf16" / "model.safetensors")
    expected = read_safetensors(GOLDENS / "qwen3-bf16" / "model.safetensors")
    for name, tensor in checkpoint.tensors.items():
        array = tensor.numpy()
        assert array.dtype == np.uint16 and not array.flags.writeable and tensor.dtype == "BF16"
        assert tensor.shape == expected[name].shape
        assert np.array_equal(array, expected[name])
    matrix = checkpoint["lm_head"]
    assert np.array_equal(matrix.dequantize(), bf16(expected["lm_head.weight"]))
    assert np.array_equal(matrix.codes.view(np.uint16), expected["lm_head.weight"])
    # Through DLPack the same tensor is bfloat16.
    again = subbyte.quantize(checkpoint.tensors["lm_head.weight"])
    assert np.array_equal(again.codes, subbyte.quantize(matrix.dequantize()).codes)
    with pytest.raises(KeyError):
        checkpoint.tensors["nothing"]


def test_stacks_of_experts_are_lists() -> None:
    checkpoint = subbyte.open_checkpoint(GOLDENS / "gpt-oss-mxfp4")
    name = next(name for name in checkpoint if name.endswith("experts.down_proj"))
    experts = checkpoint[name]
    blocks = read_safetensors(GOLDENS / "gpt-oss-mxfp4" / "model.safetensors")[name + "_blocks"]
    assert len(experts) == checkpoint.describe(name)["experts"] == blocks.shape[0]
    for matrix, expected in zip(experts, blocks):
        assert np.array_equal(matrix.codes, expected.reshape(matrix.codes.shape))


def test_reports_are_those_of_the_program(dense: Path) -> None:
    assert subbyte.inspect(DEMO) == program("inspect", DEMO)
    assert subbyte.verify(DEMO, checksums=True) == program("verify", DEMO)
    assert subbyte.diff(DEMO, dense) == program("diff", DEMO, dense)
    assert subbyte.diff(DEMO, DEMO)["verdict"] == "same_bytes"


def test_verify_finds_what_is_damaged(dense: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((dense / "config.json").read_bytes())
    data = bytearray((dense / "model.safetensors").read_bytes())
    data[-2:] = b"\xc0\x7f"  # NaN in bf16
    (tmp_path / "model.safetensors").write_bytes(data)
    assert subbyte.verify(dense)["errors"] == 0
    damaged = subbyte.verify(tmp_path)
    assert damaged["errors"] >= 1
    assert any("NaN" in finding["found"] for finding in damaged["findings"])


def test_texts_choose_the_bits_as_in_the_program(tmp_path: Path) -> None:
    model = tmp_path / "model"  # a small one: the texts run through it for each matrix and width
    subprocess.run([sys.executable, "-m", "subbyte", "synth", model, "--arch", "llama", "--shape",
                    "tiny", "--format", "bf16"], check=True, capture_output=True, timeout=60)
    texts = ["The moor was silent.", "Mr. Sherlock Holmes rose from his chair."]
    options = {"format": "gptq", "bits": 3.5, "group_size": 32}
    report = subbyte.quantize(model, tmp_path / "here", **options, texts=texts)
    (tmp_path / "text").write_text("\n".join(texts))
    there = program("quantize", model, tmp_path / "there", "--format", "gptq", "--bits", 3.5,
                    "--group-size", 32, "--text", tmp_path / "text")
    assert report["bits_per_weight"] == there["bits_per_weight"]
    assert subbyte.diff(tmp_path / "here", tmp_path / "there")["verdict"] == "same_bytes"
    subbyte.quantize(model, tmp_path / "blind", **options)
    assert subbyte.diff(tmp_path / "here", tmp_path / "blind")["verdict"] == "different"


def test_quantizes_a_model_as_its_matrices(dense: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    report = subbyte.quantize(dense, tmp_path / "small", format="gptq", bits=3, group_size=64,
                              progress=lambda *numbers: told.append(numbers))
    assert (report["format"], report["group_size"]) == ("gptq", 64)
    assert report["modules_of_bits"] == {"3": report["modules"]}
    assert told[-1][0] == told[-1][1] > 0
    whole = subbyte.open_checkpoint(tmp_path / "small")[LAYER]
    weights = subbyte.open_checkpoint(dense)[LAYER].dequantize()
    alone = subbyte.quantize(weights, format="gptq", bits=3, group_size=64)
    assert np.array_equal(whole.dequantize("float64"), alone.dequantize("float64"))


def test_converts_to_the_bit(tmp_path: Path) -> None:
    report = subbyte.convert(DEMO, tmp_path / "new" / "other", "compressed-tensors")
    assert report["rounded_modules"] == 0 and report["notices"] == []
    assert subbyte.diff(DEMO, tmp_path / "new" / "other")["verdict"] == "same_values"


def test_what_a_caller_says_stays_as_it_is() -> None:
    with pytest.raises(subbyte.Error, match='"x --format y"'):
        subbyte.quantize(np.ones((8, 128), np.float32), format="x --format y")


def test_what_cannot_be_done_leaves_nothing(dense: Path, tmp_path: Path) -> None:
    target = tmp_path / "folder" / "model"
    for call, code in (
            (lambda: subbyte.convert(DEMO, target, "q4_0"), "convert.format"),
            (lambda: subbyte.convert(DEMO, target, "bf16"), "convert.inexact"),
            (lambda: subbyte.quantize(dense, target, format="awq", bits=5), "quantize.bits"),
            (lambda: subbyte.quantize(dense, target, format="awq", ignore=["nothing"]),
             "quantize.ignore"),
            (lambda: subbyte.quantize(tmp_path / "nowhere", target), "model.not_found"),
            (lambda: subbyte.verify(tmp_path / "nowhere"), "model.not_found"),
            (lambda: subbyte.inspect(tmp_path / "nowhere"), "model.not_found"),
            (lambda: subbyte.diff(DEMO, tmp_path / "nowhere"), "model.not_found"),
            (lambda: subbyte.open_checkpoint(tmp_path), "index.no_checkpoint")):
        with pytest.raises(subbyte.Error) as caught:
            call()
        assert caught.value.code == code, str(caught.value)
        assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_long_work_and_leaves_nothing(tmp_path: Path) -> None:
    call = textwrap.dedent(f"""
        import os, signal
        import subbyte
        def interrupt(done, total):
            os.kill(os.getpid(), signal.SIGINT)
        try:
            subbyte.quantize({str(GOLDENS / "qwen3-bf16")!r}, {str(tmp_path / "out")!r},
                             progress=interrupt)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
    assert not (tmp_path / "out").exists()


def test_threads_that_no_machine_has_are_refused(tmp_path: Path) -> None:
    calls = [
        lambda n: subbyte.LLM(DEMO, device="cpu", threads=n),
        lambda n: subbyte.convert(DEMO, tmp_path / "bf16", "bf16", allow_lossy=True, threads=n),
        lambda n: subbyte.verify(DEMO, threads=n),
        lambda n: subbyte.inspect(DEMO, threads=n),
        lambda n: subbyte.diff(DEMO, DEMO, threads=n),
    ]
    for call in calls:
        for threads in (-1, 4097):
            with pytest.raises(subbyte.Error) as caught:
                call(threads)
            assert caught.value.code == "execution.options", str(caught.value)
    assert not (tmp_path / "bf16").exists()


def test_paths_are_those_of_open(tmp_path: Path) -> None:
    assert subbyte.inspect(os.fsencode(DEMO)) == subbyte.inspect(DEMO) == subbyte.inspect(str(DEMO))
    calls = [
        lambda path: subbyte.LLM(path, device="cpu"),
        subbyte.Tokenizer,
        subbyte.open_checkpoint,
        subbyte.inspect,
        lambda path: subbyte.convert(DEMO, tmp_path / path, "bf16", allow_lossy=True),
    ]
    for call in calls:
        with pytest.raises(subbyte.Error, match="null"):
            call("demo\0x")
    assert not list(tmp_path.iterdir())


def test_small_files_of_a_model_are_opened_once(tmp_path: Path) -> None:
    model = shutil.copytree(DEMO, tmp_path / "model")
    opened = OpenedFiles(model)
    subbyte.LLM(model, device="cpu", threads=1)
    counts = opened.take()
    for name in ("config.json", "generation_config.json", "tokenizer.json",
                 "tokenizer_config.json"):
        assert counts[name] == 1, name
