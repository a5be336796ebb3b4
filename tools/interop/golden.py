"""Makes the goldens of tests/data/goldens that real tools wrote, in one environment.

    build/interop/tools/bin/python tools/interop/golden.py tools tests/data/goldens [--only TEXT]

A golden is what the tool wrote of a model of one layer, without its tokenizer, and in
reference.safetensors the logits and the greedy continuations of three prompts: computed by
transformers in f32 on the weights that the tool's own software makes of the files, in f32 too.
(AutoRound's asymmetric ones are rounded to f16 by its kernel: kReferenceInF16 of goldens.def.)

Those of `families` and `delta_nets` need transformers alone, and the program of $SUBBYTE for what
it quantizes and converts itself; a few lines here say what weights its files have.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TORCHDYNAMO_DISABLE"] = "1"  # what it compiled would not see that scales are f32

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

import compare
import delta_nets
import fp8
import gemma4
import make
import mixtures
import modelopt_formats
import open as opener
import tiny
import tiny_layer_norms
import tiny_mamba
import unsloth_names

tiny.VOCAB = 128
PROMPTS = [[1, 2, 3, 4, 5], [100, 7, 63, 7, 99, 12, 31, 5, 80], list(range(11, 127, 7))]
GREEDY = 24
LONG = [(i * i + 7 * i) % 113 + 3 for i in range(220)]  # of layers that keep a state
LAST = 8  # tokens of that whose logits are kept
ROUNDINGS = 8  # of each prompt, as by bf16; after two layers logits have at least so many decibels
BF16_DECIBELS = 24


def gptq(**config):
    return (lambda folder: make.gptqmodel(folder, tiny.small, group_size=32, **config),
            "transformers-gptq")


def compressed(recipe, way="compressor", **more):
    return lambda folder: make.llm_compressor(folder, recipe, tiny.small, **more), way


def rounded(export, **config):
    """Of two layers, as its loader does not find the only one of a model."""
    def two_layers():
        return tiny.qwen3(hidden=64, intermediate=64, skewed=True)
    return lambda folder: make.auto_round(folder, export, two_layers, **config), "transformers"


def sliding(folder):
    """No layer_types, as before transformers 4.53; eager attention masks every layer."""
    make.bf16(folder, lambda: tiny.qwen3(hidden=64, intermediate=64, layers=2, sliding_window=5,
                                         use_sliding_window=True, max_window_layers=1,
                                         attn_implementation="eager"))


def small_moe(**more):
    return tiny.qwen3_moe(layers=2, **more)


def biased():
    return tiny.with_weights(tiny.qwen3(hidden=64, intermediate=64, layers=1, attention_bias=True))


def short():
    """Rows of 96 inputs, of which 32 are left after a group of 64."""
    return tiny.qwen3(hidden=96, intermediate=160, layers=1)


def modelopt(preset, group=32):
    return (lambda folder: make.modelopt(folder, preset, tiny.small, group=group),
            "modelopt-formats")


def hqq_modules():
    """All widths, and groups in rows, of rows and across them; lm_head stays."""
    groups = {"self_attn.q_proj": (8, 64), "self_attn.k_proj": (4, 64), "self_attn.v_proj": (3, 64),
              "self_attn.o_proj": (2, 32), "mlp.gate_proj": (1, 16), "mlp.up_proj": (4, 128),
              "mlp.down_proj": (3, 32)}
    return {name: {"nbits": bits, "group_size": size, "axis": 1}
            for name, (bits, size) in groups.items()}


def flat(folder, model):
    """With the keys of text_config beside the others, as older configs have them."""
    make.bf16(folder, model)
    config = json.loads((folder / "config.json").read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    text.update(rope_theta=rope["rope_theta"], rope_scaling={
        "type": "mrope", "mrope_section": rope["mrope_section"]})
    (folder / "config.json").write_text(json.dumps({**text, **config}, indent=2))


def kimi_k25(folder):
    """The text of a model that sees, with Moonshot's names; its own type is kimi_k2."""
    make.bf16(folder, tiny.kimi)
    text = json.loads((folder / "config.json").read_text())
    config = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
              "text_config": {**text, "model_type": "kimi_k2"}, "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    tensors = {f"language_model.{name}": tensor
               for name, tensor in compare.tensors_of(folder).items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def converted(folder, model, to):
    """What the program makes of a model: quantized, and converted."""
    work = folder.parent / "dense"
    for place in (work / folder.name, work / f"{folder.name}-awq"):
        shutil.rmtree(place, ignore_errors=True)
    make.bf16(work / folder.name, model)
    program = os.environ["SUBBYTE"]
    subprocess.run([program, "quantize", work / folder.name, work / f"{folder.name}-awq",
                    "--group-size", "32"], check=True)
    subprocess.run([program, "convert", work / f"{folder.name}-awq", folder, "--to", to],
                   check=True)


GOLDENS = {
    "delta_nets": {
        name: (write, "plain") for name, write in delta_nets.GOLDENS.items()
    },
    "families": {
        **mixtures.GOLDENS,
        "llama3-bf16": (lambda f: make.bf16(f, tiny.llama3), "transformers"),
        "llama2-biases-bf16": (lambda f: make.bf16(f, tiny.llama2), "transformers"),
        "qwen2-bf16": (lambda f: make.bf16(f, tiny.qwen2), "transformers"),
        "mistral-bf16": (lambda f: make.bf16(f, tiny.mistral), "transformers"),
        "phi3-longrope-bf16": (lambda f: make.bf16(f, tiny.phi3), "transformers"),
        "gemma2-bf16": (lambda f: make.bf16(f, tiny.gemma2), "transformers"),
        "granite-bf16": (lambda f: make.bf16(f, tiny.granite), "transformers"),
        "lfm2-bf16": (lambda f: make.bf16(f, tiny.lfm2), "transformers"),
        "olmo2-bf16": (lambda f: make.bf16(f, tiny.olmo2), "transformers"),
        "qwen2-vl-bf16": (lambda f: flat(f, tiny.qwen2_vl), "text"),
        "qwen2_5-vl-bf16": (lambda f: make.bf16(f, tiny.qwen2_5_vl), "text"),
        "qwen3-vl-bf16": (lambda f: make.bf16(f, tiny.qwen3_vl), "text"),
        "qwen3-vl-moe-bf16": (lambda f: make.bf16(f, tiny.qwen3_vl_moe), "text"),
        "mistral3-bf16": (lambda f: make.bf16(f, tiny.mistral3), "text"),
        "gemma3-bf16": (lambda f: make.bf16(f, tiny.gemma3), "text"),
        "gemma4-bf16": (lambda f: make.bf16(f, gemma4.dense), "text"),
        "gemma4-inputs-bf16": (lambda f: make.bf16(f, gemma4.inputs), "text"),
        "gemma4-moe-bf16": (lambda f: make.bf16(f, gemma4.experts), "text"),
        "olmo3-bf16": (lambda f: make.bf16(f, tiny.olmo3), "text"),
        "deepseek-v2-bf16": (lambda f: make.bf16(f, tiny.deepseek_v2), "text"),
        "deepseek-v3-bf16": (lambda f: make.bf16(f, tiny.deepseek_v3), "text"),
        "glm4-moe-lite-bf16": (lambda f: make.bf16(f, tiny.glm4_moe_lite), "text"),
        "deepseek-v32-bf16": (lambda f: make.bf16(f, tiny.deepseek_v32), "text"),
        "glm-moe-dsa-bf16": (lambda f: make.bf16(f, tiny.glm_moe_dsa), "text"),
        "kimi-k25-bf16": (kimi_k25, "text"),
        "mistral4-bf16": (lambda f: make.bf16(f, tiny.mistral4), "text"),
        "bamba-bf16": (lambda f: make.bf16(f, tiny_mamba.bamba), "saved"),
        "ministral3-bf16": (lambda f: make.bf16(f, tiny.ministral3), "text"),
        "phi4-mini-bf16": (lambda f: make.bf16(f, tiny.phi4_mini), "transformers"),
        "glm4-bf16": (lambda f: make.bf16(f, tiny.glm4), "text"),
        "smollm3-bf16": (lambda f: make.bf16(f, tiny.smollm3), "text"),
        "seed_oss-bf16": (lambda f: make.bf16(f, tiny.seed_oss), "text"),
        "ernie4_5-bf16": (lambda f: make.bf16(f, tiny.ernie4_5), "text"),
        "exaone4-bf16": (lambda f: make.bf16(f, tiny.exaone4), "text"),
        "hunyuan-dense-bf16": (lambda f: make.bf16(f, tiny.hunyuan_v1_dense), "text"),
        "nemotron-h-bf16": (lambda f: make.bf16(f, tiny_mamba.nemotron_h), "saved"),
        "granitemoehybrid-bf16": (lambda f: make.bf16(f, tiny_mamba.granitemoehybrid), "saved"),
        "granitemoehybrid-dense-bf16": (lambda f: make.bf16(f, tiny_mamba.granitemoehybrid_dense),
                                        "saved"),
        "nemotron-bf16": (lambda f: make.bf16(f, tiny_layer_norms.nemotron), "text"),
        "cohere2-bf16": (lambda f: make.bf16(f, tiny_layer_norms.cohere2), "text"),
        "llama3-gptq": (lambda f: converted(f, tiny.llama3, "gptq"), "gptq"),
        "qwen3-biases-bf16": (lambda f: make.bf16(f, biased), "transformers"),
        "qwen3-biases-gptq": (lambda f: converted(f, biased, "gptq"), "gptq"),
        "qwen3-fp8-blocks": (lambda f: fp8.blocks(f, tiny.qwen3(hidden=192, intermediate=320,
                                                                layers=1)), "fp8"),
        "qwen3-fp8-tensors": (lambda f: fp8.tensor_wide(f, tiny.small()), "fp8"),
        "qwen3-fp8-nvfp4": (lambda f: fp8.mixed(f, tiny.small()), "fp8"),
        "deepseek-v3-fp8": (lambda f: fp8.blocks(f, tiny.deepseek_v3(
            num_attention_heads=6, num_key_value_heads=6, attention_bias=False)), "fp8"),
        "deepseek-v32-fp8": (lambda f: fp8.blocks(f, tiny.deepseek_v32()), "fp8"),
        "glm4-moe-lite-int4": (lambda f: delta_nets.int4(f, tiny.glm4_moe_lite(
            qk_nope_head_dim=48)), "plain"),
        "qwen3-moe-fp8": (lambda f: fp8.blocks(f, small_moe(norm_topk_prob=True), torch.float32),
                          "fp8"),
    },
    "tools": {
        "qwen3-moe-bf16": (lambda f: make.bf16(f, small_moe), "transformers"),
        "llmcompressor-qwen3-moe": (lambda f: make.llm_compressor(
            f, make.rounded(**make.integers(4, 32, False)),
            lambda: small_moe(norm_topk_prob=True)), "compressor"),
        "gptqmodel-2-bits": gptq(bits=2, sym=False),
        "gptqmodel-3-bits": gptq(bits=3, sym=False),
        "gptqmodel-4-bits": gptq(bits=4, sym=False),
        "gptqmodel-8-bits-v2-act-order": gptq(bits=8, sym=False, format="gptq_v2", desc_act=True),
        "autoround-awq-symmetric": rounded("auto_awq", bits=4, group_size=32),
        "autoround-3-bits": rounded("auto_round", bits=3, group_size=32),
        "autoround-asymmetric": rounded("auto_round", bits=4, group_size=32, sym=False),
        "autoround-awq-asymmetric": rounded("auto_round:auto_awq", bits=4, group_size=32,
                                            sym=False),
        "llmcompressor-w4a16-asym": compressed(make.rounded(**make.integers(4, 32, False))),
        "llmcompressor-w3a16-asym": compressed(make.rounded(**make.integers(3, 32, False))),
        "llmcompressor-nvfp4": compressed(make.rounded(scheme="NVFP4A16")),
        "llmcompressor-mxfp4": compressed(make.rounded(scheme="MXFP4A16")),
        "modelopt-nvfp4": (lambda f: make.modelopt(f, "NVFP4_DEFAULT_CFG", tiny.small),
                           "modelopt"),
        "modelopt-gpt-oss-nvfp4": (lambda f: make.modelopt(f, "NVFP4_DEFAULT_CFG",
                                                           tiny.small_gpt_oss), "modelopt"),
        "modelopt-mxfp8": modelopt("MXFP8_DEFAULT_CFG"),
        "modelopt-w4a8-nvfp4-fp8": modelopt("W4A8_NVFP4_FP8_CFG"),
        "modelopt-fp8-pb-wo": modelopt("FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG", 128),
        "modelopt-int8-smoothquant": modelopt("INT8_SMOOTHQUANT_CFG"),
        "modelopt-int4-awq": modelopt("INT4_AWQ_CFG"),
        "llmcompressor-mxfp8": compressed(make.rounded(scheme="MXFP8A16")),
        "llmcompressor-int4-tensor": compressed(
            make.rounded(**make.integers(4, -1, strategy="tensor"))),
        "gptqmodel-short-group": (lambda f: make.gptqmodel(f, short, bits=4, group_size=64),
                                  "gptq"),
        "unsloth-gpt-oss-nf4": (unsloth_names.write, "unsloth"),
        "bitsandbytes-nf4-double": (lambda f: make.bitsandbytes(
            f, tiny.small, bnb_4bit_use_double_quant=True), "transformers"),
    },
    "ct17": {
        "llmcompressor-0-12-actorder": compressed(
            make.by_gptq("group", **make.integers(4)), "transformers", calibrated=True),
        "llmcompressor-0-12-w3a16": compressed(make.rounded(**make.integers(3)), "transformers"),
    },
    "awq": {
        "autoawq-qwen3-moe": (lambda f: make.autoawq(
            f, lambda: small_moe(inner=32, experts=32, norm_topk_prob=True), clip=False,
            zero_point=True, q_group_size=32), "autoawq"),  # which packs the router, too
        "autoawq": (lambda f: make.autoawq(f, tiny.small, clip=False, zero_point=True,
                                           q_group_size=32), "autoawq"),
        "hqq-every-width": (lambda f: make.hqq(f, lambda: tiny.qwen3(
            hidden=64, intermediate=64, layers=1, vocab=128, tied=True),
            dynamic_config=hqq_modules()), "hqq"),
        "qwen3-sliding-4-51": (sliding, "transformers"),
    },
}


def in_f32(model):
    """Kernels that multiply codes by scales do so in the type of the scales."""
    for module in model.modules():
        scales = getattr(module, "scales", None)
        if isinstance(scales, torch.Tensor) and scales.dtype == torch.float16:
            module.register_buffer("scales", scales.float())


def gptq_weights(folder):
    """By the definition: version 1 keeps zero points less one."""
    weights = {}
    with safe_open(folder / "model.safetensors", "pt") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}
    nibbles = torch.arange(0, 32, 4)
    for name, tensor in found.items():
        module, _, last = name.rpartition(".")
        if last == "qweight":
            codes = (tensor[:, None, :] >> nibbles[None, :, None] & 15).flatten(0, 1)
            zeros = (found[f"{module}.qzeros"][:, :, None] >> nibbles & 15).flatten(1) + 1
            groups = found[f"{module}.g_idx"].long()
            scales = found[f"{module}.scales"].float()
            weights[f"{module}.weight"] = ((codes - zeros[groups]) * scales[groups]).T
        elif last not in ("qzeros", "scales", "g_idx"):
            weights[name] = tensor.float()
    return weights


def hqq_weights(folder):
    """What hqq's own layer makes of the tensors of each, in f32."""
    from hqq.core.quantize import HQQLinear
    layers = {}
    with safe_open(folder / "model.safetensors", "pt") as file:
        for name in file.keys():
            module, _, last = name.rpartition(".")
            layers.setdefault(module, {})[last] = file.get_tensor(name)
    weights = {}
    for name, tensors in layers.items():
        if "W_q" in tensors:
            layer = HQQLinear(None, None, compute_dtype=torch.float32, device="cpu")
            tensors["compute_dtype"] = torch.tensor(list(b"torch.float32"), dtype=torch.uint8)
            layer.load_state_dict(tensors)
            tensors = {"weight": layer.dequantize()}
        weights.update({f"{name}.{last}": tensor.float() for last, tensor in tensors.items()})
    return weights


def saved_model(folder, weights):
    """transformers' own reading of a folder with these weights, which have the names of files."""
    with tempfile.TemporaryDirectory() as place:
        config = json.loads((folder / "config.json").read_text())
        config.pop("quantization_config", None)
        (pathlib.Path(place) / "config.json").write_text(json.dumps(config))
        save_file(weights, pathlib.Path(place) / "model.safetensors", {"format": "pt"})
        return transformers.AutoModelForCausalLM.from_pretrained(
            place, dtype=torch.float32, attn_implementation="eager").eval()


def exact_weights(folder, way):
    if way == "hqq":
        return hqq_weights(folder)
    if way in ("text", "saved"):
        return {name: tensor.float() for name, tensor in compare.tensors_of(folder).items()}
    if way == "plain":
        return delta_nets.weights(folder)
    if way == "compressor":
        return opener.compressed_weights(folder)
    if way == "gptq":
        return gptq_weights(folder)
    if way in ("fp8", "saved-fp8"):
        return fp8.weights(folder)
    if way == "modelopt-formats":
        return modelopt_formats.weights(folder)
    if way == "unsloth":
        return unsloth_names.weights(folder)
    model, wrong, _ = opener.WAYS[way](folder)
    assert not wrong, wrong
    with torch.no_grad():
        exact = opener.weights_of_bitsandbytes(model)
        model(torch.tensor([PROMPTS[0]]))  # which unpacks the weights of compressed-tensors
    in_f32(model)
    with torch.no_grad():
        return {**opener.weights_of(model, torch.float32), **exact}


def rounded_norms(model):
    """Hooks that change what norms give by as much as rounding to bf16 does, at random."""
    def change(module, inputs, outputs):
        return outputs * (1 + (torch.rand_like(outputs) - 0.5) * 2 ** -7)
    return [module.register_forward_hook(change) for name, module in model.named_modules()
            if "norm" in name.rpartition(".")[2]]


def check_conditioning(model, found):
    """Tests compute in bf16, too: a golden in which that makes, say, a router choose another expert
    shows nothing."""
    torch.manual_seed(0)
    bound = BF16_DECIBELS - 10 * math.log10(model.config.num_hidden_layers / 2)
    hooks = rounded_norms(model)
    for i, ids in [*enumerate(PROMPTS)] * ROUNDINGS:
        exact = found[f"prompt{i}.logits"]
        with torch.no_grad():
            noise = model(torch.tensor([ids])).logits[0] - exact
        decibels = -20 * torch.log10(noise.norm() / exact.norm())
        assert decibels > bound, f"prompt {i}: {decibels:.1f} dB; take another seed"
    for hook in hooks:
        hook.remove()


def reference(folder, weights, way):
    model = (saved_model if way.startswith("saved") else compare.text_model)(folder, weights)
    result = {}
    for i, ids in enumerate(PROMPTS):
        tokens = torch.tensor([ids])
        result[f"prompt{i}.ids"] = tokens[0].int()
        with torch.no_grad():
            result[f"prompt{i}.logits"] = model(tokens).logits[0].contiguous()
            for _ in range(GREEDY):
                best = model(tokens).logits[0, -1].argmax()
                tokens = torch.cat([tokens, best[None, None]], 1)
        result[f"prompt{i}.greedy"] = tokens[0, len(ids):].int()
    rope = getattr(model.config, "rope_parameters", None) or {}
    kinds = getattr(model.config, "layer_types", None) or []
    keeps_states = "linear_attention" in kinds or "conv" in kinds
    if keeps_states or rope.get("rope_type") == "longrope":
        tokens = torch.tensor([LONG])
        result["long.ids"] = tokens[0].int()
        with torch.no_grad():
            result["long.logits"] = model(tokens).logits[0, -LAST:].contiguous()
            for _ in range(GREEDY):
                best = model(tokens).logits[0, -1].argmax()
                tokens = torch.cat([tokens, best[None, None]], 1)
        result["long.greedy"] = tokens[0, len(LONG):].int()
    check_conditioning(model, result)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment", choices=list(GOLDENS))
    parser.add_argument("goldens", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, default="build/interop/goldens")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    for name, (write, way) in GOLDENS[options.environment].items():
        if options.only not in name:
            continue
        made = options.work.resolve() / name
        shutil.rmtree(made, ignore_errors=True)
        made.parent.mkdir(parents=True, exist_ok=True)
        write(made)
        weights = exact_weights(made, way)
        golden = options.goldens / name
        shutil.rmtree(golden, ignore_errors=True)
        golden.mkdir(parents=True)
        for kept in ["config.json", *(file.name for file in made.glob("*.safetensors"))]:
            shutil.copyfile(made / kept, golden / kept)
        save_file(reference(made, weights, way), golden / "reference.safetensors")
        print("made", name, sum(file.stat().st_size for file in golden.iterdir()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
