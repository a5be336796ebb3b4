"""Opens directories with the real software of their format, and keeps what it made of them.

    build/interop/tools/bin/python tools/interop/open.py tools transformers FOLDER...

The first argument names the environment. Beside each FOLDER it leaves FOLDER.ENVIRONMENT-WAY.json:
tensors that the software missed, did not expect or found of another shape, or how it refused; and
the same name with .safetensors: the logits of tiny.TOKENS and every weight, as the software
multiplies by it. Weights that a module keeps packed
are what it makes of the identity matrix, so they are the software's own and nobody else's.
"""

import argparse
import contextlib
import functools
import json
import os
import pathlib
import sys
import traceback

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["GPTQMODEL_CPU_WORKERS"] = "2"  # it asks for two and would start one on two cores

import torch
import transformers
from safetensors.torch import save_file

import compare
import tiny


def inputs_of(module):
    for name in ("in_features", "infeatures"):
        if isinstance(getattr(module, name, None), int):
            return getattr(module, name)
    return None


def weight_of(module, dtype):
    """[outputs, inputs] of a linear layer, out of its products with the rows of the identity."""
    inputs = inputs_of(module)
    if type(module).__name__ == "WQLinear_GEMM":  # of AutoAWQ, which multiplies in f16 only
        from awq.utils.packing_utils import dequantize_gemm
        return dequantize_gemm(module.qweight, module.qzeros, module.scales.float(), 4,
                               module.group_size).t().float().contiguous()
    bias = getattr(module, "bias", None)
    if bias is not None:  # what is added would round what is not
        kept = bias.detach().clone()
        bias.data.zero_()
    rows = module(torch.eye(inputs, dtype=dtype)).float().reshape(inputs, -1)
    if bias is not None:
        bias.data.copy_(kept)
    return rows.t().contiguous()


def weights_of(model, dtype):
    """All of a model's weights by the names that they have without quantization."""
    result = {}
    quantized = set()
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        plain = type(module) is torch.nn.Linear and weight is not None
        if inputs_of(module) is not None and not plain:
            result[name + ".weight"] = weight_of(module, dtype)
            if getattr(module, "bias", None) is not None:
                result[name + ".bias"] = module.bias.detach().float().clone()
            quantized.add(name + ".")
    for name, tensor in model.named_parameters():
        if tensor.is_floating_point() and not any(name.startswith(q) for q in quantized):
            result[name] = tensor.detach().float().contiguous().clone()
    return result


def weights_of_bitsandbytes(model):
    """Before the model runs: its kernel for CPUs packs weights anew, and rounds otherwise."""
    result = {}
    for name, module in model.named_modules():
        if type(module).__name__ == "Linear4bit":
            import bitsandbytes
            module.weight.quant_state.dtype = torch.float32
            result[name + ".weight"] = bitsandbytes.functional.dequantize_4bit(
                module.weight.data, module.weight.quant_state).contiguous()
    return result


def by_transformers(folder, dtype=torch.float32, **more):
    older = transformers.__version__ < "4.56"
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, device_map="cpu",
        **{"torch_dtype" if older else "dtype": dtype}, **more)
    wrong = {kind: sorted(map(str, names)) for kind, names in report.items() if names}
    if any(type(module).__name__ == "Linear4bit" for module in model.modules()):
        dtype = torch.bfloat16  # its kernel for CPUs multiplies in this type
    return model.eval(), wrong, dtype if dtype != "auto" else model.dtype


def by_transformers_auto(folder):
    """In the type of config.json, where software dequantizes to that and no other."""
    return by_transformers(folder, "auto")


def by_transformers_gptq(folder):
    """The integration of GPTQModel in transformers, with its kernel in PyTorch."""
    return by_transformers(folder, quantization_config=transformers.GPTQConfig(
        bits=4, backend="torch"))


def by_transformers_dequantized(folder):
    return by_transformers(folder, quantization_config=transformers.CompressedTensorsConfig(
        dequantize=True))


def by_transformers_mxfp4(folder):
    return by_transformers(folder, quantization_config=transformers.Mxfp4Config(dequantize=True))


def by_transformers_fp8(folder):
    return by_transformers(folder, "auto", quantization_config=transformers.FineGrainedFP8Config(
        dequantize=True))  # to bf16, whatever is asked for


def by_gptqmodel(folder):
    import gptqmodel
    model = gptqmodel.GPTQModel.load(str(folder), backend=gptqmodel.BACKEND.TORCH, device="cpu",
                                     dtype=torch.float16)
    return model.model.eval(), {}, torch.float16


def by_autoawq(folder):
    """Its path without a kernel of its own, which it takes where there is no GPU and no Triton."""
    import awq
    awq.models.base.get_best_device = lambda: "cuda:0"  # for a CPU it would want ipex
    awq.modules.linear.gemm.TRITON_AVAILABLE = False
    model = awq.AutoAWQForCausalLM.from_quantized(str(folder), fuse_layers=False,
                                                   device_map={"": "cpu"})
    return model.model.eval(), {}, torch.float16


FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def by_modelopt(folder):
    """ModelOpt has no loader of what it exports: its own class of tensors dequantizes each, and the
    names are those that it writes for every linear layer which is not excluded."""
    from modelopt.torch.quantization.qtensor import NVFP4QTensor
    config = json.loads((folder / "config.json").read_text())
    section = config.pop("quantization_config")
    excluded = json.loads((folder / "hf_quant_config.json").read_text())["quantization"]
    assert sorted(excluded["exclude_modules"]) == sorted(section["ignore"])
    with torch.device("cpu"):
        made = transformers.AutoConfig.for_model(**config)
        model = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.float32)
    tensors = compare.tensors_of(folder)
    state = {}
    for name in [name for name in tensors if name.endswith("_weight_scale_2")]:
        stack = name.removesuffix("_weight_scale_2")  # of experts: inputs before outputs
        packed, scale = (tensors.pop(stack + suffix).transpose(1, 2).contiguous()
                         for suffix in ("", "_weight_scale"))
        tensors.pop(stack + "_input_scale", None)
        shape = (*packed.shape[:2], 2 * packed.shape[2])
        weight = NVFP4QTensor(torch.Size(shape), torch.float32, packed).dequantize(
            scale=scale, double_scale=tensors.pop(name), block_sizes={-1: 16})
        state[stack] = weight.transpose(1, 2).contiguous()
    for name, module in model.named_modules():
        is_quantized = tensors.get(name + ".weight", module.weight).dtype not in FLOATS \
            if type(module) is torch.nn.Linear else False
        if not is_quantized:
            continue
        packed = tensors.pop(name + ".weight")
        if packed.dtype == torch.float8_e4m3fn:  # a factor for the tensor
            tensors.pop(name + ".input_scale", None)
            state[name + ".weight"] = packed.float() * tensors.pop(name + ".weight_scale")
            continue
        rows, half = packed.shape
        assert packed.dtype == torch.uint8 and (rows, 2 * half) == tuple(module.weight.shape)
        tensors.pop(name + ".input_scale", None)
        scale, factor = tensors.pop(name + ".weight_scale"), tensors.pop(name + ".weight_scale_2")
        assert scale.dtype == torch.float8_e4m3fn and factor.shape == ()
        state[name + ".weight"] = NVFP4QTensor(
            module.weight.shape, torch.float32, packed).dequantize(
                scale=scale, double_scale=factor, block_sizes={-1: 16})
    state.update({name: tensor.float() for name, tensor in tensors.items()})
    missing, unexpected = model.load_state_dict(state, strict=False)
    wrong = {"missing_keys": missing, "unexpected_keys": unexpected}
    return model.eval(), {kind: names for kind, names in wrong.items() if names}, torch.float32


def compressed_weights(folder):
    """By the compressors of compressed-tensors, with scales in f32: it multiplies in their type."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.nvfp4 import base
    from compressed_tensors.quantization import QuantizationConfig
    base.unpack_fp4_from_uint8 = functools.partial(base.unpack_fp4_from_uint8, dtype=torch.float32)
    section = json.loads((folder / "config.json").read_text())["quantization_config"]
    config = QuantizationConfig.model_validate(section)
    scheme, = config.config_groups.values()
    compressor = BaseCompressor.get_value_from_registry(config.format)
    modules = {}
    for name, tensor in compare.tensors_of(folder).items():
        module, local = name.rsplit(".", 1)
        floats = tensor.dtype in (torch.bfloat16, torch.float16)
        modules.setdefault(module, {})[local] = tensor.float() if floats else tensor
    weights = {}
    for module, tensors in modules.items():
        if "weight_packed" in tensors:
            done = compressor.decompress(tensors, scheme)
            tensors = {"weight": done["weight"].float(),
                       **{local: tensors[local] for local in tensors if local == "bias"}}
        weights.update({f"{module}.{local}": tensor for local, tensor in tensors.items()})
    return weights


def by_compressor(folder):
    """Experts of gpt-oss, for which transformers has no modules: as the compressors read them,
    under the names of transformers."""
    config = json.loads((folder / "config.json").read_text())
    config.pop("quantization_config")
    made = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.float32)
    state = compare.with_stacks(compressed_weights(folder))
    missing, unexpected = model.load_state_dict(state, strict=False)
    wrong = {"missing_keys": missing, "unexpected_keys": unexpected}
    return model.eval(), {kind: names for kind, names in wrong.items() if names}, torch.float32


WAYS = {"modelopt": by_modelopt, "compressor": by_compressor,
        "transformers": by_transformers, "transformers-auto": by_transformers_auto,
        "transformers-dequantized": by_transformers_dequantized,
        "transformers-gptq": by_transformers_gptq,
        "transformers-mxfp4": by_transformers_mxfp4, "transformers-fp8": by_transformers_fp8,
        "gptqmodel": by_gptqmodel,
        "autoawq": by_autoawq}


def open_one(folder, way, place):
    model, wrong, dtype = WAYS[way](folder)
    with torch.no_grad():
        exact = weights_of_bitsandbytes(model)
        # First, as compressed-tensors unpacks its weights when the model runs.
        logits = model(torch.tensor([tiny.TOKENS])).logits[0].float().contiguous()
        tensors = {**weights_of(model, dtype), **exact, "logits": logits}
    save_file(tensors, place + ".safetensors")
    return {"wrong": wrong, "dtype": str(dtype)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment")
    parser.add_argument("way", choices=sorted(WAYS))
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    for folder in options.folders:
        place = f"{folder}.{options.environment}-{options.way}"
        pathlib.Path(place + ".safetensors").unlink(missing_ok=True)
        with contextlib.redirect_stdout(sys.stderr):
            try:
                report = open_one(folder, options.way, place)
            except Exception as error:  # what software throws is its verdict
                traceback.print_exc()
                lines = [line for line in str(error).splitlines() if line.strip()] or [""]
                report = {"refused": f"{type(error).__name__}: {lines[0]}"}
        pathlib.Path(place + ".json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
