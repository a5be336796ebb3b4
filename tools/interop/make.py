"""Makes tiny checkpoints with the real tools, each as its tool writes it.

    build/interop/tools/bin/python tools/interop/make.py tools WORK [--only TEXT]

The first argument names the environment: each makes the sources of its own tools.
"""

import argparse
import functools
import json
import os
import pathlib
import shutil
import sys
import traceback

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["GPTQMODEL_CPU_WORKERS"] = "2"  # it asks for two, and would start one on two cores

import torch
import transformers

import modelopt_formats
import tiny

SOURCES = {}  # environment -> name -> function of the folder


def source(environment, name, make, *arguments, **options):
    SOURCES.setdefault(environment, {})[name] = lambda folder: make(folder, *arguments, **options)


def dense(model, folder):
    """As a tool that wants a directory finds it, with a tokenizer."""
    place = folder.parent / "dense" / folder.name
    model.save_pretrained(place)
    tiny.tokenizer().save_pretrained(place)
    return place


def bf16(folder, model=tiny.qwen3):
    model().to(torch.bfloat16).save_pretrained(folder)


def gptqmodel(folder, model=tiny.qwen3, **config):
    import gptqmodel
    from gptqmodel.quantization import FORMAT, METHOD
    if config.get("quant_method") == "awq":
        config.update(quant_method=METHOD.AWQ, format=FORMAT.GEMM)
    quantize = gptqmodel.QuantizeConfig(**config)
    loaded = gptqmodel.GPTQModel.load(str(dense(model().to(torch.float16), folder)), quantize,
                                      backend=gptqmodel.BACKEND.TORCH, device="cpu")
    rows = [{"input_ids": row.tolist(), "attention_mask": [1] * len(row)} for row in tiny.texts()]
    loaded.quantize(rows, batch_size=4)
    loaded.save(str(folder))


def bitsandbytes(folder, model=tiny.qwen3, **config):
    quantize = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                               **config)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        dense(model().to(torch.bfloat16), folder), quantization_config=quantize,
        dtype=torch.bfloat16, device_map="cpu")
    model.save_pretrained(folder)


def hqq(folder, model=tiny.qwen3, **config):
    """Its class asks for a GPU, and needs none."""
    from transformers.quantizers.quantizer_hqq import HqqHfQuantizer

    def on_a_cpu(self, *_, **__):
        self.using_multi_gpu = False
        self.torch_dtype = torch.float16

    HqqHfQuantizer.validate_environment = on_a_cpu
    model = transformers.AutoModelForCausalLM.from_pretrained(
        dense(model().to(torch.float16), folder), torch_dtype=torch.float16, device_map="cpu",
        quantization_config=transformers.HqqConfig(**config))
    model.save_pretrained(folder)


def llm_compressor(folder, recipe, model=tiny.qwen3, calibrated=False, whole=False):
    """`whole`: with the parts that see, as published; else the text model that transformers makes
    of such files, which writes their names under a config of its own."""
    from datasets import Dataset
    from llmcompressor import oneshot
    place = dense(model().to(torch.bfloat16), folder)
    opened_as = transformers.AutoModelForImageTextToText if whole else \
        transformers.AutoModelForCausalLM
    loaded = opened_as.from_pretrained(place, dtype="auto")
    more = {}
    if calibrated:
        rows = {"input_ids": tiny.texts().tolist()}
        more = {"dataset": Dataset.from_dict(rows), "num_calibration_samples": 16,
                "max_seq_length": 64}
    oneshot(model=loaded, tokenizer=tiny.tokenizer(), recipe=recipe(), **more)
    loaded.save_pretrained(folder, save_compressed=True)
    tiny.tokenizer().save_pretrained(folder)  # GPTQModel opens nothing without one


IGNORED = ["lm_head", "re:.*router"]


def rounded(**scheme):
    def recipe():
        from llmcompressor.modifiers.quantization import QuantizationModifier
        return QuantizationModifier(targets="Linear", ignore=IGNORED, **scheme)
    return recipe


def by_gptq(actorder, **scheme):
    def recipe():
        from llmcompressor.modifiers.gptq import GPTQModifier
        return GPTQModifier(targets="Linear", ignore=IGNORED, actorder=actorder, **scheme)
    return recipe


def integers(bits, group=32, symmetric=True, **more):
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric,
               "strategy": "group" if group > 0 else "channel", **more}
    if group > 0:
        weights["group_size"] = group
    return {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


def auto_round(folder, export, model=tiny.qwen3, **config):
    from auto_round import AutoRound
    rounder = AutoRound(model().to(torch.bfloat16), tiny.tokenizer(), iters=0,
                        disable_opt_rtn=True, device_map="cpu", seqlen=64, nsamples=16,
                        dataset=[row[None] for row in tiny.texts()], **config)
    rounder.quantize_and_save(str(folder), format=export)
    if not (folder / "config.json").exists():  # it names a folder by bits and group size
        inner = next(folder.iterdir())
        inner.rename(folder.with_suffix(".inner"))
        folder.rmdir()
        folder.with_suffix(".inner").rename(folder)


def modelopt(folder, config, model=tiny.qwen3, group=128):
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    def forward(quantized):
        for row in tiny.texts(4):
            quantized(row[None])

    made = transformers.AutoModelForCausalLM.from_pretrained(
        dense(model().to(torch.bfloat16), folder), dtype=torch.bfloat16)
    with torch.no_grad():
        quantized = mtq.quantize(made, modelopt_formats.config(config, group), forward)
        export_hf_checkpoint(quantized, export_dir=folder)


def golden(folder):
    """Written by another program for a test of this project, in the layout of gpt-oss."""
    shutil.copytree(pathlib.Path(__file__).parents[2] / "tests/data/goldens/gpt-oss-mxfp4", folder,
                    ignore=shutil.ignore_patterns("reference*"))


def autoawq(folder, model=tiny.qwen3, clip=True, **config):
    import awq
    place = dense(model().to(torch.float16), folder)
    made = awq.AutoAWQForCausalLM.from_pretrained(str(place), device_map="cpu")
    made.quantize(tiny.tokenizer(), quant_config={"w_bit": 4, "version": "GEMM", **config},
                  calib_data=tiny.texts().tolist(), max_calib_seq_len=64, max_calib_samples=16,
                  apply_clip=clip)
    made.save_quantized(str(folder))
    tiny.tokenizer().save_pretrained(folder)


def declare_gptqmodel():
    for bits in (2, 3, 4, 8):
        source("tools", f"GPTQModel {bits} bits", gptqmodel, bits=bits, group_size=32)
        source("tools", f"GPTQModel {bits} bits, asymmetric", gptqmodel, bits=bits, group_size=32,
               sym=False)
        source("tools", f"GPTQModel {bits} bits, zero points 0", gptqmodel, tiny.skewed, bits=bits,
               group_size=32, sym=False)
    source("tools", "GPTQModel 4 bits, act-order", gptqmodel, bits=4, group_size=32, desc_act=True)
    source("tools", "GPTQModel 4 bits, group 128, v2", gptqmodel, bits=4, group_size=128,
           sym=False, format="gptq_v2")
    source("tools", "GPTQModel 4 bits, whole rows", gptqmodel, bits=4, group_size=-1,
           act_group_aware=False)
    source("tools", "GPTQModel 4 and 8 bits", gptqmodel, bits=4, group_size=32,
           dynamic={r"+:.*\.down_proj": {"bits": 8, "group_size": 64}, r"-:.*\.k_proj": {}})
    source("tools", "GPTQModel gpt-oss 4 bits", gptqmodel, tiny.gpt_oss, bits=4, group_size=32)
    source("tools", "GPTQModel AWQ", gptqmodel, bits=4, group_size=32, quant_method="awq",
           sym=False)


def declare_llm_compressor():
    def add(name, recipe, environment="tools", **more):
        source(environment, f"llm-compressor {name}", llm_compressor, recipe, **more)
    add("W2A16", rounded(**integers(2)))
    add("W3A16", rounded(**integers(3)))
    add("W4A16", rounded(**integers(4)))
    add("W8A16, channels", rounded(**integers(8, -1)))
    add("W4A16_ASYM", rounded(**integers(4, 32, False)))
    add("W3A16_ASYM", rounded(**integers(3, 32, False)))
    add("W8A16_ASYM", rounded(**integers(8, 64, False)))
    add("W4A16, actorder weight", by_gptq("weight", **integers(4)), calibrated=True)
    add("W4A16, actorder group", by_gptq("group", **integers(4)), calibrated=True)
    add("NVFP4A16", rounded(scheme="NVFP4A16"))
    add("MXFP4A16", rounded(scheme="MXFP4A16"))
    add("gpt-oss MXFP4A16", rounded(scheme="MXFP4A16"), model=tiny.gpt_oss)
    add("gpt-oss W4A16", rounded(**integers(4)), model=tiny.gpt_oss)
    add("gpt-oss NVFP4A16", rounded(scheme="NVFP4A16"), model=tiny.gpt_oss)
    add("W4A16, actorder group", by_gptq("group", **integers(4)), "ct17", calibrated=True)
    add("W3A16", rounded(**integers(3)), "ct17")
    add("W4A16_ASYM", rounded(**integers(4, 32, False)), "ct17")


def declare_auto_round():
    def add(name, *arguments, **more):
        source("tools", f"AutoRound {name}", auto_round, *arguments, **more)
    for bits in (2, 3, 4, 8):
        add(f"auto_round {bits} bits", "auto_round", bits=bits, group_size=32)
    add("auto_round 4 bits, asymmetric", "auto_round", bits=4, group_size=32, sym=False)
    add("auto_gptq 4 bits", "auto_gptq", bits=4, group_size=32)
    add("auto_gptq 4 bits, asymmetric", "auto_gptq", bits=4, group_size=32, sym=False)
    add("auto_gptq 2 bits, asymmetric", "auto_gptq", bits=2, group_size=32, sym=False)
    add("auto_awq", "auto_awq", bits=4, group_size=32)
    add("auto_awq, asymmetric", "auto_awq", bits=4, group_size=32, sym=False)
    add("auto_round:auto_gptq", "auto_round:auto_gptq", bits=4, group_size=32)
    add("auto_round:auto_awq", "auto_round:auto_awq", bits=4, group_size=32, sym=False)
    add("llm_compressor W4A16", "llm_compressor", scheme="W4A16", group_size=32)
    add("llm_compressor NVFP4", "llm_compressor", scheme="NVFP4")
    add("llm_compressor MXFP4", "llm_compressor", scheme="MXFP4")


# Hybrid models: what their quantizers leave in 16 bits.
GATES = ["re:.*in_proj_(a|b|ba)$", "re:.*mlp.gate$", "re:.*shared_expert_gate$"]
UNREAD = ["re:.*visual.*", "re:^mtp.*"]
WIDE = {"hidden_size": 128, "head_dim": 64, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
        "intermediate_size": 256, "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 128}


def fine_grained(folder, model):
    """transformers' own FP8, which leaves sides that are no multiples of 128. It asks for a GPU,
    and quantizes without one."""
    from transformers.quantizers import quantizer_finegrained_fp8 as own
    own.FineGrainedFP8HfQuantizer.validate_environment = lambda *_, **__: None
    made = transformers.AutoModelForCausalLM.from_pretrained(
        dense(model().to(torch.bfloat16), folder), dtype=torch.bfloat16, device_map="cpu",
        quantization_config=transformers.FineGrainedFP8Config(
            modules_to_not_convert=["lm_head", "in_proj_a", "in_proj_b", "in_proj_ba", "mlp.gate",
                                    "shared_expert_gate"]))
    made.save_pretrained(folder)


def integers_beside(kept):
    """int4 in all linear layers but `kept`, as the recipes of llm-compressor have it."""
    def recipe():
        from llmcompressor.modifiers.quantization import QuantizationModifier
        return QuantizationModifier(targets="Linear", ignore=["lm_head", *kept, *UNREAD],
                                    **integers(4))
    return recipe


def fp8_beside_nvfp4():
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme
    return QuantizationModifier(ignore=["lm_head", *GATES, *UNREAD], config_groups={
        "group_0": preset_name_to_scheme("FP8_DYNAMIC", [
            "re:.*self_attn.*", r"re:.*linear_attn\.(in_proj_(qkvz|qkv|z)|out_proj)$"]),
        "group_1": preset_name_to_scheme("NVFP4A16", [r"re:.*mlp\..*_proj$"])})


def fp8_blocks():
    from llmcompressor.modifiers.quantization import QuantizationModifier
    return QuantizationModifier(targets="Linear", scheme="FP8_BLOCK",
                                ignore=["lm_head", *GATES, *UNREAD])


def declare_delta_nets():
    models = {"Qwen3.5": tiny.qwen3_5, "Qwen3.5 wrapped": tiny.qwen3_5_wrapped,
              "Qwen3.5-MoE": tiny.qwen3_5_moe, "Qwen3-Next": tiny.qwen3_next}
    for name, model in models.items():
        wide = functools.partial(model, **WIDE)
        model = functools.partial(model, linear_value_head_dim=32)  # as groups have 32 inputs
        source("tools", f"transformers {name} bf16", bf16, model)
        source("tools", f"transformers {name} FP8", fine_grained, wide)
        for kind, recipe in {"W4A16": integers_beside(GATES),
                             "W4A16, gates too": integers_beside([r"re:.*mlp\.gate$"]),
                             "W4A16, MLP": integers_beside(["re:.*linear_attn.*", *GATES]),
                             "FP8_BLOCK": fp8_blocks,
                             "FP8 beside NVFP4A16": fp8_beside_nvfp4}.items():
            source("tools", f"llm-compressor {name} {kind}", llm_compressor, recipe, model)
            if "wrapped" in name:
                source("tools", f"llm-compressor {name} {kind}, whole", llm_compressor, recipe,
                       model, whole=True)
        source("tools", f"AutoRound {name} auto_round 4 bits", auto_round, "auto_round", model,
               bits=4, group_size=32)
        source("tools", f"AutoRound {name} auto_awq", auto_round, "auto_awq", model, bits=4,
               group_size=32)
        source("tools", f"ModelOpt {name} NVFP4", modelopt, "NVFP4_DEFAULT_CFG", model)
        source("tools", f"ModelOpt {name} FP8", modelopt, "FP8_DEFAULT_CFG", model)


def declare():
    source("tools", "transformers bf16", bf16)
    source("tools", "transformers gpt-oss bf16", bf16, tiny.gpt_oss)
    source("tools", "bitsandbytes NF4", bitsandbytes)
    source("tools", "bitsandbytes NF4, double", bitsandbytes, bnb_4bit_use_double_quant=True)
    source("tools", "golden gpt-oss MXFP4", golden)
    declare_gptqmodel()
    declare_llm_compressor()
    declare_auto_round()
    declare_delta_nets()
    source("tools", "ModelOpt NVFP4", modelopt, "NVFP4_DEFAULT_CFG")
    source("tools", "ModelOpt W4A16_NVFP4", modelopt, "W4A16_NVFP4_CFG")
    source("tools", "ModelOpt gpt-oss NVFP4", modelopt, "NVFP4_DEFAULT_CFG", tiny.gpt_oss)
    source("awq", "AutoAWQ", autoawq, zero_point=True, q_group_size=32)
    source("awq", "AutoAWQ, group 128", autoawq, zero_point=True, q_group_size=128)


def folder_of(work, environment, name):
    plain = "".join(c if c.isalnum() or c in ".-" else "_" for c in name)
    return work / environment / plain


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--tool", default="", help="sources whose names begin with this")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    declare()
    for name, make in SOURCES[options.environment].items():
        if options.only not in name or not name.startswith(options.tool):
            continue
        folder = folder_of(options.work.resolve(), options.environment, name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        error = None
        try:
            make(folder)
        except Exception as thrown:  # what a tool throws is its verdict
            traceback.print_exc()
            error = f"{type(thrown).__name__}: {(str(thrown).splitlines() or [''])[0]}"
        note = {"name": name, "environment": options.environment, "error": error}
        pathlib.Path(f"{folder}.source.json").write_text(json.dumps(note) + "\n")
        print("not made" if error else "made", name, error or "", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
