"""What ModelOpt's own formats stand for, in f32 by their definitions, and its configs with groups
that tiny models have.

    weight      weight_scale      the weight
    I8          F32 [N]           code * scale
    U8 [N/2,K]  F32 [N, groups]   of the outputs 2j (low nibble) and 2j + 1, signed, * scale
    F8_E4M3     U8 [N, K/32]      code * 2^(scale - 127)
    F8_E4M3     F32               of blocks of 128 x 128
    U8 [N,K/2]  F8_E4M3           of the inputs 2j and 2j + 1, E2M1 * scale * weight_scale_2

times pre_quant_scale [K], where there is one: it multiplies the inputs.
"""

import copy

import torch
from safetensors import safe_open

import fp8


def config(name, group):
    """The preset `name`, with groups of so many inputs where it has some of 128."""
    import modelopt.torch.quantization as mtq
    made = copy.deepcopy(getattr(mtq, name))

    def shorten(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if key == "block_sizes" and inner and inner.get(-1) == 128:
                    inner[-1] = group
                shorten(inner)
        elif isinstance(value, list):
            for inner in value:
                shorten(inner)
    shorten(made)
    return made


def integers4(packed):
    codes = torch.stack([packed & 15, packed >> 4], 1).flatten(0, 1).to(torch.int8)
    return torch.where(codes > 7, codes - 16, codes).float()


def floats4(packed):
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(1).long()
    return fp8.E2M1[codes & 7] * torch.where(codes > 7, -1.0, 1.0)


def weight_of(codes, scale, factor):
    if codes.dtype == torch.int8:
        return codes.float() * scale[:, None]
    if codes.dtype == torch.float8_e4m3fn and scale.dtype != torch.uint8:
        rows, cols = (-(-size // 128) for size in codes.shape)
        return codes.float() * fp8.spread(scale.reshape(rows, cols), codes.shape, 128, 128)
    if codes.dtype == torch.float8_e4m3fn:
        values, scale = codes.float(), torch.exp2(scale.float() - 127)
    elif factor is None:
        values = integers4(codes)
    else:
        values, scale = floats4(codes), scale.float() * factor
    return values * scale.float().repeat_interleave(values.shape[1] // scale.shape[1], 1)


def weights(folder):
    with safe_open(folder / "model.safetensors", "pt") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}
    result = {}
    for name, tensor in found.items():
        module, _, last = name.rpartition(".")
        if last not in ("weight", "bias"):
            continue
        result[name] = tensor.float() if f"{name}_scale" not in found else \
            weight_of(tensor, found[f"{name}_scale"], found.get(f"{name}_scale_2"))
        if last == "weight" and f"{module}.pre_quant_scale" in found:
            result[name] = result[name] * found[f"{module}.pre_quant_scale"].float()
    return result
