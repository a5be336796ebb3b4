"""Matrix.linear of arrays in the memory of a GPU, by torch and by CuPy where that is there."""
from __future__ import annotations

import unittest

import torch

import subbyte

try:
    import cupy
except ImportError:
    cupy = None

WEIGHTS = (torch.randn(96, 512, generator=torch.Generator().manual_seed(46)) * 0.05).numpy()
HALF_STEP = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def why_there_is_none() -> str:
    """Why nothing here can run; empty where it can."""
    if not torch.cuda.is_available():
        return "this machine has no GPU of NVIDIA"
    try:
        subbyte.quantize(WEIGHTS).linear(torch.ones(1, 512, dtype=torch.float16, device="cuda"))
    except subbyte.Error as error:
        if error.code == "cuda.device":
            return str(error)
    return ""


class ByDlpack:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array: torch.Tensor) -> None:
        self._array = array
        self.streams: list[int] = []

    def __dlpack__(self, *, stream: int, **arguments: object) -> object:
        self.streams.append(stream)
        return self._array.__dlpack__(stream=stream, **arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class ByInterface:
    """An array that has __cuda_array_interface__ and nothing else."""

    def __init__(self, array: torch.Tensor, stream: int | None = None) -> None:
        self._array = array
        self._stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {**self._array.__cuda_array_interface__, "version": 3, "stream": self._stream}


@unittest.skipIf(why_there_is_none(), why_there_is_none())
class MatrixOnGpu(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(7)

    def assert_product(self, matrix, y, x, bias=None) -> None:
        """Beside the product in double precision."""
        weights = torch.from_numpy(matrix.dequantize("float64"))
        exact = x.cpu().double() @ weights.T
        size = x.cpu().double().abs() @ weights.abs().T
        if bias is not None:
            exact, size = exact + bias.cpu().double(), size + bias.cpu().double().abs()
        # Weights may be rounded to the type of the activations, twice; the result is, once.
        half = HALF_STEP[x.dtype]
        bound = 2 * half * size + half * exact.abs() + 1e-6
        self.assertEqual((y.dtype, y.shape, y.device), (x.dtype, exact.shape, x.device))
        self.assertTrue(((y.cpu().double() - exact).abs() <= bound).all())

    def test_is_the_product_with_the_weights(self) -> None:
        for format in ("awq", "mxfp4", "nvfp4", "nf4", "fp8"):
            matrix = subbyte.quantize(WEIGHTS, format=format)
            for dtype in HALF_STEP:
                for shape in ((512,), (1, 512), (2, 5, 512), (100, 512)):
                    with self.subTest(format=format, dtype=dtype, shape=shape):
                        x = torch.randn(shape, device="cuda").to(dtype)
                        bias = torch.randn(96, device="cuda").to(dtype)
                        found = matrix.linear(x, bias)
                        self.assertEqual((found.shape, found.device), ((*shape[:-1], 96), 0))
                        self.assert_product(matrix, torch.from_dlpack(found), x, bias)
                        self.assert_product(matrix, torch.from_dlpack(matrix.linear(x)), x)

    def test_out_is_written_where_it_lies(self) -> None:
        matrix = subbyte.quantize(WEIGHTS)
        x = torch.randn(4, 512, device="cuda").half()
        out = torch.full((6, 96), torch.nan, device="cuda").half()
        part = out[1:5]
        self.assertIs(matrix.linear(x, out=part), part)
        self.assert_product(matrix, part, x)
        self.assertTrue(out[[0, 5]].isnan().all())

    def test_arrays_of_others(self) -> None:
        matrix = subbyte.quantize(WEIGHTS)
        x = torch.randn(2, 512, device="cuda").half()
        want = torch.from_dlpack(matrix.linear(x))
        only = ByDlpack(x)
        self.assertTrue(torch.equal(torch.from_dlpack(matrix.linear(only)), want))
        self.assertEqual(only.streams, [1])  # the default stream, as it names none
        for wrap in (ByDlpack, ByInterface):
            out = torch.zeros_like(want)
            target = wrap(out)
            self.assertIs(matrix.linear(wrap(x), out=target), target)
            self.assertTrue(torch.equal(out, want))
        found = matrix.linear(x)
        interface = found.__cuda_array_interface__
        self.assertEqual(interface["data"][0], torch.from_dlpack(found).data_ptr())
        self.assertEqual((interface["shape"], interface["typestr"]), ((2, 96), "<f2"))

    def test_runs_in_the_stream_of_x(self) -> None:
        matrix = subbyte.quantize(WEIGHTS)
        x = torch.randn(4, 512, device="cuda").half()
        want = torch.from_dlpack(matrix.linear(x))
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        results = []  # that are kept: freeing one waits for the GPU
        for wrap in (lambda array: array, lambda array: ByInterface(array, stream.cuda_stream)):
            late = torch.zeros_like(x)
            with torch.cuda.stream(stream):
                torch.cuda._sleep(100_000_000)  # longer than a call
                late.copy_(x)
                found = matrix.linear(wrap(late))
                results.append(found)
                self.assertFalse(stream.query())  # nobody waited
            self.assertEqual(found.stream, stream.cuda_stream)
            # Read in another stream, the default one, which from_dlpack() lets wait.
            self.assertTrue(torch.equal(torch.from_dlpack(found), want))

    def test_is_captured_in_a_graph(self) -> None:
        matrix = subbyte.quantize(WEIGHTS)
        x = torch.randn(2, 512, device="cuda").half()
        out = torch.empty(2, 96, device="cuda").half()
        matrix.linear(x, out=out)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            matrix.linear(x, out=out)  # makes what this stream needs
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                matrix.linear(x, out=out)
                with self.assertRaises(subbyte.Error) as caught:
                    matrix.linear(x)
            self.assertEqual(caught.exception.code, "cuda.capture")
        x.mul_(2)  # which the graph reads where it lies
        graph.replay()
        self.assertTrue(torch.equal(out, torch.from_dlpack(matrix.linear(x))))

    def test_refuses(self) -> None:
        matrix = subbyte.quantize(WEIGHTS)
        x = torch.randn(2, 512, device="cuda").half()
        bias = torch.randn(96).half()
        out = torch.empty(2, 96, device="cuda").half()
        cases = [
            (lambda: matrix.linear(x.float()), "array.dtype"),
            (lambda: matrix.linear(x[:, :256].contiguous()), "array.shape"),
            (lambda: matrix.linear(x[:, 1:]), "array.order"),
            (lambda: matrix.linear(x[:0]), "array.shape"),
            (lambda: matrix.linear(x, bias), "array.device"),
            (lambda: matrix.linear(x, bias.cuda().bfloat16()), "array.dtype"),
            (lambda: matrix.linear(x, bias.cuda()[:95]), "array.shape"),
            (lambda: matrix.linear(x, out=out.cpu()), "array.device"),
            (lambda: matrix.linear(x, out=out.bfloat16()), "array.dtype"),
            (lambda: matrix.linear(x, out=out[:1]), "array.shape"),
            (lambda: matrix.linear(x.cpu().float(), out=out), "array.dtype"),
        ]
        for call, code in cases:
            with self.assertRaises(subbyte.Error) as caught:
                call()
            self.assertEqual(caught.exception.code, code, str(caught.exception))

    def test_calls_leave_no_memory(self) -> None:
        matrix = subbyte.quantize(WEIGHTS)
        x = torch.randn(4096, 512, device="cuda").half()
        torch.from_dlpack(matrix.linear(x))
        free, _ = torch.cuda.mem_get_info()
        for _ in range(300):  # results of 230 MB
            torch.from_dlpack(matrix.linear(x))
        self.assertGreater(torch.cuda.mem_get_info()[0], free - (8 << 20))

    @unittest.skipUnless(cupy, "no CuPy")
    def test_takes_arrays_of_cupy_and_gives_them_back(self) -> None:
        matrix = subbyte.quantize(WEIGHTS)
        x = torch.randn(3, 512, device="cuda").half()
        want = torch.from_dlpack(matrix.linear(x))
        torch.cuda.synchronize()
        for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
            with stream:
                found = cupy.from_dlpack(matrix.linear(cupy.from_dlpack(x)))
                out = cupy.zeros((3, 96), cupy.float16)
                matrix.linear(cupy.from_dlpack(x), out=out)
                self.assertTrue((found == out).all())
            stream.synchronize()
            self.assertTrue(torch.equal(torch.from_dlpack(found), want))


if __name__ == "__main__":
    unittest.main()
