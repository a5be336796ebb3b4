"""Whether two programs mean the same weights and give the same logits."""

import pathlib
import re
import subprocess

import torch
from safetensors.torch import load_file


def run(program, *arguments):
    """Exit code and last line of complaint."""
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


def with_stacks(weights):
    """Experts of gpt-oss under the names of transformers: E.gate_proj, E.up_proj and E.down_proj,
    each with a bias, become the stacks gate_up_proj and down_proj, inputs first."""
    result, apart = {}, {}
    for name, tensor in weights.items():
        parts = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.(weight|bias)", name)
        if parts is None:
            result[name] = tensor
        else:
            place, expert, matrix, kind = parts.groups()
            apart.setdefault((place, kind), {})[matrix, int(expert)] = tensor
    for (place, kind), tensors in apart.items():
        suffix = "" if kind == "weight" else "_bias"
        count = 1 + max(expert for _, expert in tensors)
        pairs = [torch.stack([tensors["gate", e], tensors["up", e]], 1).flatten(0, 1)
                 for e in range(count)]
        for matrix, all_of in (("gate_up", pairs),
                               ("down", [tensors["down", e] for e in range(count)])):
            stack = torch.stack(all_of)
            stack = stack.transpose(1, 2).contiguous() if kind == "weight" else stack
            result[f"{place}.{matrix}_proj{suffix}"] = stack
    return result


def tensors_of(folder):
    result = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        result.update(load_file(file))
    return result
