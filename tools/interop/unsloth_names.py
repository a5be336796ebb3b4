"""A gpt-oss with the names of unsloth, whose experts are linear layers, in NF4 of bitsandbytes.

unsloth wants a GPU: the names are those of its modules (experts.gate_up_projs.E, down_projs.E,
router.linear), the bytes are those of bitsandbytes, which unsloth calls, too.
"""

import json

import torch
from safetensors import safe_open
from safetensors.torch import save_file

import tiny

SECTION = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
           "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True,
           "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8",
           "llm_int8_skip_modules": ["lm_head", "self_attn", "router"]}


def in_4_bits(name, matrix):
    from bitsandbytes import functional
    codes, state = functional.quantize_4bit(matrix.bfloat16().contiguous(), blocksize=64,
                                            compress_statistics=True, quant_type="nf4")
    return {name: codes, **{f"{name}.{key}": tensor
                            for key, tensor in state.as_dict(packed=True).items()}}


def write(folder):
    model = tiny.small_gpt_oss()
    tensors = {}
    for name, tensor in model.state_dict().items():
        place, _, last = name.rpartition(".")
        if not place.endswith(".experts"):
            tensors[name.replace(".router.", ".router.linear.")] = tensor.bfloat16()
            continue
        is_bias = last.endswith("_bias")
        for expert, part in enumerate(tensor):
            module = f"{place}.{last.removesuffix('_bias')}s.{expert}"
            tensors.update({f"{module}.bias": part.bfloat16()} if is_bias else
                           in_4_bits(f"{module}.weight", part.T))
    folder.mkdir(parents=True)
    config = json.loads(model.config.to_json_string())
    config.update(architectures=[type(model).__name__], dtype="bfloat16",
                  quantization_config=SECTION)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()},
              folder / "model.safetensors", {"format": "pt"})


def numbers_of(found, name):
    """By the tables that lie beside the codes."""
    state = json.loads(bytes(found[f"{name}.quant_state.bitsandbytes__nf4"].tolist()))
    scales = found[f"{name}.nested_quant_map"][found[f"{name}.absmax"].long()]
    nested = found[f"{name}.nested_absmax"].repeat_interleave(state["nested_blocksize"])
    scales = scales * nested[:len(scales)] + state["nested_offset"]
    codes = found[name].flatten()
    values = found[f"{name}.quant_map"][torch.stack([codes >> 4, codes & 15], 1).flatten().long()]
    return (values * scales.repeat_interleave(state["blocksize"])).reshape(state["shape"])


def weights(folder):
    """Under the names of transformers, in f32."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}
    result, stacks = {}, {}
    for name, tensor in found.items():
        place, _, last = name.rpartition(".")
        if last not in ("weight", "bias", "sinks"):
            continue
        if ".experts." not in name:
            result[name.replace(".router.linear.", ".router.")] = tensor.float()
            continue
        place, expert = place.rsplit(".", 1)
        stack = place.removesuffix("s") + ("_bias" if last == "bias" else "")
        stacks.setdefault(stack, {})[int(expert)] = \
            tensor.float() if last == "bias" else numbers_of(found, name).T
    for stack, experts in stacks.items():
        result[stack] = torch.stack([experts[e] for e in range(len(experts))]).contiguous()
    return result
