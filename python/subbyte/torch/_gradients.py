"""Gradients of operators: of which operands there are some, and how torch gets at them.

A call that wants a gradient, or that is traced, is handed by the kernel that torch runs first
(src/torch_operators/gradients.h) to the operator of the same name in subbyte_gradients. Its kernel
here calls the operator itself, below what looks after gradients, and remembers what the backward
pass needs: packed weights as they are, other tensors only where RULES says so. That pass is an
operator, too, so that torch.compile does not look into it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import torch

from . import _backward, _backward_experts
from ._library import LIBRARY

SPACE = "subbyte_gradients"


class Rule(NamedTuple):
    """Operands with a gradient, x first, and what computes those that are asked for.

    `backward(call)` returns gradients by the names of operands. `needs_x(arguments)` says whether
    it reads x. Operands in `cast` become autocast's type, as those of torch's own linear; where x
    must have the type of scales there are none.
    """

    operands: tuple[str, ...]
    backward: Callable[[_backward.Call], dict[str, torch.Tensor]]
    needs_x: Callable[[SimpleNamespace], bool] = lambda arguments: False
    cast: tuple[str, ...] = ()


def has_activation(arguments: SimpleNamespace) -> bool:
    return arguments.activation is not None


def always(arguments: SimpleNamespace) -> bool:
    return True


LINEAR = ("x", "bias", "residual")
BIASES = ("gate_up_bias", "down_bias")
A = ("A",)
RULES = {
    "linear": Rule(LINEAR, _backward.linear, has_activation, LINEAR),
    "experts": Rule(("x", "router_logits", *BIASES), _backward_experts.experts, always,
                    ("x", *BIASES)),
    "routed_experts": Rule(("x", "expert_weights", *BIASES), _backward_experts.routed_experts,
                           always, ("x", *BIASES)),
    "gemm_4bit": Rule(("A", "bias"), _backward.gemm_4bit, cast=("A", "bias")),
    "gemv_4bit": Rule(A, _backward.gemv_4bit, cast=A),
    "kbit_gemm_prod": Rule(A, _backward.kbit_tiled, cast=A),
    "kbit_scalar_gemv": Rule(A, _backward.kbit_flat, cast=A),
    "kbit_scalar_gemv_tiled": Rule(A, _backward.kbit_tiled, cast=A),
    "kbit_grouped_gemm": Rule(("A_concat",), _backward.kbit_grouped, cast=("A_concat",)),
    "vq_gemm_prod": Rule(A, _backward.vq_tiled, cast=A),
    "vq_scalar_gemv": Rule(A, _backward.vq_flat, cast=A),
    "vq_scalar_gemv_tiled": Rule(A, _backward.vq_tiled, cast=A),
    "awq_gemm": Rule(("input",), _backward.awq_gemm),
    "marlin_gemm": Rule(("a", "b_bias"), _backward.marlin_gemm),
    "gptq_marlin_gemm": Rule(("a", "b_bias"), _backward.gptq_marlin_gemm),
    "_weight_int4pack_mm_for_cpu": Rule(("self",), _backward.int4_for_cpu),
    "_weight_int4pack_mm": Rule(("self",), _backward.int4),
    "_weight_int4pack_mm_with_scales_and_zeros": Rule(("self",), _backward.int4_with_zeros),
}


class Operator:
    """An operator of torch.ops.subbyte, by its schema."""

    def __init__(self, schema: torch.FunctionSchema) -> None:
        self.schema = schema
        self.packet = schema.name.removeprefix("subbyte::")
        self.name = ".".join(filter(None, (self.packet, schema.overload_name)))
        self.names = [argument.name for argument in schema.arguments]
        self.function = getattr(getattr(torch.ops.subbyte, self.packet),
                                schema.overload_name or "default")
        self.rule = RULES.get(self.name)

    def words(self) -> str:
        """Its schema without the namespace."""
        return str(self.schema).removeprefix("subbyte::")

    def filled(self, arguments: tuple) -> tuple:
        """With the defaults that torch leaves out."""
        rest = self.schema.arguments[len(arguments):]
        return (*arguments, *(a.default_value for a in rest if not a.kwarg_only))

    def below(self, arguments: tuple, named: dict) -> object:
        with torch._C._AutoDispatchBelowAutograd():
            return self.function(*arguments, **named)

    def call(self, arguments: tuple, named: dict) -> object:
        if torch.is_grad_enabled():
            given = {**dict(zip(self.names, arguments, strict=False)), **named}
            wanting = [name for name, value in given.items()
                       if isinstance(value, torch.Tensor) and value.requires_grad]
            if wanting:
                self.check(wanting)
                return Product.apply(self, *self.cast(self.filled(arguments)))
        return self.below(arguments, named)

    def check(self, wanting: list[str]) -> None:
        """RuntimeError where an operand wants a gradient that there is not."""
        operands = self.rule.operands if self.rule is not None else ()
        missing = [name for name in wanting if name not in operands]
        if not missing and torch._C._are_functorch_transforms_active():
            raise RuntimeError(f"{self.name}: a gradient is wanted within torch.func, where this "
                               "operator has none; Tensor.backward has it [torch.gradient]")
        if not missing:
            return
        has = f"it has those of {', '.join(operands)}; " if operands else ""
        sibling = self.packet.removesuffix("_out").rstrip("_")
        if not operands and sibling in RULES:
            has = f"{sibling} has one; "
        raise RuntimeError(
            f"{self.name}: {missing[0]} requires a gradient, which this operator does not have; "
            f"{has}call it within torch.no_grad() or with {missing[0]}.detach() [torch.gradient]")

    def cast(self, arguments: tuple) -> tuple:
        """Operands in the type of autocast where that is on."""
        device = arguments[0].device.type
        if not torch.is_autocast_enabled(device):
            return arguments
        dtype = torch.get_autocast_dtype(device)
        return tuple(value.to(dtype) if name in self.rule.cast and value is not None else value
                     for name, value in zip(self.names, arguments, strict=True))

    def nothing(self) -> object:
        """Results of a call that is refused; nobody sees them."""
        results = [torch.empty(0) for _ in self.schema.returns]
        return results[0] if len(results) == 1 else tuple(results) or None

    def kernel(self, *arguments: object, **named: object) -> object:
        try:
            return self.call(arguments, named)
        except Exception as failure:
            line = str(failure) or repr(failure)
            LIBRARY.subbyte_torch_refuse_call(line.encode())
            return self.nothing()


class Product(torch.autograd.Function):
    """An operator with a rule, between its operands and its result."""

    @staticmethod
    def forward(ctx, operator: Operator, *arguments: object) -> torch.Tensor:
        result, rule = operator.below(arguments, {}), operator.rule
        given = SimpleNamespace(**dict(zip(operator.names, arguments, strict=True)))
        x = rule.operands[0]
        unread = {"residual"} if rule.needs_x(given) else {"residual", x}
        is_saved = [isinstance(value, torch.Tensor) and name not in unread
                    for name, value in vars(given).items()]
        ctx.operator, ctx.cols = operator, getattr(given, x).shape[-1]
        ctx.save_for_backward(*(v for v, saved in zip(arguments, is_saved, strict=True) if saved))
        # Places of what is saved; the rest as it is, without the tensors that nothing reads.
        ctx.rest = [(saved, None if isinstance(value, torch.Tensor) else value)
                    for value, saved in zip(arguments, is_saved, strict=True)]
        return result

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple:
        operator = ctx.operator
        wants = dict(zip(operator.names, ctx.needs_input_grad[1:], strict=True))
        found = {"residual": grad} if wants.get("residual") else {}
        computed = [name for name in operator.rule.operands if name != "residual"]
        wanted = [wants[name] for name in computed]
        if any(wanted):
            saved = iter(ctx.saved_tensors)
            arguments = [next(saved) if is_saved else value for is_saved, value in ctx.rest]
            backward = getattr(getattr(torch.ops, SPACE), f"{operator.packet}_backward").default
            gradients = backward(grad, ctx.cols, wanted, *arguments)
            found.update(zip((n for n in computed if wants[n]), gradients, strict=True))
        return (None, *(found.get(name) for name in operator.names))


class Backward:
    """The operator that computes gradients of another one."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.name = f"{operator.packet}_backward"
        self.computed = [name for name in operator.rule.operands if name != "residual"]

    def words(self) -> str:
        """Its schema: any tensor of the operator's may be absent."""
        arguments = self.operator.words().partition("(")[2].rpartition(") ->")[0]
        loose = ["Tensor? " + part.removeprefix("Tensor ") if part.startswith("Tensor ") else part
                 for part in arguments.split(", ")]
        return (f"{self.name}(Tensor grad, SymInt cols, bool[] wanted, {', '.join(loose)}) -> "
                "Tensor[]")

    def call_of(self, grad: torch.Tensor, cols: int, wanted: list[bool],
                arguments: tuple) -> _backward.Call:
        names = [n for n, is_wanted in zip(self.computed, wanted, strict=True) if is_wanted]
        given = zip(self.operator.names, self.operator.filled(arguments), strict=True)
        return _backward.Call(grad, cols, names, SimpleNamespace(**dict(given)))

    def kernel(self, grad: torch.Tensor, cols: int, wanted: list[bool],
               *arguments: object) -> list[torch.Tensor]:
        call = self.call_of(grad, cols, wanted, arguments)
        with torch.no_grad(), torch.autocast(grad.device.type, enabled=False):
            found = self.operator.rule.backward(call)
        shapes = self.fake(grad, cols, wanted, *arguments)
        return [found[name].reshape(like.shape).to(like.dtype).contiguous()
                for name, like in zip(call.wanted, shapes, strict=True)]

    def fake(self, grad: torch.Tensor, cols: int, wanted: list[bool],
             *arguments: object) -> list[torch.Tensor]:
        call = self.call_of(grad, cols, wanted, arguments)
        tensors = [getattr(call.given, name) for name in call.wanted]
        return [grad.new_empty((*grad.shape[:-1], cols)) if t is None else t.new_empty(t.shape)
                for t in tensors]

    def refuse_another(self, grad: torch.Tensor, *rest: object) -> list[torch.Tensor]:
        """The kernel where gradients are looked after: there is no gradient of a gradient."""
        tensors = [grad, *(value for value in rest if isinstance(value, torch.Tensor))]
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            raise RuntimeError(f"{self.operator.name}: a second gradient is wanted, which this "
                               "operator does not have; leave create_graph out [torch.gradient]")
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(getattr(torch.ops, SPACE), self.name).default(grad, *rest)


def register() -> torch.library.Library:
    """Defines the operators of subbyte_gradients; the library lives as long as they shall."""
    library = torch.library.Library(SPACE, "FRAGMENT")
    operators = [Operator(schema) for schema in torch._C._jit_get_all_schemas()
                 if schema.name.startswith("subbyte::")]
    for operator in operators:
        library.define(operator.words())
        library.impl(operator.name, operator.kernel, "Autograd")
        if operator.rule is None:
            continue
        backward = Backward(operator)
        library.define(backward.words())
        library.impl(backward.name, backward.kernel, "CompositeExplicitAutograd")
        library.impl(backward.name, backward.refuse_another, "Autograd")
        torch.library.register_fake(f"{SPACE}::{backward.name}", backward.fake, lib=library)
    return library


REGISTERED = register()
