"""Calls of operators on the CPU beside those that the tests have under the name of opcheck: those
that the tests compare on GPUs, and the variants that write into an argument."""
from __future__ import annotations

from collections.abc import Iterator

import torch
from test_cuda_operators import Calls, expert_arguments, function_of, group_gemm_arguments

Case = tuple[object, tuple[object, ...], dict[str, object]]  # an overload and its arguments

# The variant that writes its result, the one that returns it, how many arguments follow the result.
WRITES = (
    ("dequantize_kbit_tiled_", "dequantize_kbit_tiled", 0), ("dequantize_vq_", "dequantize_vq", 0),
    ("dequantize_vq_tiled_", "dequantize_vq_tiled", 0), ("kbit_gemm_prod_", "kbit_gemm_prod", 2),
    ("kbit_grouped_gemm_", "kbit_grouped_gemm", 2), ("kbit_scalar_gemv.out", "kbit_scalar_gemv", 0),
    ("kbit_scalar_gemv_tiled_", "kbit_scalar_gemv_tiled", 0),
    ("kbit_scalar_gemv_v2_", "kbit_scalar_gemv_tiled", 0), ("vq_gemm_prod_", "vq_gemm_prod", 2),
    ("vq_scalar_gemv.out", "vq_scalar_gemv", 0),
    ("vq_scalar_gemv_tiled_", "vq_scalar_gemv_tiled", 0))


def overload(name: str) -> object:
    found = function_of(name)
    return found if "." in name else found.default


def writing(given: dict[str, tuple[object, ...]]) -> Iterator[Case]:
    unused = (torch.empty(3, 128), torch.zeros(4).int())  # a workspace, counters
    for name, returning, num_unused in WRITES:
        result = overload(returning)(*given[returning])
        yield overload(name), (*given[returning], torch.zeros_like(result),
                               *unused[:num_unused]), {}
    scales = given["block_scale_interleave"]
    yield (overload("block_scale_interleave_out"), scales,
           {"out": torch.zeros_like(overload("block_scale_interleave")(*scales))})


def groups() -> Iterator[Case]:
    arguments, _ = group_gemm_arguments()
    yield overload("group_gemm_mxfp4_nt_groupwise"), arguments, {}
    result = overload("group_gemm_mxfp8_mxfp4_nt_groupwise")(*arguments)
    yield (overload("group_gemm_mxfp8_mxfp4_nt_groupwise_out"), arguments,
           {"out": torch.zeros_like(result)})


def experts() -> Iterator[Case]:
    x, logits, weights, named = expert_arguments("u4", 3, torch.float32)
    result = overload("experts")(x, logits, *weights, 2, **named)
    yield (overload("experts_out"), (x, logits, *weights, 2),
           {**named, "out": torch.zeros_like(result)})
    best = torch.topk(torch.softmax(logits, -1), 2)
    chosen = (x, best.values, best.indices.int(), *weights)
    yield overload("routed_experts"), chosen, named
    yield overload("routed_experts_out"), chosen, {**named, "out": torch.zeros_like(result)}


def compared() -> Iterator[tuple[str, tuple[object, ...]]]:
    calls = Calls()
    yield from (*calls.exact(), *calls.products())


def variants() -> Iterator[Case]:
    """Those that no other test gives to opcheck."""
    given = dict(compared())
    words, scales, zeros = given["awq_dequantize"][:3]
    yield overload("awq_gemm"), (given["kbit_gemm_prod"][0], words, scales, zeros, 8), {}
    yield from writing(given)
    yield from groups()
    yield from experts()


def cases() -> Iterator[Case]:
    for name, arguments in compared():
        yield overload(name), arguments, {}
    yield from variants()
