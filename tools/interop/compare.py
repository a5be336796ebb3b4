"""Whether two programs mean the same weights and give the same logits."""

import json
import pathlib
import re
import subprocess

import torch
import transformers
from safetensors.torch import load_file


def run(program, *arguments):
    """Exit code and last line of complaint."""
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


OTHER_PARTS = r"(model\.)?(visual|vision_tower|embed_vision|multi_modal_projector|mtp)\."


def text_names(weights):
    """Names of the text model, whether or not it stands in a wrapper; other parts are left out."""
    return {text_name(name): tensor for name, tensor in weights.items()
            if not re.match(OTHER_PARTS, name)}


def text_name(name):
    name = re.sub(r"^model\.language_model\.|^language_model\.model\.", "model.", name)
    return re.sub(r"^language_model\.lm_head", "lm_head", name)


def stacks_of(tensors, kind):
    """gate_up_proj and down_proj of all experts. Those of gpt-oss have biases: rows of gate and up
    take turns, and inputs come first; of other families gate stands before up, outputs first."""
    count = 1 + max(expert for _, expert in tensors["weight"])
    is_gpt_oss = "bias" in tensors
    for matrix, parts in (("gate_up", ("gate", "up")), ("down", ("down",))):
        rows = [[tensors[kind][part, e] for part in parts] for e in range(count)]
        stack = torch.stack([torch.stack(each, 1).flatten(0, 1) if is_gpt_oss
                             else torch.cat(each) for each in rows])
        turned = is_gpt_oss and kind == "weight"
        yield matrix, stack.transpose(1, 2).contiguous() if turned else stack


def with_stacks(weights):
    """Experts under the names of transformers: E.gate_proj, E.up_proj and E.down_proj become the
    stacks gate_up_proj and down_proj."""
    result, apart = {}, {}
    for name, tensor in text_names(weights).items():
        parts = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.(weight|bias)", name)
        if parts is None:
            result[name] = tensor
        else:
            place, expert, matrix, kind = parts.groups()
            apart.setdefault(place, {}).setdefault(kind, {})[matrix, int(expert)] = tensor
    for place, tensors in apart.items():
        for kind in tensors:
            suffix = "" if kind == "weight" else "_bias"
            for matrix, stack in stacks_of(tensors, kind):
                result[f"{place}.{matrix}_proj{suffix}"] = stack
    return result


def text_model(folder, weights, dtype=torch.float32):
    """The model of transformers with `weights`, named as files have them; wrappers are opened."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    for key in ("quantization_config", "dtype", "torch_dtype"):
        config.pop(key, None)
    text = config.get("text_config", config)
    if text["model_type"] == "kimi_k2":  # as the class of its wrapper does
        text["model_type"] = "deepseek_v3"
    made = transformers.AutoConfig.for_model(**text)
    opener = transformers.AutoModelForCausalLM
    if type(made) not in opener._model_mapping:  # the text model has no head by itself
        made = transformers.AutoConfig.for_model(**config)
        opener = transformers.AutoModelForImageTextToText
    model = opener.from_config(made, attn_implementation="eager").to(dtype).eval()
    weights = with_stacks(weights)
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    names = text_names({name: name for name in model.state_dict()})
    # Some software keeps its scales beside the weights.
    missing = model.load_state_dict({full: weights[name] for name, full in names.items()},
                                    strict=False).missing_keys
    assert not set(missing) & set(names.values()), missing
    return model


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].contiguous()


def tensors_of(folder):
    result = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        result.update(load_file(file))
    return result
