"""Tiny checkpoints in FP8, written by their definition, and the weights that they stand for.

Codes are PyTorch's float8_e4m3fn; a factor is the largest weight of its block, row or tensor / 448.
"""

import json

import torch
from safetensors import safe_open
from safetensors.torch import save_file

LARGEST = 448.0
BLOCK = 128
KEPT = ("embed_tokens", "lm_head", "norm", "mlp.gate.")
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def tensors_of(model):
    """By the names of files: each expert is a module."""
    found = {}
    for name, tensor in model.state_dict().items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            found[name] = tensor
            continue
        experts, last = name.rsplit(".", 1)
        for i, matrix in enumerate(tensor):
            parts = {"down_proj": matrix} if last == "down_proj" else dict(
                zip(("gate_proj", "up_proj"), matrix.chunk(2)))
            found.update({f"{experts}.{i}.{part}.weight": rows for part, rows in parts.items()})
    return found


def spread(factors, shape, rows, cols):
    """A factor for each weight; the last blocks may be short."""
    return (factors.float().repeat_interleave(rows, 0).repeat_interleave(cols, 1)
            [:shape[0], :shape[1]])


def rounded(weight, rows, cols, dtype):
    """Codes, and factors [ceil(N / rows), ceil(K / cols)]."""
    n, k = weight.shape
    padded = torch.zeros(-(-n // rows) * rows, -(-k // cols) * cols)
    padded[:n, :k] = weight.abs()
    largest = padded.unflatten(0, (-1, rows)).unflatten(2, (-1, cols)).amax((1, 3))
    factors = (largest / LARGEST).to(dtype)
    codes = (weight / spread(factors, weight.shape, rows, cols)).clamp(-LARGEST, LARGEST)
    return codes.to(torch.float8_e4m3fn), factors


def save(folder, model, tensors, section):
    folder.mkdir(parents=True)
    config = json.loads(model.config.to_json_string())
    config.update(architectures=[type(model).__name__], dtype="bfloat16",
                  quantization_config=section)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()},
              folder / "model.safetensors", {"format": "pt"})


def blocks(folder, model, dtype=torch.bfloat16):
    """As Qwen's own: factors of squares, named as if they divided."""
    tensors = {}
    for name, tensor in tensors_of(model).items():
        if any(part in name for part in KEPT):
            tensors[name] = tensor.bfloat16()
            continue
        tensors[name], factors = rounded(tensor, BLOCK, BLOCK, dtype)
        tensors[name + "_scale_inv"] = factors
    save(folder, model, tensors, {
        "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
        "weight_block_size": [BLOCK, BLOCK],
        "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate",
                                   "model.layers.0.input_layernorm"]})


def tensor_wide(folder, model):
    """As ModelOpt: a factor for each tensor, and one of its activations."""
    tensors = {}
    for name, tensor in tensors_of(model).items():
        if any(part in name for part in KEPT):
            tensors[name] = tensor.bfloat16()
            continue
        tensors[name], factors = rounded(tensor, *tensor.shape, torch.float32)
        tensors[name + "_scale"] = factors.reshape(())
        tensors[name.removesuffix("weight") + "input_scale"] = torch.tensor(0.01)
    save(folder, model, tensors, {
        "quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"],
        "producer": {"name": "modelopt", "version": "0.47.0"}})


def nvfp4(weight):
    """Of compressed-tensors: the global factor divides."""
    divisor = (LARGEST * 6 / weight.abs().max()).reshape(1)
    groups = weight.unflatten(1, (-1, 16))
    scales = (groups.abs().amax(2) / 6 * divisor).clamp(max=LARGEST).to(torch.float8_e4m3fn)
    wanted = (groups * divisor / scales.float()[..., None].clamp(min=2**-9)).flatten(1)
    codes = (wanted.abs()[..., None] - E2M1).abs().argmin(-1) + 8 * (wanted < 0)
    packed = (codes[:, 0::2] + 16 * codes[:, 1::2]).to(torch.uint8)
    return {"weight_packed": packed, "weight_scale": scales, "weight_global_scale": divisor}


def mixed(folder, model):
    """As compressed-tensors: rows of FP8 in attention, NVFP4 beside it."""
    tensors = {}
    for name, tensor in tensors_of(model).items():
        module = name.removesuffix("weight")
        if any(part in name for part in KEPT):
            tensors[name] = tensor.bfloat16()
        elif "self_attn" in name:
            tensors[name], tensors[name + "_scale"] = rounded(tensor, 1, tensor.shape[1],
                                                              torch.bfloat16)
        else:
            tensors.update({module + local: part for local, part in nvfp4(tensor).items()})
            tensors[module + "input_global_scale"] = torch.tensor([100.0])
    fp8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel",
           "dynamic": False}
    fp4 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group",
           "group_size": 16, "dynamic": False}
    tokens = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
    save(folder, model, tensors, {
        "quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {"targets": ["re:.*self_attn.*"], "weights": fp8, "format":
                        "float-quantized", "input_activations": tokens},
            "group_1": {"targets": [r"re:.*mlp\.(gate|up|down)_proj$"], "weights": fp4,
                        "format": "nvfp4-pack-quantized", "input_activations": None}}})


def weights(folder):
    """By the definition, in f32."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}
    result = {}
    for name, tensor in found.items():
        module, _, last = name.rpartition(".")
        if last == "weight_packed":
            codes = torch.stack([tensor & 15, tensor >> 4], -1).flatten(1).long()
            values = E2M1[codes & 7] * torch.where(codes > 7, -1.0, 1.0)
            scales = found[f"{module}.weight_scale"]
            result[f"{module}.weight"] = (spread(scales, values.shape, 1, 16) * values /
                                          found[f"{module}.weight_global_scale"])
        elif tensor.dtype == torch.float8_e4m3fn and last == "weight":
            factors = found.get(f"{name}_scale_inv")
            if factors is not None:
                scales = spread(factors, tensor.shape, BLOCK, BLOCK)
            else:
                scales = found[f"{name}_scale"].float()  # of the tensor, or of rows
            result[name] = tensor.float() * scales
        elif last.endswith(("weight", "bias")):
            result[name] = tensor.float()
    return result
