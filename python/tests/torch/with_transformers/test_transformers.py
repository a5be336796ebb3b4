"""Models of transformers with our layers, against the references of the golden models."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

import subbyte
import subbyte.transformers
from subbyte.torch.modules import SubbyteExperts, SubbyteLinear
from subbyte.transformers._quantizer import gate_of

sys.path.append(str(Path(__file__).parents[1]))
import kbit_model  # noqa: E402
import test_manual  # noqa: E402

GOLDENS = Path(__file__).parents[4] / "tests" / "data" / "goldens"
# One of each way in which weights are stored, and experts of each.
MODELS = ("qwen3-awq", "qwen3-gptq-v1", "qwen3-gptq-act-order", "gptqmodel-2-bits",
          "gptqmodel-3-bits", "gptqmodel-8-bits-v2-act-order", "qwen3-biases-gptq",
          "llmcompressor-w4a16-asym", "llmcompressor-w3a16-asym", "llmcompressor-0-12-actorder",
          "llmcompressor-nvfp4", "llmcompressor-mxfp4", "modelopt-nvfp4",
          "bitsandbytes-nf4-double", "qwen3-fp8-blocks", "qwen3-fp8-tensors", "qwen3-fp8-nvfp4")
EXPERTS = ("autoawq-qwen3-moe", "llmcompressor-qwen3-moe", "qwen3-moe-fp8", "gpt-oss-mxfp4")
# Layers with a state, as modules that only their classes have, and in a mixture of experts.
DELTA_NETS = ("qwen3_5-awq", "qwen3_5-int4", "qwen3_5-fp8", "qwen3_5-fp8-nvfp4")
DELTA_NET_EXPERTS = ("qwen3_5-moe-awq", "qwen3_5-moe-fp8", "qwen3_5-moe-fp8-nvfp4")
# One of each method that a configuration may name.
METHODS = ("qwen3-awq", "qwen3-gptq-act-order", "llmcompressor-w4a16-asym",
           "bitsandbytes-nf4-double", "llmcompressor-nvfp4", "modelopt-nvfp4",
           "llmcompressor-mxfp4", "qwen3-fp8-blocks", "qwen3-fp8-tensors", "gpt-oss-mxfp4",
           "qwen3-moe-fp8")


def tolerance(config, reference: torch.Tensor) -> float:
    """The bound of tests/support/golden_bound.h, which derives it."""
    tokens = reference.shape[0]
    experts = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
    inner = experts and getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    heads = config.num_attention_heads * config.head_dim
    terms = config.num_hidden_layers * (2 * config.hidden_size + inner + config.head_dim + tokens +
                                        heads) + config.hidden_size
    products = 4 * config.num_hidden_layers + 1
    rounding = math.sqrt(2) * 2.0**-17  # the most that an instruction set rounds activations by
    error = math.sqrt(2.0**-48 * terms + products * rounding**2 / 3)
    size = reference.double().square().mean().sqrt().item()
    return 2 * math.sqrt(2 * math.log(reference.numel())) * size * error


def load(name: str, **arguments):
    return subbyte.transformers.load(GOLDENS / name, dtype=torch.float32,
                                     attn_implementation="eager", **arguments)


def count(model, kind) -> int:
    return sum(isinstance(module, kind) for module in model.modules())


class Models(unittest.TestCase):
    def check_logits(self, name: str, model) -> None:
        reference = load_file(GOLDENS / name / "reference.safetensors")
        for i in range(3):
            want = reference[f"prompt{i}.logits"]
            ids = reference[f"prompt{i}.ids"].long().unsqueeze(0).to(model.device)
            with torch.inference_mode():
                found = model(ids).logits[0].float().cpu()
            worst = (found - want).abs().max().item()
            self.assertLessEqual(worst, tolerance(model.config, want), f"{name}, prompt {i}")

    def test_logits_are_those_of_the_reference(self):
        for name in (*MODELS, *EXPERTS, *DELTA_NETS, *DELTA_NET_EXPERTS):
            with self.subTest(name=name):
                model = load(name)
                kind = subbyte.transformers.SubbyteLinear
                if name in (*EXPERTS, *DELTA_NET_EXPERTS):
                    kind = subbyte.transformers.SubbyteExperts
                self.assertGreater(count(model, kind), 0)
                self.check_logits(name, model)

    def test_a_wrapped_model_is_what_the_program_computes(self):
        """The class for the text alone, and the one that sees, too."""
        ids = [3, 17, 9, 44, 5, 100, 23]
        with tempfile.TemporaryDirectory() as folder:
            path, logits = Path(folder) / "awq", Path(folder) / "logits.safetensors"
            subbyte.quantize(GOLDENS / "qwen3_5-wrapped-bf16", path, format="awq")
            subprocess.run([sys.executable, "-m", "subbyte", "logits", path, "--device", "cpu",
                            "--ids", ",".join(map(str, ids)), "-o", logits], check=True)
            want = load_file(logits)["logits"]
            for model_class in (transformers.AutoModelForCausalLM,
                                transformers.AutoModelForImageTextToText):
                model = subbyte.transformers.load(path, model_class=model_class,
                                                  dtype=torch.float32, attn_implementation="eager")
                self.assertEqual(count(model, subbyte.transformers.SubbyteLinear), 25)
                with torch.inference_mode():
                    found = model(torch.tensor([ids])).logits[0]
                worst = (found - want).abs().max().item()
                self.assertLessEqual(worst, tolerance(model.config.get_text_config(), want))

    def test_from_pretrained_takes_the_configuration(self):
        path = GOLDENS / "qwen3-awq"
        config = transformers.AutoConfig.from_pretrained(path)
        config.quantization_config["quant_method"] = "subbyte"
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, config=config, dtype=torch.float32, attn_implementation="eager")
        self.assertEqual(count(model, torch.nn.Linear), 1)  # the head
        self.check_logits("qwen3-awq", model)
        linear = next(m for m in model.modules()
                      if isinstance(m, subbyte.transformers.SubbyteLinear))
        types = [t.dtype for t in linear.weight if isinstance(t, torch.Tensor)]
        linear.to(torch.bfloat16)  # what packed weights are made of is no number of the model
        self.assertEqual([t.dtype for t in linear.weight if isinstance(t, torch.Tensor)], types)

    def test_blocks_of_the_manual_run(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(test_manual.PAGE.parents[1])
        names = test_manual.run_blocks()
        self.assertEqual(tuple(names["x_q"].shape), (128, 256))
        prompt = names["tokenizer"]("The moor").input_ids
        self.assertEqual(names["tokens"][0, :len(prompt)].tolist(), prompt)
        self.assertGreater(count(names["model"], subbyte.transformers.SubbyteLinear), 0)

    def test_experts_one_by_one_are_the_same(self):
        for name in EXPERTS:
            model = load(name)
            module = next(m for m in model.modules()
                          if isinstance(m, subbyte.transformers.SubbyteExperts))
            x = torch.randn(5, model.config.hidden_size)
            index = torch.stack([torch.randperm(4)[:2] for _ in range(5)])
            weights = torch.rand(5, 2)
            together = module(x, index, weights)
            apart = module._one_by_one(x, index, weights)
            self.assertTrue(torch.allclose(together, apart, rtol=1e-4, atol=1e-5), name)

    def test_generates_with_a_static_cache_under_compile(self):
        for name in ("qwen3-gptq-act-order", "gpt-oss-mxfp4"):
            model = load(name)
            reference = load_file(GOLDENS / name / "reference.safetensors")
            compiled = transformers.CompileConfig(fullgraph=True, backend="aot_eager")
            compiled._compile_all_devices = True
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            ids = reference["prompt1.ids"].long().unsqueeze(0)
            # Ties of logits may fall either way: as many tokens as are the same in f32 here.
            found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8,
                                   do_sample=False, cache_implementation="static",
                                   compile_config=compiled)
            self.assertEqual(found[0, ids.shape[1]:].tolist(),
                             reference["prompt1.greedy"][:8].tolist(), name)
            self.assertGreater(torch._dynamo.utils.counters["stats"]["unique_graphs"], 0)

    def test_generates_with_each_method(self):
        for name in (*METHODS, *DELTA_NETS[:1], *DELTA_NET_EXPERTS[:1]):
            with self.subTest(name=name):
                model = load(name)
                reference = load_file(GOLDENS / name / "reference.safetensors")
                ids = reference["prompt1.ids"].long().unsqueeze(0)
                found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4,
                                       do_sample=False, disable_compile=True,
                                       cache_implementation="static")
                self.assertEqual(found[0, ids.shape[1]:].tolist(),
                                 reference["prompt1.greedy"][:4].tolist())

    def test_kbit_beside_dequantized_weights(self):
        for form in ("kbit2", "kbit3", "kbit4", "kbit5"):
            with self.subTest(format=form), tempfile.TemporaryDirectory() as folder:
                path, ids, want = kbit_model.make(Path(folder), form)
                model = subbyte.transformers.load(path, dtype=torch.float32,
                                                  attn_implementation="eager")
                self.assertGreater(count(model, subbyte.transformers.SubbyteLinear), 0)
                with torch.inference_mode():
                    found = model(torch.tensor([ids])).logits[0]
                self.assertEqual(found.shape, want.shape)
                worst = (found - want).abs().max().item()
                self.assertLessEqual(worst, tolerance(model.config, want))

    def test_saves_the_original_form(self):
        for name in (*METHODS, "qwen3_5-awq", "qwen3_5-moe-fp8"):
            with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
                # A_log of a delta net is f32, which transformers rounds to the config's type.
                dtype = {"dtype": torch.float32} if name.startswith("qwen3_5") else {}
                subbyte.transformers.load(GOLDENS / name, **dtype).save_pretrained(folder)
                want, found = (subbyte.open_checkpoint(p) for p in (GOLDENS / name, folder))
                self.assertEqual(set(found), set(want))
                for tensor in {t for m in want if want.describe(m)["kind"] != "dense"
                               for t in want.describe(m)["tensors"]}:
                    a, b = want.tensors[tensor], found.tensors[tensor]
                    self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
                    self.assertEqual(a.numpy().tobytes(), b.numpy().tobytes())
                configs = [json.loads((Path(p) / "config.json").read_text())["quantization_config"]
                           for p in (GOLDENS / name, folder)]
                self.assertEqual(*configs)
                again = subbyte.transformers.load(folder, dtype=torch.float32,
                                                  attn_implementation="eager")
                self.check_logits(name, again)

    @unittest.skipUnless(torch.cuda.is_available(), "no GPU")
    def test_on_a_gpu(self):
        """Each layer of ours in f16 beside itself on the CPU in f32, of the inputs that it had.

        Logits would not do: transformers rounds all between to f16, too, and its gpt-oss with
        dequantized weights is 0.3 from itself in f32, as a router chooses other experts.
        """
        for name in ("qwen3-awq", "gpt-oss-mxfp4"):
            ids = load_file(GOLDENS / name / "reference.safetensors")["prompt2.ids"].long()
            model = subbyte.transformers.load(GOLDENS / name, dtype=torch.float16,
                                              attn_implementation="eager").to("cuda")
            calls = []
            layers = [m for m in model.modules() if isinstance(m, (SubbyteLinear, SubbyteExperts))]
            for layer in layers:
                layer.register_forward_hook(lambda *call: calls.append(call))
            with torch.inference_mode():
                self.assertTrue(model(ids.unsqueeze(0).cuda()).logits.is_cuda)
            self.assertEqual({id(layer) for layer, *_ in calls}, {id(layer) for layer in layers})
            found = [(layer, *(t.cpu() for t in (*x, y))) for layer, x, y in calls]
            for layer in layers:
                layer._forward_hooks.clear()
            model.to("cpu")
            for layer, *x, y in found:
                with torch.inference_mode():
                    want = layer(*(t.float() if t.is_floating_point() else t for t in x))
                # A product rounds once, by 2^-11 at most. Experts round four times one after the
                # other, and the gate's slope makes at most twice of one.
                bound = 2.0**-11 * (1 if isinstance(layer, SubbyteLinear) else 5)
                self.assertLessEqual((y.float() - want).norm().item(), bound * want.norm().item())

    def test_refuses(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in (GOLDENS / "qwen3-awq").iterdir():
                (Path(folder) / file.name).write_bytes(file.read_bytes())
            config = json.loads((Path(folder) / "config.json").read_text())
            config["quantization_config"]["bits"] = 5
            (Path(folder) / "config.json").write_text(json.dumps(config))
            with self.assertRaises((subbyte.Error, ValueError)):
                subbyte.transformers.load(folder)


class Gates(unittest.TestCase):
    SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
             "num_key_value_heads": 2, "vocab_size": 64, "intermediate_size": 32}

    def experts(self, model_type: str, **keys):
        config = transformers.AutoConfig.for_model(model_type, **self.SIZES, **keys)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
        return next(m for name, m in model.named_modules() if name.endswith("experts"))

    def test_experts_with_another_gate_than_ours_are_refused(self):
        self.assertIsNone(gate_of(self.experts("qwen3_moe", num_experts=2)))
        experts = self.experts("gpt_oss", num_local_experts=2, swiglu_limit=3.0)
        self.assertEqual(gate_of(experts), (1.702, experts.limit, 1.0))
        experts.limit = 2.5  # transformers 5.17 does not take it from the configuration
        self.assertEqual(gate_of(experts), (1.702, 2.5, 1.0))
        with self.assertRaisesRegex(ValueError, "expected experts whose gate is SiLU"):
            gate_of(self.experts("qwen3_moe", num_experts=2, hidden_act="gelu"))


if __name__ == "__main__":
    unittest.main()
