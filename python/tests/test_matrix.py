"""Matrix, beside numpy."""
from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

import subbyte

RANDOM = np.random.default_rng(46)
WEIGHTS = RANDOM.standard_normal((48, 256), np.float32)


def codes_of(matrix: subbyte.Matrix, bits: int) -> np.ndarray:
    """Codes [outputs, inputs] out of the little-endian stream of bits of each row."""
    rows, cols = matrix.shape
    stream = np.unpackbits(matrix.codes, axis=1, bitorder="little")[:, :cols * bits]
    return (stream.reshape(rows, cols, bits) << np.arange(bits)).sum(axis=2)


def test_dequantizes_codes_scales_and_zero_points() -> None:
    for bits, group in ((4, 64), (3, 128), (8, 0)):
        matrix = subbyte.quantize(WEIGHTS, format="gptq", bits=bits, group_size=group,
                                  symmetric=False)
        size = group or 256
        assert (matrix.shape, matrix.group_size) == ((48, 256), size)
        assert matrix.element == f"u{bits}" and f"u{bits}" in repr(matrix)
        scales = matrix.scales.view(np.float16).astype(np.float64)
        zeros = matrix.zeros.view(np.uint8 if bits < 8 else np.uint16)
        codes = codes_of(matrix, bits).reshape(48, -1, size)
        expected = ((codes - zeros[:, :, None]) * scales[:, :, None]).reshape(48, 256)
        assert np.array_equal(matrix.dequantize("float64"), expected)
        assert np.array_equal(matrix.dequantize(), expected.astype(np.float32))
        assert np.array_equal(matrix.dequantize("float16"), expected.astype(np.float16))
        # Half of a step, and what the rounding of the scale takes off the range.
        step = (0.5 + (2**bits - 1) * 2.0**-11) * np.repeat(scales, size, axis=1)
        assert (np.abs(expected - WEIGHTS) <= step).all()


FORMATS = ["awq", "gptq", "gptq_v2", "compressed-tensors", "int8", "nvfp4", "mxfp4_pack_quantized",
           "modelopt_nvfp4", "mxfp4", "nf4", "fp8", "float_quantized", "kbit2", "kbit3", "kbit4",
           "kbit5", "vq2", "vq4"]


def test_the_formats_are_all() -> None:
    with pytest.raises(subbyte.Error, match="expected one of (.*)") as caught:
        subbyte.quantize(WEIGHTS, format="none of them")
    assert all(f"{name}," in f"{caught.value}," for name in FORMATS)
    listed = str(caught.value).partition("expected one of ")[2].split(";")[0]
    assert listed.split(", ") == FORMATS


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", [(256,), (1, 256), (2, 5, 256)])
def test_linear_is_the_product_with_the_weights(format: str, shape: tuple[int, ...]) -> None:
    matrix = subbyte.quantize(WEIGHTS, format=format)
    x = RANDOM.standard_normal(shape, np.float32)
    bias = RANDOM.standard_normal(48, np.float32)
    weights = matrix.dequantize("float64")
    y = matrix.linear(x, bias)
    assert y.shape == (*shape[:-1], 48) and y.dtype == np.float32
    # Each of 256 products and sums rounds by 2^-24 of what is summed at most; activations by 2^-17
    # of themselves where a processor has bf16 alone (docs/kernels/accuracy.md).
    size = np.abs(x.astype(np.float64)) @ np.abs(weights).T + np.abs(bias)
    bound = (257 * 2.0**-24 + 2.0**-16) * size
    assert (np.abs(y - (x.astype(np.float64) @ weights.T + bias)) <= bound).all()


def test_a_format_is_also_an_element_or_the_text_of_a_matrix() -> None:
    for name, text in (("awq", "u4 g128 scale f16 zero u8"), ("u4", "u4 g128 scale f16 zero u8"),
                       ("nf4", "nf4 g64 scale f32"), ("kbit3", "nfl3 g32 scale e4m4")):
        matrix = subbyte.quantize(WEIGHTS, format=name)
        assert matrix.format == text
        assert np.array_equal(subbyte.quantize(WEIGHTS, format=text).codes, matrix.codes)
    # The usual group is halved until it divides the inputs, one that is asked for is not.
    assert subbyte.quantize(WEIGHTS[:, :96].copy(), format="awq").group_size == 32
    with pytest.raises(subbyte.Error, match="96"):
        subbyte.quantize(WEIGHTS[:, :96].copy(), format="awq", group_size=64)
    with pytest.raises(subbyte.Error, match="awq, gptq or w4a16"):
        subbyte.quantize(WEIGHTS, format="int4")


def test_a_name_says_what_was_written(tmp_path: Path) -> None:
    for format, bits, element in (("kbit", 3, "nfl3"), ("kbit", 5, "nfl5"), ("kbit", None, "nfl4"),
                                  ("vq", 4, "vq4"), ("vq", 2, "vq2"), ("kbit3", 3, "nfl3")):
        assert subbyte.quantize(WEIGHTS, format=format, bits=bits).element == element
    for format, bits in (("kbit3", 4), ("kbit4", 3), ("vq4", 2), ("kbit", 6)):
        with pytest.raises(subbyte.Error) as caught:
            subbyte.quantize(WEIGHTS, format=format, bits=bits)
        assert caught.value.code == "quantize.bits" and f"{bits} bits" in str(caught.value)
    source = ROOT / "tests" / "data" / "goldens" / "qwen3-bf16"
    report = subbyte.quantize(source, tmp_path / "three", format="kbit", bits=3)
    assert report["format"] == "kbit3" and report["modules_of_bits"] == {"3": report["modules"]}
    with pytest.raises(subbyte.Error, match="kbit3"):
        subbyte.quantize(source, tmp_path / "four", format="kbit3", bits=4)
    assert not (tmp_path / "four").exists()


def test_linear_of_other_widths_groups_and_zero_points() -> None:
    x = RANDOM.standard_normal((3, 256), np.float32)
    for bits in (3, 4, 8):
        for symmetric in (True, False):
            for group in (32, 64, 0):
                matrix = subbyte.quantize(WEIGHTS, format="gptq", bits=bits, group_size=group,
                                          symmetric=symmetric)
                weights = matrix.dequantize("float64")
                size = np.abs(x.astype(np.float64)) @ np.abs(weights).T
                bound = (257 * 2.0**-24 + 2.0**-16) * size
                for _ in range(2):  # the second product has what the first one has made
                    error = matrix.linear(x) - x.astype(np.float64) @ weights.T
                    assert (np.abs(error) <= bound).all()


def test_out_is_written_and_returned() -> None:
    matrix = subbyte.quantize(WEIGHTS)
    x = RANDOM.standard_normal((4, 256), np.float32)
    out = np.full((6, 48), np.nan, np.float32)
    part = out[1:5]
    assert matrix.linear(x, out=part) is part
    assert np.array_equal(part, matrix.linear(x)) and np.isnan(out[[0, 5]]).all()


class Exchanged:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **arguments: object) -> object:
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_arrays_of_others_are_taken_by_dlpack() -> None:
    matrix = subbyte.quantize(Exchanged(WEIGHTS))
    assert np.array_equal(matrix.codes, subbyte.quantize(WEIGHTS).codes)
    x = RANDOM.standard_normal((2, 256), np.float32)
    out = np.zeros((2, 48), np.float32)
    target = Exchanged(out)
    assert matrix.linear(Exchanged(x), out=target) is target
    assert np.array_equal(out, matrix.linear(x))
    back = np.from_dlpack(matrix.linear(x))
    assert np.array_equal(back, out)


def test_bfloat16_is_the_nearest() -> None:
    matrix = subbyte.quantize(WEIGHTS)
    array = matrix.dequantize("bfloat16")
    assert array.__dlpack_device__()[0] == 1  # the host
    # A dense matrix of it has the same numbers.
    again = subbyte.quantize(array, format="fp8").dequantize()
    bits = matrix.dequantize().view(np.uint32)
    nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)
    assert np.array_equal(again, subbyte.quantize(nearest, format="fp8").dequantize())


def test_quantizes_every_type_of_floats() -> None:
    codes = subbyte.quantize(WEIGHTS.astype(np.float16)).codes
    for dtype in (np.float32, np.float64):
        same = WEIGHTS.astype(np.float16).astype(dtype)
        assert np.array_equal(subbyte.quantize(same).codes, codes)


def test_views_cannot_be_written_and_keep_the_matrix() -> None:
    codes = subbyte.quantize(WEIGHTS).codes  # the matrix itself is gone
    before = codes.copy()
    assert not codes.flags.writeable
    for _ in range(20):
        subbyte.quantize(-WEIGHTS)
    assert np.array_equal(codes, before)


def misaligned(rows: int, cols: int) -> np.ndarray:
    """Zeros in float32, none of which lies at a multiple of 4."""
    return np.zeros(4 * rows * cols + 1, np.uint8)[1:].view(np.float32).reshape(rows, cols)


def test_what_is_no_array_is_refused_by_name() -> None:
    matrix = subbyte.quantize(WEIGHTS)
    for thing in ([1.0] * 256, None, 1.0, "demo/model"):
        with pytest.raises(subbyte.Error, match="x: expected an array"):
            matrix.linear(thing)
        with pytest.raises(subbyte.Error, match="array: expected an array|destination"):
            subbyte.quantize(thing)


def test_what_does_not_fit_is_refused() -> None:
    matrix = subbyte.quantize(WEIGHTS)
    x = np.zeros((2, 256), np.float32)
    read_only = np.zeros((2, 48), np.float32)
    read_only.flags.writeable = False
    both = np.zeros(96, np.float32)
    cases = [
        (lambda: matrix.linear(x[:, :255]), "array.order"),
        (lambda: matrix.linear(x[:, :128].copy()), "array.shape"),
        (lambda: matrix.linear(x[:0]), "array.shape"),
        (lambda: matrix.linear(x.astype(np.float64)), "array.dtype"),
        (lambda: matrix.linear(x.T), "array.order"),
        (lambda: matrix.linear(x, np.zeros(47, np.float32)), "array.shape"),
        (lambda: matrix.linear(x, out=np.zeros((2, 47), np.float32)), "array.shape"),
        (lambda: matrix.linear(x, out=np.zeros((2, 48), np.float64)), "array.dtype"),
        (lambda: matrix.linear(x, out=read_only), "array.dtype"),
        (lambda: matrix.dequantize("int8"), "array.dtype"),
        (lambda: matrix.linear(np.zeros((0, 256), np.float32)), "array.shape"),
        (lambda: matrix.linear(np.zeros((2, 0), np.float32)), "array.shape"),
        (lambda: matrix.linear(x.astype(">f4")), "array.exchange"),
        (lambda: matrix.linear(x, np.zeros(48, np.longdouble)), "array.exchange"),
        (lambda: matrix.linear(misaligned(2, 256)), "array.order"),
        (lambda: matrix.linear(x, out=misaligned(2, 48)), "array.order"),
        (lambda: matrix.linear(x, out=x.reshape(-1)[:96].reshape(2, 48)), "array.overlap"),
        (lambda: matrix.linear(x, both[40:88], out=both.reshape(2, 48)), "array.overlap"),
        (lambda: subbyte.quantize(WEIGHTS.astype(">f4")), "array.exchange"),
        (lambda: subbyte.quantize(misaligned(48, 256)), "array.order"),
        (lambda: subbyte.quantize(WEIGHTS[:0]), "array.shape"),
        (lambda: subbyte.quantize(WEIGHTS[:, :0]), "array.shape"),
        (lambda: subbyte.quantize(WEIGHTS, format="gptq", bits=3.5), "quantize.bits"),
        (lambda: subbyte.set_threads(-1), "execution.options"),
        (lambda: subbyte.set_threads(10**6), "execution.options"),
        (lambda: subbyte.quantize(WEIGHTS[0]), "array.shape"),
        (lambda: subbyte.quantize(WEIGHTS.astype(np.int32)), "array.dtype"),
        (lambda: subbyte.quantize(WEIGHTS, format="q4"), "quantize.format"),
        (lambda: subbyte.quantize(WEIGHTS, bits=9), "quantize.bits"),
        (lambda: subbyte.quantize(WEIGHTS, group_size=7), "quantize.group_size"),
        (lambda: subbyte.quantize(np.full((8, 128), np.nan)), "quantize.not_finite"),
    ]
    for call, code in cases:
        with pytest.raises(subbyte.Error) as caught:
            call()
        assert caught.value.code == code, str(caught.value)


class OnGpu:
    """An array that says that it lies in the memory of a GPU, which is not there."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 99)


class OnGpuByInterface:
    """The same in the words of Numba."""

    __cuda_array_interface__ = {"shape": (2, 256), "typestr": "<f2", "data": (4096, False),
                                "strides": None, "version": 3}


def test_memory_of_a_gpu_is_refused_by_name_where_there_is_none() -> None:
    matrix = subbyte.quantize(WEIGHTS)
    for array in (OnGpu(), OnGpuByInterface()):
        with pytest.raises(subbyte.Error, match="memory of a? ?GPU") as caught:
            matrix.linear(array)
        assert caught.value.code in ("cuda.device", "array.device")
    with pytest.raises(subbyte.Error, match="x: expected an array"):
        matrix.linear("nothing of the kind")


def test_threads_do_not_change_the_result() -> None:
    matrix = subbyte.quantize(WEIGHTS)
    x = RANDOM.standard_normal((9, 256), np.float32)
    expected = matrix.linear(x)
    try:
        for threads in (1, 3):
            subbyte.set_threads(threads)
            assert np.array_equal(matrix.linear(x), expected)
    finally:
        subbyte.set_threads(0)


def test_others_run_meanwhile() -> None:
    large = RANDOM.standard_normal((2048, 4096), np.float32)
    done = threading.Event()

    def work() -> None:
        for _ in range(3):
            subbyte.quantize(large, format="mxfp4")
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    turns = 0
    while not done.is_set():
        time.sleep(0.001)
        turns += 1
    thread.join()
    assert turns > 9  # a call that kept the GIL would let this loop turn between two calls alone


def test_calls_leave_no_memory() -> None:
    matrix = subbyte.quantize(WEIGHTS)
    x = RANDOM.standard_normal((64, 256), np.float32)

    def pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    def call(times: int) -> None:
        for _ in range(times):
            matrix.linear(x)
            matrix.dequantize()
            matrix.codes
            with pytest.raises(subbyte.Error):
                matrix.linear(x[:, 1:])

    call(50)
    before = pages()
    call(1000)  # results of 61 MB
    assert (pages() - before) * os.sysconf("SC_PAGE_SIZE") < 8 << 20


def test_a_forked_child_multiplies() -> None:
    matrix = subbyte.quantize(WEIGHTS)
    x = RANDOM.standard_normal((9, 256), np.float32)
    expected = matrix.linear(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(matrix.linear(x), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
