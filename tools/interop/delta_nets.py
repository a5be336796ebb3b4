"""Tiny checkpoints with gated delta nets, quantized as published ones are, and their weights.

Each is written by the definition of its format, with the modules left in 16 bits that quantizers
leave so, and lists of them as those tools write them. A wrapped text model has the parts beside it
that are not read.
"""

import json
import re

import torch
from safetensors import safe_open
from safetensors.torch import save_file

import fp8
import tiny

GATES = ("in_proj_a.", "in_proj_b.", "in_proj_ba.", "mlp.gate.", "shared_expert_gate.")
# Two layers, one of each kind.
TWO = dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])
# Squares of 128 end in short ones; of qwen3_next they are cut by the pieces of a key head.
WIDE = dict(TWO, hidden_size=144, intermediate_size=48)
WIDE_EXPERTS = dict(WIDE, moe_intermediate_size=16, shared_expert_intermediate_size=32)
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # of the outputs in the nibbles of a word


def in_bf16(model):
    """But what decides how much is forgotten."""
    return {name: tensor.clone() if name.endswith(("A_log", "linear_attn.norm.weight"))
            else tensor.bfloat16() for name, tensor in model.state_dict().items()}


def experts_apart(tensors):
    result = {}
    for name, tensor in tensors.items():
        place, _, last = name.rpartition(".")
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            result[name] = tensor
            continue
        for e, matrix in enumerate(tensor):
            parts = {"down_proj": matrix} if last == "down_proj" else dict(
                zip(("gate_proj", "up_proj"), matrix.chunk(2)))
            result.update({f"{place}.{e}.{part}.weight": rows for part, rows in parts.items()})
    return result


def save(folder, model, tensors, section=None):
    folder.mkdir(parents=True)
    config = json.loads(model.config.to_json_string())
    if section is not None:
        config.update(architectures=[type(model).__name__], dtype="bfloat16",
                      quantization_config=section)
    if hasattr(model.config, "vision_config"):
        if model.config.tie_word_embeddings:
            tensors.pop("lm_head.weight")
        tensors["mtp.fc.weight"] = torch.ones(8, 16, dtype=torch.bfloat16)
        tensors["mtp.layers.0.input_layernorm.weight"] = torch.ones(8, dtype=torch.bfloat16)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file({name: tensor.clone(memory_format=torch.contiguous_format)
               for name, tensor in tensors.items()}, folder / "model.safetensors")


def plain(folder, model, stacks=False):
    """As published, in bf16; experts as stacks, or one by one."""
    tensors = in_bf16(model)
    save(folder, model, tensors if stacks else experts_apart(tensors))


def quantized(folder, model, section, quantize):
    """`quantize` makes of a module's name and weight its tensors, or None where it stays."""
    tensors = {}
    for name, tensor in experts_apart(in_bf16(model)).items():
        module, _, last = name.rpartition(".")
        is_linear = tensor.ndim == 2 and last == "weight" and "embed" not in name
        parts = quantize(module, tensor.float()) if is_linear and "visual" not in name else None
        if parts is None:
            tensors[name] = tensor
        else:
            tensors.update({f"{module}.{local}": part for local, part in parts.items()})
    save(folder, model, tensors, section)


def is_gate(module):
    return any((module + ".").endswith("." + gate) for gate in GATES)


def fp8_blocks(folder, model, kept, dtype=torch.bfloat16):
    """As Qwen's own files: `kept` is the list of modules that transformers left, as it is found in
    one of them, and where it is short the tensors still say it."""
    def parts(module, weight):
        if is_gate(module) or module == "lm_head":
            return None
        codes, factors = fp8.rounded(weight, fp8.BLOCK, fp8.BLOCK, dtype)
        return {"weight": codes, "weight_scale_inv": factors}
    quantized(folder, model, {
        "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
        "weight_block_size": [fp8.BLOCK, fp8.BLOCK], "modules_to_not_convert": kept}, parts)


def packed(codes):
    """Eight unsigned nibbles of a row in a word of 32 bits, the first lowest."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int64)
    words = (codes.unflatten(1, (-1, 8)).long() << shifts).sum(2)
    return torch.where(words < 2**31, words, words - 2**32).int()


def awq(folder, model, kept, group, is_kept):
    """Unsigned codes with zero points, inputs by outputs, as AutoAWQ packs them."""
    def parts(module, weight):
        if is_gate(module) or module == "lm_head" or is_kept(module):
            return None
        groups = weight.unflatten(1, (-1, group))
        low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
        scales = ((high - low) / 15).half()
        zeros = (-low / scales.float()).round().clamp(0, 15)
        codes = (groups / scales.float()[..., None] + zeros[..., None]).round().clamp(0, 15)
        order = lambda matrix: matrix.unflatten(1, (-1, 8))[..., AWQ_ORDER].flatten(1)
        return {"qweight": packed(order(codes.flatten(1).t())),
                "qzeros": packed(order(zeros.t())), "scales": scales.t()}
    quantized(folder, model, {
        "quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm",
        "zero_point": True, "backend": "autoawq", "modules_to_not_convert": kept}, parts)


def int4(folder, model, ignore=("lm_head",), group=16, is_kept=lambda module: False):
    """Symmetric integers of 4 bits as compressed-tensors packs them, also of matrices with a row
    for each value head where nothing keeps those; factors in f16."""
    def parts(module, weight):
        if module == "lm_head" or is_kept(module) or "shared_expert_gate" in module or \
                module.endswith("mlp.gate"):
            return None
        groups = weight.unflatten(1, (-1, group))
        scale = (groups.abs().amax(2, keepdim=True) / 7).half()
        codes = (groups / scale.float()).round().clamp(-8, 7).int().flatten(1) + 8
        return {"weight_packed": packed(codes), "weight_scale": scale.squeeze(2),
                "weight_shape": torch.tensor(weight.shape)}
    quantized(folder, model, {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": list(ignore),
        "quantization_status": "compressed", "config_groups": {"group_0": {
            "targets": ["Linear"], "input_activations": None, "output_activations": None,
            "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
                        "group_size": group, "dynamic": False}}}}, parts)


TOKENS = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
E4M3 = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
E2M1 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group",
        "group_size": 16, "dynamic": False}


def mixed(folder, model, fp8_targets, nvfp4_targets, is_fp8, block=False):
    """NVFP4 beside FP8 in two groups of compressed-tensors: where both match, the first holds."""
    def parts(module, weight):
        if is_gate(module):
            return None
        if not is_fp8(module):
            return {**fp8.nvfp4(weight), "input_global_scale": torch.tensor([100.0])}
        sides = (fp8.BLOCK, fp8.BLOCK) if block else (1, weight.shape[1])
        codes, factors = fp8.rounded(weight, *sides, torch.bfloat16)
        return {"weight": codes, "weight_scale": factors}
    whole = {**E4M3, "strategy": "block", "block_structure": [fp8.BLOCK, fp8.BLOCK]} if block \
        else {**E4M3, "strategy": "channel"}
    quantized(folder, model, {
        "quant_method": "compressed-tensors", "format": "mixed-precision",
        "quantization_status": "compressed",
        "ignore": ["re:.*visual.*", "re:^mtp.*", r"re:.*\.in_proj_(a|b|ba)$", r"re:.*mlp\.gate$",
                   r"re:.*shared_expert_gate$"],
        "config_groups": {
            "group_0": {"targets": fp8_targets, "weights": whole, "format": "float-quantized",
                        "input_activations": TOKENS},
            "group_1": {"targets": nvfp4_targets, "weights": E2M1, "input_activations": None,
                        "format": "nvfp4-pack-quantized"}}}, parts)


def modelopt_mixed(folder, model, is_fp8):
    """NVFP4 beside FP8 for tensors, each module by its name: here factors multiply."""
    layers = {}

    def parts(module, weight):
        if is_gate(module) or module == "lm_head":
            return None
        if is_fp8(module):
            layers[module] = {"quant_algo": "FP8"}
            codes, factor = fp8.rounded(weight, *weight.shape, torch.float32)
            return {"weight": codes, "weight_scale": factor.reshape(()),
                    "input_scale": torch.tensor(0.01)}
        layers[module] = {"quant_algo": "NVFP4", "group_size": 16}
        made = fp8.nvfp4(weight)
        return {"weight": made["weight_packed"], "weight_scale": made["weight_scale"],
                "weight_scale_2": 1 / made["weight_global_scale"].reshape(()),
                "input_scale": torch.tensor(0.01)}
    quantized(folder, model, {
        "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers,
        "ignore": ["lm_head", "*.in_proj_ba", "*.mlp.gate", "*.shared_expert_gate"],
        "producer": {"name": "modelopt", "version": "0.47.0"}}, parts)


def three(**more):
    return dict(TWO, linear_num_value_heads=6, **more)


def two(**more):
    return dict(TWO, linear_num_value_heads=4, **more)


WRAPPED = "model.language_model.layers"
GOLDENS = {
    "qwen3_5-bf16": lambda f: plain(f, tiny.qwen3_5()),
    "qwen3_5-wrapped-bf16": lambda f: plain(f, tiny.qwen3_5_wrapped()),
    "qwen3_5-moe-bf16": lambda f: plain(f, tiny.qwen3_5_moe(), stacks=True),
    "qwen3-next-bf16": lambda f: plain(f, tiny.qwen3_next()),
    "qwen3_5-int4": lambda f: int4(f, tiny.qwen3_5(), group=32),
    "qwen3-next-int4": lambda f: int4(f, tiny.qwen3_next()),
    "qwen3_5-moe-int4": lambda f: int4(
        f, tiny.qwen3_5_moe(**three()), ["re:.*linear_attn.*", r"re:.*mlp\.gate$", "lm_head",
                                         "re:.*shared_expert_gate$", "re:^mtp.*"], 32,
        lambda module: "linear_attn" in module),
    "qwen3_5-fp8": lambda f: fp8_blocks(
        f, tiny.qwen3_5_wrapped(**{**WIDE, "linear_num_value_heads": 6}),
        ["lm_head", "model.language_model.embed_tokens", "model.visual.blocks.0.attn.proj",
         f"{WRAPPED}.0.linear_attn.conv1d", f"{WRAPPED}.0.linear_attn.in_proj_a",
         f"{WRAPPED}.0.linear_attn.in_proj_b", "mtp.fc"]),
    "qwen3_5-moe-fp8": lambda f: fp8_blocks(
        f, tiny.qwen3_5_moe(**WIDE_EXPERTS),
        ["lm_head", "mlp.gate", "mlp.shared_expert_gate", "linear_attn.in_proj_a",
         "linear_attn.in_proj_b"], torch.float32),
    "qwen3-next-fp8": lambda f: fp8_blocks(
        f, tiny.qwen3_next(**WIDE_EXPERTS), ["lm_head", "model.layers.0.mlp.gate",
                                     "model.layers.0.linear_attn.in_proj_ba"]),
    "qwen3_5-awq": lambda f: awq(
        f, tiny.qwen3_5(**three()), ["in_proj_a", "in_proj_b", "lm_head", "visual"], 16,
        lambda module: False),
    "qwen3_5-moe-awq": lambda f: awq(
        f, tiny.qwen3_5_moe(**two()),
        ["linear_attn", "mlp.gate", "mlp.shared_expert_gate", "lm_head"], 32,
        lambda module: "linear_attn" in module),
    "qwen3-next-awq": lambda f: awq(
        f, tiny.qwen3_next(**two()), ["in_proj_ba", "mlp.gate", "shared_expert_gate", "lm_head"],
        32, lambda module: False),
    "qwen3_5-fp8-nvfp4": lambda f: mixed(
        f, tiny.qwen3_5_wrapped(tied=False, **two()),
        [r"re:.*self_attn\.(q|k|v|o)_proj$", r"re:.*linear_attn\.(in_proj_qkv|in_proj_z|out_proj)$",
         r"re:.*lm_head$", r"re:.*layers\.1\.mlp\.(gate|up|down)_proj$"],
        [r"re:.*mlp\.(gate|up|down)_proj$"],
        lambda module: "mlp" not in module or ".1.mlp" in module),
    "qwen3_5-moe-fp8-nvfp4": lambda f: mixed(
        f, tiny.qwen3_5_moe(**three()),
        [r"re:.*self_attn.*", r"re:.*linear_attn\.(in_proj_qkv|in_proj_z|out_proj)$",
         r"re:.*shared_expert\..*", "re:.*lm_head$"],
        [r"re:.*mlp\.experts\..*_proj$"], lambda module: ".experts." not in module, block=True),
    "qwen3-next-fp8-nvfp4": lambda f: modelopt_mixed(
        f, tiny.qwen3_next(**two()), lambda module: "mlp" not in module),
}


def nibbles(words):
    return (words[:, :, None] >> torch.arange(0, 32, 4) & 15).flatten(1)


def awq_weight(found, module):
    places = torch.argsort(torch.tensor(AWQ_ORDER))
    order = lambda matrix: matrix.unflatten(1, (-1, 8))[..., places].flatten(1)
    codes = order(nibbles(found[f"{module}.qweight"]))
    zeros, scales = order(nibbles(found[f"{module}.qzeros"])), found[f"{module}.scales"].float()
    repeat = codes.shape[0] // scales.shape[0]
    return ((codes - zeros.repeat_interleave(repeat, 0)) * scales.repeat_interleave(repeat, 0)).t()


def gptq_weight(found, module):
    """Eight inputs in a word, zero points less one, groups of neighbours."""
    codes = nibbles(found[f"{module}.qweight"].t().contiguous())
    zeros = nibbles(found[f"{module}.qzeros"]).t() + 1
    scales = found[f"{module}.scales"].float().t()
    repeat = codes.shape[1] // scales.shape[1]
    return (codes - zeros.repeat_interleave(repeat, 1)) * scales.repeat_interleave(repeat, 1)


def fp4_weight(words, scales):
    codes = torch.stack([words & 15, words >> 4], -1).flatten(1).long()
    values = fp8.E2M1[codes & 7] * torch.where(codes > 7, -1.0, 1.0)
    return fp8.spread(scales, values.shape, 1, 16) * values


def fp8_weight(found, module, block):
    codes = found[f"{module}.weight"].float()
    stack = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj", module)
    if stack and f"{stack[1]}.down_proj_scale_inv" in found:  # as transformers leaves them
        name = "down_proj" if stack[3] == "down" else "gate_up_proj"
        factors = found[f"{stack[1]}.{name}_scale_inv"][int(stack[2])]
        if stack[3] != "down":
            factors = factors.chunk(2)[stack[3] == "up"]
        return codes * fp8.spread(factors, codes.shape, fp8.BLOCK, fp8.BLOCK)
    for name in ("weight_scale_inv", "weight_scale"):
        factors = found.get(f"{module}.{name}")
        if factors is None:
            continue
        squares = name == "weight_scale_inv" or block
        return codes * (fp8.spread(factors, codes.shape, fp8.BLOCK, fp8.BLOCK) if squares
                        else factors.float())  # of the tensor, or of rows
    raise ValueError(f"{module} has codes and no factor")


def weight_of(found, module, last, block):
    """A weight in f32, or None for a part of another one."""
    tensor = found[f"{module}.{last}"]
    if last == "qweight":
        inputs_first = tensor.shape[1] * 8 == found[f"{module}.scales"].shape[1]
        return awq_weight(found, module) if inputs_first else gptq_weight(found, module)
    if last == "weight_packed" and tensor.dtype == torch.uint8:
        return fp4_weight(tensor, found[f"{module}.weight_scale"]) / found[
            f"{module}.weight_global_scale"]
    if last == "weight_packed":
        codes, scales = nibbles(tensor) - 8, found[f"{module}.weight_scale"].float()
        return codes * scales.repeat_interleave(codes.shape[1] // scales.shape[1], 1)
    if last == "weight" and tensor.dtype == torch.uint8:
        return fp4_weight(tensor, found[f"{module}.weight_scale"]) * found[
            f"{module}.weight_scale_2"]
    if last == "weight" and tensor.dtype == torch.float8_e4m3fn:
        return fp8_weight(found, module, block)
    parts = ("scale", "scales", "qzeros", "shape", "scale_inv", "scale_2")
    return None if last.endswith(parts) else tensor.float()


def weights(folder):
    """By the definitions, under the names of the text model."""
    section = json.loads((folder / "config.json").read_text()).get("quantization_config", {})
    block = "block_structure" in json.dumps(section)
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            found.update({name: file.get_tensor(name) for name in file.keys()})
    result = {}
    for name in found:
        module, _, last = name.rpartition(".")
        weight = weight_of(found, module, last, block)
        if weight is None:
            continue
        kind = "weight" if last in ("qweight", "weight_packed") else last
        result[f"{module}.{kind}".replace("model.language_model.", "model.")] = weight
    return result
