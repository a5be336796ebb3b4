"""Gradients of products beside those of dense weights in double precision, and what has none."""

from __future__ import annotations

import functools
import sys
import unittest

import torch

import subbyte.torch
from subbyte.torch._gradients import RULES
from support import FLOATS, HALF_STEP, TorchTest, moved, ops
from test_compatible import F
from test_cuda import has_kernels, to_gpu
from test_cuda_operators import Calls, expert_arguments
from test_experts import EXPERTS, HIDDEN
from test_layouts import U4B8, awq_words, gptq_words
from test_users import USERS

DEVICES = ("cpu", "cuda") if has_kernels() else ("cpu",)
KINDS = ("u4", "i4", "u3", "u8", "i5", "mxfp4", "nvfp4", "nf4", "nfl3", "fp8")
# Rows, columns and tokens; columns that no kernel reads in 8s among them.
SHAPES = ((16, 128, 1), (16, 128, 7), (40, 256, 3), (64, 128, 64), (1, 128, 2), (8, 384, 300),
          (136, 128, 5), (24, 512, 0), (128, 128, 16), (48, 640, 9), (16, 896, 33), (72, 256, 1),
          (256, 128, 12), (2, 1024, 4), (32, 1152, 8), (104, 128, 65), (56, 256, 31), (8, 128, 128),
          (200, 384, 2), (64, 2048, 6))


def wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().double()


class GradientTest(TorchTest):
    def assert_gradient(self, found: torch.Tensor, grad: torch.Tensor, w: torch.Tensor,
                        rounded: bool = False) -> None:
        """`found` is grad W within the error of sums in f32 and of one rounding; on GPUs, and with
        `rounded` on CPUs, weights are rounded to the type of x first, and a sum of pieces after."""
        exact, size = wide(grad) @ w, wide(grad).abs() @ w.abs()
        half, rows = HALF_STEP[found.dtype], w.shape[0]
        bound = size * (rows + 4) * 2.0**-24 + exact.abs() * half
        if rounded or found.is_cuda:
            bound += size * 2 * half
        bound += 2.0**-23 if found.dtype == torch.float16 else 1e-37
        self.assertEqual(found.shape, exact.shape)
        excess = (wide(found) - exact).abs() - bound
        self.assertLessEqual(excess.max().item() if excess.numel() else 0.0, 0.0)

    def assert_sum(self, found: torch.Tensor, grad: torch.Tensor) -> None:
        exact, size = wide(grad).sum(0), wide(grad).abs().sum(0)
        bound = size * (grad.shape[0] + 1) * 2.0**-24 + exact.abs() * HALF_STEP[found.dtype] + 1e-37
        self.assertTrue(((wide(found) - exact).abs() <= bound).all())


class Linear(GradientTest):
    def check(self, kind: str, shape: tuple[int, int, int], device: str, run=None) -> None:
        rows, cols, tokens = shape
        weight = subbyte.torch.quantize(torch.randn(rows, cols), kind)
        w = subbyte.torch.dequantize(weight).double()
        weight = weight if device == "cpu" else to_gpu(weight)
        for dtype in FLOATS:
            x, bias, residual, grad = (
                torch.randn(*sizes, device=device).to(dtype)
                for sizes in ((tokens, cols), (rows,), (tokens, rows), (tokens, rows)))
            operands = [t.requires_grad_() for t in (x, bias, residual)]
            y = (run or subbyte.torch.linear)(x, weight, bias, residual)
            y.backward(grad)
            self.assertEqual([t.grad.dtype for t in operands], [dtype] * 3)
            self.assert_gradient(x.grad, grad, w)
            self.assert_sum(bias.grad, grad)
            self.assertTrue(torch.equal(residual.grad, grad))

    def test_every_format_in_every_shape(self):
        for device in DEVICES:
            for kind in KINDS:
                for shape in SHAPES:
                    with self.subTest(device=device, kind=kind, shape=shape):
                        self.check(kind, shape, device)

    def test_under_compile(self):
        run = torch.compile(lambda *operands: subbyte.torch.linear(*operands), fullgraph=True,
                            backend="aot_eager", dynamic=True)
        for device in DEVICES:
            for kind in KINDS:
                with self.subTest(device=device, kind=kind):
                    torch._dynamo.reset()
                    self.check(kind, SHAPES[1], device, run)

    def test_under_autocast(self):
        """x and bias become autocast's type, as those of torch's own linear."""
        for device in DEVICES:
            weight = subbyte.torch.quantize(torch.randn(32, 128), "u4")
            w, weight = subbyte.torch.dequantize(weight), weight if device == "cpu" else to_gpu(
                weight)
            for dtype in (torch.float32, torch.float16):
                x, bias = (torch.randn(*sizes, device=device).to(dtype).requires_grad_()
                           for sizes in ((5, 128), (32,)))
                with torch.autocast(device, dtype=torch.bfloat16):
                    y = subbyte.torch.linear(x, weight, bias)
                    theirs = torch.nn.functional.linear(x, w.to(device), bias)
                    grad = torch.randn_like(y)
                    y.backward(grad)  # and the backward pass is what it is without
                self.assertEqual(y.dtype, theirs.dtype)
                self.assertEqual((x.grad.dtype, bias.grad.dtype), (dtype, dtype))
                self.assert_gradient(x.grad.bfloat16(), grad, w.double())
                with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16):
                    self.assertEqual(subbyte.torch.linear(x.half(), weight).dtype, torch.float16)

    def test_what_a_weight_is_beside_codes(self):
        """Act-order, offsets, a codebook, dense weights with a factor, columns within a byte."""
        order = torch.randperm(64, dtype=torch.int32)
        quantize = subbyte.torch.quantize
        grouped = quantize(torch.randn(24, 64), "i4", 32)
        offsets = grouped._replace(zeros=torch.randn(24, 2).half(),
                                   format="i4 g32 scale f16 offset f16")
        dense = subbyte.torch.PackedWeight(torch.randn(24, 64).bfloat16(), None, None, "bf16",
                                           torch.tensor(0.37))
        for weight in (grouped._replace(input_order=order), offsets,
                       offsets._replace(input_order=order), dense,
                       dense._replace(input_order=order), quantize(torch.randn(24, 41), "u3", 0),
                       quantize(torch.randn(24, 64), "nfl2",
                                codebook=torch.tensor([-1.0, -0.3, 0.1, 0.9]))):
            w = subbyte.torch.dequantize(weight).double()
            x = torch.randn(2, 3, w.shape[1], requires_grad=True)
            y = subbyte.torch.linear(x, weight)
            grad = torch.randn_like(y)
            y.backward(grad)
            self.assert_gradient(x.grad.flatten(0, 1), grad.flatten(0, 1), w)

    def test_weights_in_pieces(self):
        """More rows than one piece has, the last piece with fewer."""
        from subbyte.torch import _backward
        piece, _backward.PIECE = _backward.PIECE, 64 * 128
        try:
            for kind in ("u4", "i5", "nvfp4"):
                self.check(kind, (200, 128, 3), "cpu")
        finally:
            _backward.PIECE = piece

    def test_activations(self):
        """Beside torch's own gradients of the formulas in double precision."""
        def gate_of(sums, in_turns):
            return (sums[:, ::2], sums[:, 1::2]) if in_turns else sums.chunk(2, -1)

        def gated(function):
            def formula(sums, in_turns):
                gate, up = gate_of(sums, in_turns)
                return function(gate) * up
            return formula

        def clamped(sums, in_turns):
            gate, up = gate_of(sums, in_turns)
            gate, up = gate.clamp(max=2.0), up.clamp(-2.0, 2.0)
            return gate * torch.sigmoid(1.5 * gate) * (up + 1)

        def gelu(sums, in_turns=False):
            return torch.nn.functional.gelu(sums, approximate="tanh")

        formulas = {"relu": lambda s, _: s.relu(), "gelu": gelu, "clamped_gate": clamped,
                    "silu_gate": gated(torch.nn.functional.silu), "gelu_gate": gated(gelu)}
        weight = subbyte.torch.quantize(torch.randn(48, 128) * 0.1, "u4", 32)
        w = subbyte.torch.dequantize(weight).double()
        for name, formula in formulas.items():
            for in_turns in (False, True):
                with self.subTest(name=name, in_turns=in_turns):
                    x, bias = torch.randn(5, 128), torch.randn(48)
                    own, other = ([t.detach().to(number).clone().requires_grad_()
                                   for t in (x, bias)] for number in (torch.float32, torch.float64))
                    y = subbyte.torch.linear(own[0], weight, own[1], None, name, in_turns=in_turns,
                                             alpha=1.5, limit=2.0)
                    grad = torch.randn_like(y)
                    y.backward(grad)
                    formula(other[0] @ w.T + other[1], in_turns).backward(grad.double())
                    for a, b in zip(own, other, strict=True):
                        # Sums of 128 terms in f32, of which the activation's slope is taken.
                        self.assertTrue(torch.allclose(a.grad.double(), b.grad, rtol=2e-4,
                                                       atol=2e-4))

    def test_saves_the_packed_weight_alone_and_with_an_activation_x(self):
        weight = subbyte.torch.quantize(torch.randn(64, 256), "u4")
        packed = {t.data_ptr() for t in weight if isinstance(t, torch.Tensor)}
        x = torch.randn(32, 256, requires_grad=True)
        for activation in (None, "silu_gate"):
            saved = []
            with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t,
                                                          lambda t: t):
                subbyte.torch.linear(x, weight, activation=activation)
            own = packed if activation is None else packed | {x.data_ptr()}
            self.assertEqual({t.data_ptr() for t in saved}, own)

    def test_adapters_train_as_beside_dense_weights(self):
        """Two frozen layers, each with an adapter of rank 4, of packed and of dense weights."""
        frozen = [subbyte.torch.quantize(torch.randn(*sizes) * 0.2, "nf4")
                  for sizes in ((128, 64), (64, 128))]
        x, target = torch.randn(64, 64), torch.randn(64, 64)

        def losses(products) -> list[float]:
            torch.manual_seed(3)
            down = [torch.nn.Parameter(torch.randn(4, k) * 0.1) for k in (64, 128)]
            up = [torch.nn.Parameter(torch.zeros(n, 4)) for n in (128, 64)]
            optimizer = torch.optim.Adam([*down, *up], lr=0.02)
            found = []
            for _ in range(60):
                h = x
                for i, product in enumerate(products):
                    h = product(h) + h @ down[i].T @ up[i].T
                    h = torch.tanh(h) if i == 0 else h
                loss = (h - target).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
            return found

        dense = [subbyte.torch.dequantize(w) for w in frozen]
        packed = losses([lambda h, w=w: subbyte.torch.linear(h, w) for w in frozen])
        plain = losses([lambda h, w=w: h @ w.T for w in dense])
        self.assertLess(packed[-1], 0.7 * packed[0])
        self.assertAlmostEqual(packed[0], plain[0], delta=1e-4 * plain[0])
        self.assertAlmostEqual(packed[-1], plain[-1], delta=1e-2 * plain[-1])


class Mixtures(GradientTest):
    def expected(self, x, weights, chosen, gate_up, down, biases, clamp):
        """A mixture in double precision, for torch's own gradients."""
        in_turns, alpha, limit, offset = clamp
        y = torch.zeros_like(x)
        for t in range(x.shape[0]):
            for i, e in enumerate(chosen[t].tolist()):
                sums = gate_up[e] @ x[t] + biases[0][e]
                gate, up = (sums[::2], sums[1::2]) if in_turns else sums.chunk(2)
                gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
                inner = gate * torch.sigmoid(alpha * gate) * (up + offset)
                y[t] = y[t] + weights[t, i] * (down[e] @ inner + biases[1][e])
        return y

    def test_experts(self):
        for kind, in_turns, of_all, clamp in (
                ("u4", False, False, (1.0, None, 0.0)), ("i5", True, True, (1.0, None, 0.0)),
                ("mxfp4", True, False, (1.702, 0.8, 1.0)), ("nvfp4", False, True, (1.0, None, 0.0)),
                ("nf4", False, False, (1.0, None, 0.0))):
            x, logits, stacks, named = expert_arguments(kind, 9, torch.float32)
            alpha, limit, offset = clamp
            exact = [self.matrices(stacks[i:i + 4], named[f"{name}_factors"])
                     for i, name in ((0, "gate_up"), (4, "down"))]
            for routed in (False, True):
                with self.subTest(kind=kind, routed=routed):
                    operands = [t.clone().requires_grad_() for t in (
                        x, logits, named["gate_up_bias"], named["down_bias"])]
                    wide_ones = [t.detach().double().requires_grad_() for t in operands]
                    shares = torch.softmax(wide_ones[1], -1)
                    chosen = torch.topk(wide_ones[1], 2).indices
                    weights = shares.gather(-1, chosen)
                    if not of_all:
                        weights = weights / weights.sum(-1, keepdim=True)
                    rest = (named["gate_up_factors"], named["down_factors"], *operands[2:], alpha,
                            limit, offset)
                    if routed:
                        own = torch.softmax(operands[1], -1).gather(-1, chosen)
                        own = own if of_all else own / own.sum(-1, keepdim=True)
                        y = ops.routed_experts(operands[0], own, chosen, *stacks, in_turns, *rest)
                    else:
                        y = ops.experts(operands[0], operands[1], *stacks, 2, in_turns, of_all,
                                        *rest)
                    want = self.expected(
                        wide_ones[0], weights, chosen, *exact, wide_ones[2:],
                        (in_turns, alpha, float("inf") if limit is None else limit, offset))
                    grad = torch.randn_like(y)
                    y.backward(grad)
                    want.backward(grad.double())
                    for a, b in zip(operands, wide_ones, strict=True):
                        size = b.grad.abs().max().item()
                        self.assertLess((a.grad.double() - b.grad).abs().max().item(), 1e-4 * size)

    def matrices(self, stack, factors):
        parts = [subbyte.torch.PackedWeight(*(None if t is None else t[e] for t in stack[:3]),
                                            stack[3], None if factors is None else factors[e])
                 for e in range(EXPERTS)]
        return torch.stack([subbyte.torch.dequantize(part).double() for part in parts])

    def test_adapters_before_and_after_experts_under_compile(self):
        x, logits, stacks, named = expert_arguments("u4", 6, torch.float32)

        def loss(x, logits):
            return ops.experts(x * 2, logits, *stacks, 2, **named).square().sum()

        found = []
        for run in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
            own = [t.clone().requires_grad_() for t in (x, logits)]
            run(*own).backward()
            found.append([t.grad for t in own])
        for a, b in zip(*found, strict=True):
            self.assertTrue(torch.equal(a, b))
        self.assertEqual(found[0][0].shape, (6, HIDDEN))


class Others(GradientTest):
    """Products with the names of other software: x's gradient is the transposed of their map."""

    def products(self):
        k, n = 128, 128
        x = torch.randn(3, k).half()
        q, zeros = torch.randint(0, 16, (k, n)), torch.randint(0, 16, (2, n))
        scales = (torch.rand(2, n) + 0.5).half()
        words = ops.gptq_marlin_repack(gptq_words(q, 4), k, n, 4)
        space, end = torch.zeros(8, dtype=torch.int32), (U4B8, 3, n, k)
        yield from Calls().products()
        packed, absmax = ops.quantize_4bit(torch.randn(n, k), 64, "fp4", torch.uint8)
        nested = (torch.randint(0, 256, absmax.shape, dtype=torch.uint8), torch.rand(256),
                  torch.tensor(0.2))
        yield "gemm_4bit", (x.float(), packed, [n, k], torch.rand(1), 64, "fp4", None, *nested)
        odd = ops.quantize_4bit(torch.randn(5, 41), 64, "nf4", torch.uint8)
        yield "gemm_4bit", (torch.randn(4, 41), odd[0], [5, 41], odd[1], 64, "nf4")
        yield "awq_gemm", (x, awq_words(q), scales, awq_words(zeros), 8)
        yield "marlin_gemm", (x, None, words, None, scales, None, None, None, space, *end)
        yield "gptq_marlin_gemm", (x, None, words, None, scales, None, None, None, None, space,
                                   *end)

    def weights_of(self, function, arguments, row: int) -> torch.Tensor:
        """[N, K] by products of that row of x when it is one of the unit matrix."""
        x = torch.zeros_like(arguments[0])
        columns = []
        for k in range(x.shape[1]):
            x[row], x[row, k] = 0, 1
            columns.append(function(x, *arguments[1:])[row].double())
        return torch.stack(columns, 1)

    def test_every_product(self):
        names = set()
        for name, arguments in self.products():
            names.add(name)
            function = getattr(ops, name)
            # Rows of a group GEMM are of experts, the second of none.
            rows = (0, 1) if name == "kbit_grouped_gemm" else (0,)
            weights = [self.weights_of(function, arguments, row) for row in rows]
            for device in DEVICES:
                with self.subTest(name=name, device=device):
                    given = arguments if device == "cpu" else moved(arguments)
                    x = given[0].clone().requires_grad_()
                    y = function(x, *given[1:])
                    grad = torch.randn_like(y)
                    y.backward(grad)
                    self.assertEqual(x.grad.dtype, x.dtype)
                    for row, w in zip(rows, weights, strict=True):
                        end = row + 1 if len(rows) > 1 else None
                        self.assert_gradient(x.grad[row:end], grad[row:end], w, rounded=True)
        self.assertEqual(names | {"linear", "experts", "routed_experts"}, set(RULES))

    def test_every_product_under_compile(self):
        for name, arguments in self.products():
            with self.subTest(name=name):
                torch._dynamo.reset()  # which compiles a lambda few times alone
                function, found = getattr(ops, name), []
                run = torch.compile(lambda *given: function(*given), fullgraph=True,
                                    backend="aot_eager")
                for call in (function, run):
                    x = arguments[0].clone().requires_grad_()
                    call(x, *arguments[1:]).square().sum().backward()
                    found.append(x.grad)
                self.assertTrue(torch.equal(*found))

    def test_biases(self):
        """Those of Marlin are in an order of their own."""
        for name, place in (("gemm_4bit", 6), ("marlin_gemm", 3), ("gptq_marlin_gemm", 3)):
            given = next([*rest] for found, rest in self.products() if found == name)
            given += [None] * (place + 1 - len(given))
            function, x, n = getattr(ops, name), given[0], 128
            bias = given[place] = torch.randn(n).to(x.dtype).requires_grad_()
            y = function(*given)
            grad = torch.randn_like(y)
            y.backward(grad)
            given[0], added = torch.zeros_like(x), []
            for unit in torch.eye(n, dtype=x.dtype):
                given[place] = unit
                added.append(function(*given)[0].argmax())
            self.assert_sum(bias.grad, grad[:, torch.stack(added)])


def tensors_of(arguments) -> list[str]:
    return [name for name, value in arguments.items()
            if isinstance(value, torch.Tensor) and value.is_floating_point()]


class Refusals(TorchTest):
    def cases(self):
        """Calls of all operators by the names of arguments; tests/users sees to all being there."""
        sys.path.insert(0, str(USERS))
        import torch_cases
        for overload, arguments, named in torch_cases.cases():
            names = [a.name for a in overload._schema.arguments]
            yield overload, {**dict(zip(names, arguments, strict=False)), **named}

    def test_an_operand_without_a_gradient_is_refused_by_its_name(self):
        for overload, given in self.cases():
            operator = str(overload).removeprefix("subbyte.").removesuffix(".default")
            rule = RULES.get(operator)
            for name in tensors_of(given):
                if rule is not None and name in rule.operands:
                    continue
                with self.subTest(operator=operator, name=name):
                    wanting = {**given, name: given[name].clone().requires_grad_()}
                    self.assert_refused(f"{operator}: {name} requires a gradient",
                                        functools.partial(overload, **wanting))
                    with torch.no_grad():
                        overload(**wanting)

    def test_says_what_helps(self):
        weight = subbyte.torch.quantize(torch.randn(16, 64), "u4", 32)
        x = torch.randn(2, 64, requires_grad=True)
        self.assert_refused("linear has one; call it within torch.no_grad() or with x.detach() "
                            "[torch.gradient]", ops.linear_out, x, *weight, out=torch.empty(2, 16))
        scales = weight.scales.clone().requires_grad_()
        self.assert_refused("it has those of x, bias, residual; ", subbyte.torch.linear, x,
                            weight._replace(scales=scales))
        # What is wrong with arguments comes first here, too.
        self.assert_refused("x: expected a last dimension of 64, found f32 [2, 50]",
                            subbyte.torch.linear, torch.randn(2, 50, requires_grad=True), weight)

    def test_no_second_gradient(self):
        weight = subbyte.torch.quantize(torch.randn(16, 64), "u4", 32)
        x = torch.randn(2, 64, requires_grad=True)
        y = subbyte.torch.linear(x, weight).square().sum()
        self.assert_refused("linear: a second gradient is wanted", torch.autograd.grad, y, x,
                            create_graph=True)

    def test_none_in_transforms_of_functions(self):
        weight = subbyte.torch.quantize(torch.randn(16, 64), "u4", 32)
        self.assert_refused("linear: a gradient is wanted within torch.func", torch.func.grad(
            lambda x: subbyte.torch.linear(x, weight).sum()), torch.randn(2, 64))

    def test_weights_that_train_can_be_quantized(self):
        """Results of quantizers are constants."""
        w = torch.nn.Parameter(torch.randn(16, 64))
        packed = subbyte.torch.quantize(w, "u4", 32)
        self.assertFalse(any(t.requires_grad for t in packed if isinstance(t, torch.Tensor)))
        self.assertEqual(F.quantize_4bit(w)[0].dtype, torch.uint8)


class Kernels(TorchTest):
    """Calls that go past the kernel of a device are seen by who asked for it."""

    def setUp(self) -> None:
        super().setUp()
        self.weight = subbyte.torch.quantize(torch.randn(16, 64), "u4", 32)
        self.x = torch.randn(2, 64)

    def test_a_dispatch_mode_sees_the_operator(self):
        seen = []

        class Mode(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), named=None):
                seen.append(str(function))
                return function(*arguments, **(named or {}))

        for wants in (False, True):
            seen.clear()
            x = self.x.clone().requires_grad_(wants)
            with Mode():
                y = subbyte.torch.linear(x, self.weight)
            self.assertEqual((seen, y.requires_grad), (["subbyte.linear.default"], wants))

    def test_a_negated_view_is_its_numbers(self):
        z = torch.complex(torch.zeros_like(self.x), self.x)
        self.assertTrue(z.conj().imag.is_neg())
        self.assertTrue(torch.equal(subbyte.torch.linear(z.conj().imag, self.weight),
                                    subbyte.torch.linear(-self.x, self.weight)))

    def test_what_is_on_no_device_has_a_shape(self):
        y = ops.linear(self.x.to("meta"), *(t.to("meta") if isinstance(t, torch.Tensor) else t
                                            for t in self.weight))
        self.assertEqual((y.device.type, y.shape), ("meta", (2, 16)))

    def test_exported_programs_name_the_operator(self):
        class Module(torch.nn.Module):
            def forward(module, x):
                return subbyte.torch.linear(x, self.weight)

        program = torch.export.export(Module(), (self.x,))
        called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
        self.assertIn("subbyte.linear.default", called)
        self.assertFalse(any("subbyte_gradients" in name for name in called))

    def test_checkpointed_activations(self):
        """The forward pass once more in the backward one."""
        from torch.utils.checkpoint import checkpoint
        found = []
        for run in (lambda f, x: f(x), lambda f, x: checkpoint(f, x, use_reentrant=False)):
            x = self.x.clone().requires_grad_()
            run(lambda x: subbyte.torch.linear(x * 2, self.weight).square(), x).sum().backward()
            found.append(x.grad)
        self.assertTrue(torch.equal(*found))


if __name__ == "__main__":
    unittest.main()
