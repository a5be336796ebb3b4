"""What the plug-in of vLLM claims and multiplies; vLLM itself is not needed."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path

import torch

import subbyte
from subbyte import vllm

GOLDENS = Path(__file__).parents[4] / "tests" / "data" / "goldens"


class Plugin(unittest.TestCase):
    def test_claims_what_vllm_refuses_alone(self):
        gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True,
                "desc_act": False}
        nf4 = {"quant_method": "bitsandbytes", "load_in_4bit": True}
        for claimed, config in (
                (False, gptq), (True, {**gptq, "desc_act": True}), (True, {**gptq, "bits": 3}),
                (False, {**gptq, "desc_act": True, "group_size": -1}),
                (True, {**gptq, "sym": False}), (False, {"quant_method": "awq"}),
                (True, nf4), (False, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
                (True, {"quant_method": "kbit", "bits": 3}), (False, {})):
            self.assertEqual(vllm.claims(config), claimed, config)

    def test_layers_side_by_side(self):
        packed = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
        names = vllm.names_of("model.layers.0.self_attn.qkv_proj", packed)
        self.assertEqual(names, [f"model.layers.0.self_attn.{c}_proj" for c in "qkv"])
        self.assertEqual(vllm.names_of("lm_head", packed), ["lm_head"])
        self.assertEqual(vllm.names_of("a.gate_up_proj", packed), ["a.gate_proj", "a.up_proj"])
        for golden in ("qwen3-gptq-act-order", "gptqmodel-3-bits", "autoround-asymmetric",
                       "bitsandbytes-nf4-double"):
            checkpoint = subbyte.open_checkpoint(GOLDENS / golden)
            parts = vllm.Parts(checkpoint, names)
            whole = torch.cat([torch.from_numpy(checkpoint[n].dequantize()) for n in names])
            x, bias = torch.randn(3, whole.shape[1]), torch.randn(whole.shape[0])
            size = x.abs() @ whole.abs().T
            off = (parts(x, bias) - (x @ whole.T + bias)).abs()
            self.assertTrue((off <= 2.0**-15 * size + 1e-6).all(), golden)

    def test_layers_of_kbit(self):
        name = "model.layers.0.mlp.down_proj"
        with tempfile.TemporaryDirectory() as folder:
            for form in ("kbit2", "kbit5"):
                path = Path(folder) / form
                subbyte.quantize(GOLDENS / "qwen3-bf16", path, format=form)
                self.assertTrue(vllm.claims(json.loads(
                    (path / "config.json").read_text())["quantization_config"]))
                checkpoint = subbyte.open_checkpoint(path)
                whole = torch.from_numpy(checkpoint[name].dequantize())
                x = torch.randn(3, whole.shape[1])
                off = (vllm.Parts(checkpoint, [name])(x) - x @ whole.T).abs()
                self.assertTrue((off <= 2.0**-15 * (x.abs() @ whole.abs().T) + 1e-6).all())

    @unittest.skipUnless(torch.cuda.is_available(), "no GPU")
    def test_layers_on_a_gpu(self):
        names = ["model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj"]
        checkpoint = subbyte.open_checkpoint(GOLDENS / "qwen3-gptq-act-order")
        parts = vllm.Parts(checkpoint, names)
        whole = torch.cat([torch.from_numpy(checkpoint[n].dequantize()) for n in names])
        x = torch.randn(3, whole.shape[1]).half()
        want, size = x.double() @ whole.T.double(), x.double().abs() @ whole.T.double().abs()
        found = parts.to("cuda")(x.cuda())
        self.assertTrue(found.is_cuda)
        # One rounding to f16; weights are exact in it or rounded to it before the sums.
        off = (found.cpu().double() - want).abs()
        self.assertTrue((off <= 2.0**-11 * want.abs() + 2.0**-11 * size).all())

    def test_experts(self):
        names = {f"a.mlp.experts.{e}.{k}_proj" for e in range(3) for k in ("gate", "up", "down")}
        kinds = vllm.experts_of("a.mlp.experts", names | {"b.mlp.experts.0.up_proj", "a.mlp.gate"})
        self.assertEqual({kind: len(found) for kind, found in kinds.items()},
                         {"gate_proj": 3, "up_proj": 3, "down_proj": 3})
        logits = torch.tensor([[0.0, 2.0, 1.0, -1.0]])
        for renormalize in (False, True):
            weights, chosen = vllm.routes(logits, 2, renormalize)
            self.assertEqual(chosen.tolist(), [[1, 2]])
            want = torch.softmax(logits if not renormalize else logits[:, 1:3], -1)
            self.assertTrue(torch.allclose(weights, want[:, 1:3] if not renormalize else want))

    def test_leaves_out_names_of_a_set(self):
        pattern = vllm.Names({"a.qweight"})
        self.assertTrue(pattern.search("a.qweight"))
        self.assertFalse(pattern.search("b.a.qweight"))


if __name__ == "__main__":
    unittest.main()
