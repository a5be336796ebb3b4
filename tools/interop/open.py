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
os.environ["TORCH_COMPILE_DISABLE"] = "1"  # compiling a layer takes longer than all else

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
    is_wrapper = "text_config" in json.loads((folder / "config.json").read_text())
    opened_as = transformers.AutoModelForImageTextToText if is_wrapper else \
        transformers.AutoModelForCausalLM
    model, report = opened_as.from_pretrained(
        folder, output_loading_info=True, device_map="cpu",
        **{"torch_dtype" if older else "dtype": dtype}, **more)
    wrong = {kind: sorted(map(str, names)) for kind, names in report.items() if names}
    for parameter in model.parameters():  # stacks of experts have the type of their scales
        if parameter.ndim == 3 and parameter.is_floating_point() and dtype == torch.float32:
            parameter.data = parameter.data.float()
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
    model, wrong, dtype = by_transformers(
        folder, quantization_config=transformers.FineGrainedFP8Config(dequantize=True))
    return torch.nn.Module.float(model), wrong, dtype  # it dequantizes to bf16, whatever it is told


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
    section = json.loads((folder / "config.json").read_text())["quantization_config"]
    excluded = json.loads((folder / "hf_quant_config.json").read_text())["quantization"]
    assert sorted(excluded["exclude_modules"]) == sorted(section["ignore"])
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
    for name in [name for name in tensors if name.endswith(".weight")]:
        packed = tensors[name]
        if packed.dtype in FLOATS:
            continue
        tensors.pop(name)
        tensors.pop(name.removesuffix("weight") + "input_scale", None)
        scale = tensors.pop(name + "_scale")
        if packed.dtype == torch.float8_e4m3fn:  # a factor for the tensor
            state[name] = packed.float() * scale
            continue
        rows, half = packed.shape
        factor = tensors.pop(name + "_scale_2")
        assert packed.dtype == torch.uint8
        assert scale.dtype == torch.float8_e4m3fn and factor.shape == ()
        state[name] = NVFP4QTensor(torch.Size((rows, 2 * half)), torch.float32, packed).dequantize(
            scale=scale, double_scale=factor, block_sizes={-1: 16})
    state.update({name: tensor.float() for name, tensor in tensors.items()})
    return compare.text_model(folder, state), {}, torch.float32


def compressed_weights(folder):
    """By the compressors of compressed-tensors, with scales in f32: it multiplies in their type.
    A module of several groups is of the one that names it, else of the first whose compressor
    knows its tensors."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.nvfp4 import base
    from compressed_tensors.quantization import QuantizationConfig
    base.unpack_fp4_from_uint8 = functools.partial(base.unpack_fp4_from_uint8, dtype=torch.float32)
    section = json.loads((folder / "config.json").read_text())["quantization_config"]
    config = QuantizationConfig.model_validate(section)
    modules = {}
    for name, tensor in compare.tensors_of(folder).items():
        module, local = name.rsplit(".", 1)
        floats = tensor.dtype in (torch.bfloat16, torch.float16)
        modules.setdefault(module, {})[local] = tensor.float() if floats else tensor
    weights = {}
    for module, tensors in modules.items():
        packed = "weight_packed" if "weight_packed" in tensors else "weight"
        if packed == "weight_packed" or "weight_scale" in tensors:
            schemes = sorted(config.config_groups.values(), key=lambda s: module not in s.targets)
            scheme = next(scheme for scheme in schemes
                          if ("pack" in (scheme.format or config.format)) ==
                          (packed == "weight_packed"))
            compressor = BaseCompressor.get_value_from_registry(scheme.format or config.format)
            done = compressor.decompress(tensors, scheme)
            tensors = {"weight": done["weight"].float(),
                       **{local: tensors[local] for local in tensors if local == "bias"}}
        weights.update({f"{module}.{local}": tensor for local, tensor in tensors.items()})
    return weights


def by_compressor(folder):
    """Experts for which transformers has no modules, or whose factors it drops: as the compressors
    read them, under the names of transformers."""
    return compare.text_model(folder, compressed_weights(folder)), {}, torch.float32


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
