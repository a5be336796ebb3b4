#!/usr/bin/env python3
"""Tokens a second of `generate` of transformers, with and without our linear layers.

    PYTHONPATH=build/release/torch_package python3 python/bench/generate.py [--device cuda]

A model of Qwen3's shape with random weights, in bf16, with a static cache: as transformers has it,
and with its linear layers but the head in 4 bits (u4 g128, what AWQ has). Compiled as transformers
does it by itself, by inductor with CUDA graphs. Prefill is of a prompt of so many tokens. The
first call, of 8 tokens, packs weights and compiles. Other programs must be still.
"""

from __future__ import annotations

import argparse
import time

import torch
import transformers

import subbyte.torch
from subbyte.torch.modules import SubbyteLinear

SHAPES = {  # hidden, inner, layers, heads, heads of keys
    "0.6b": (1024, 3072, 28, 16, 8),
    "1.7b": (2048, 6144, 28, 16, 8),
    "4b": (2560, 9728, 36, 32, 8),
}
GROUP = 128
KINDS = ("bf16", "u4 g128")


def packed(old: torch.nn.Linear, device: str) -> SubbyteLinear:
    """A linear layer of random codes, as subbyte.transformers makes them."""
    n, k = old.weight.shape
    layer = SubbyteLinear(k, n)
    layer.fill(subbyte.torch.PackedWeight(
        torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device=device),
        torch.rand(n, k // GROUP, device=device).half() * 0.01,
        torch.full((n, k // GROUP), 8, dtype=torch.uint8, device=device),
        f"u4 g{GROUP} scale f16 zero u8"), None)
    return layer


def make(shape: str, layers: int | None, device: str) -> transformers.PreTrainedModel:
    hidden, inner, depth, heads, kv_heads = SHAPES[shape]
    config = transformers.Qwen3Config(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers or depth,
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=128, vocab_size=151936,
        max_position_embeddings=4096, tie_word_embeddings=True)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def pack(model: torch.nn.Module, device: str) -> None:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, torch.nn.Linear) and name != "lm_head":
                setattr(parent, name, packed(child, device))


def rate(model, device: str, prompt: int, tokens: int,
         backend: str | None) -> tuple[float, float, float]:
    """Seconds of the first call, tokens a second of decoding, and of the prompt."""
    ids = torch.randint(0, 150000, (1, prompt), device=device)
    named = {"attention_mask": torch.ones_like(ids), "do_sample": False,
             "cache_implementation": "static", "pad_token_id": 0, "eos_token_id": None}
    if backend is not None:
        named["compile_config"] = transformers.CompileConfig(
            fullgraph=True, backend=backend,
            mode="reduce-overhead" if backend == "inductor" else None)
        named["compile_config"]._compile_all_devices = True
    else:
        named["disable_compile"] = True

    def seconds(count: int) -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        model.generate(ids, max_new_tokens=count, min_new_tokens=count, **named)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    first = seconds(8)
    seconds(8)
    short, long = (min(seconds(count) for _ in range(2)) for count in (2, tokens))
    return first, (tokens - 2) / (long - short), prompt / short


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="1.7b")
    parser.add_argument("--layers", type=int, help="fewer than the model has")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--backend", nargs="*", default=["", "inductor"],
                        help="of torch.compile; an empty name: none")
    arguments = parser.parse_args()
    device = arguments.device
    name = torch.cuda.get_device_name() if device == "cuda" else (
        f"{torch.get_num_threads()} threads")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {name}; "
          f"{arguments.shape}, layers {arguments.layers or 'all'}; tokens a second")
    print("|linear layers|compiled|first call, s|decoding|prompt|")
    print("|---|---|---|---|---|")
    model = make(arguments.shape, arguments.layers, device)
    for kind in KINDS:
        if kind != "bf16":
            pack(model, device)
        for backend in arguments.backend if kind in arguments.kinds else ():
            torch._dynamo.reset()
            with torch.inference_mode():
                first, decoding, prompt = rate(model, device, arguments.prompt, arguments.tokens,
                                               backend or None)
            print(f"|{kind}|{backend or 'no'}|{first:.1f}|{decoding:.1f}|{prompt:.0f}|", flush=True)


if __name__ == "__main__":
    main()
