"""What the tests of torch.ops.subbyte share."""

from __future__ import annotations

import unittest

import torch

import subbyte.torch  # noqa: F401  registers the operators

ops = torch.ops.subbyte
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
# Half of a step of each type, relative.
HALF_STEP = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def moved(values):
    """Tensors of a call on the GPU."""
    return tuple(v.cuda() if isinstance(v, torch.Tensor) else v for v in values)


class TorchTest(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(7)

    def assert_product(self, y: torch.Tensor, x: torch.Tensor, w: torch.Tensor,
                       bias: torch.Tensor | None = None,
                       terms: torch.Tensor | None = None) -> None:
        """y is x W^T + bias within the error of sums in f32 and of one rounding.

        `w` are the weights in double precision. `terms` has, for each weight, the magnitudes that
        are added to make it, where it is a sum itself.
        """
        exact = x.double() @ w.T
        size = x.double().abs() @ (w.abs() if terms is None else terms).T
        if bias is not None:
            exact, size = exact + bias.double(), size + bias.double().abs()
        cols = w.shape[1]
        # docs/kernels/accuracy.md: activations are off by 2^-16 at most.
        bound = size * (2.0**-16 + (cols + 40) * 2.0**-24) + exact.abs() * HALF_STEP[y.dtype]
        bound += 2.0**-24 if y.dtype == torch.float16 else 1e-37
        self.assertEqual(y.dtype, x.dtype)
        self.assertEqual(y.shape, exact.shape)
        excess = (y.double() - exact).abs() - bound
        self.assertLessEqual(excess.max().item() if excess.numel() else 0.0, 0.0)

    def assert_refused(self, words: str, function, *arguments, **named) -> None:
        with self.assertRaises(RuntimeError) as caught:
            function(*arguments, **named)
        self.assertIn(words, str(caught.exception))

    def check_operator(self, function, *arguments, **named) -> None:
        """opcheck: schema, fake kernel, tracing."""
        torch.library.opcheck(function, arguments, named)

    def assert_same(self, found, want) -> None:
        """Tensors of the GPU have the bits of those of the CPU."""
        for a, b in zip(*((t,) if isinstance(t, torch.Tensor) else t for t in (found, want)),
                        strict=True):
            self.assertEqual((a.dtype, a.shape, a.device.type), (b.dtype, b.shape, "cuda"))
            self.assertTrue(torch.equal(*(t.cpu().reshape(-1).view(torch.uint8) for t in (a, b))))

    def assert_same_as_the_cpu(self, function, *arguments, **named) -> None:
        self.assert_same(function(*moved(arguments), **named), function(*arguments, **named))

    def assert_same_in_a_graph(self, function, *arguments, **named) -> None:
        want = function(*arguments, **named)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = function(*arguments, **named)
        graph.replay()
        torch.cuda.synchronize()
        self.assert_same(found, [t.cpu() for t in (
            (want,) if isinstance(want, torch.Tensor) else want)])
