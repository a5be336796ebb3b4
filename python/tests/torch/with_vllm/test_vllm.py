"""vLLM's CPU build with the plug-in, on golden models whose methods vLLM has dropped."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from safetensors.torch import load_file

sys.path.append(str(Path(__file__).parents[1]))

GOLDENS = Path(__file__).parents[4] / "tests" / "data" / "goldens"


def run(folder: str, ids: list[int], chosen: str | None = None) -> tuple[str, list[float], int]:
    """The method, the logarithms of all tokens but the first and one more token; in a process of
    its own, as a second model in one process finds no process groups."""
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
    from vllm import LLM, SamplingParams

    import subbyte.vllm
    subbyte.vllm.register()  # as vLLM does by the entry point of an installed package
    llm = LLM(folder, skip_tokenizer_init=True, dtype="float32", enforce_eager=True,
              max_model_len=64, max_num_seqs=2, quantization=chosen)
    [answer] = llm.generate([{"prompt_token_ids": ids}],
                            SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0,
                                           detokenize=False))
    found = [entry[token].logprob
             for entry, token in zip(answer.prompt_logprobs[1:], ids[1:], strict=True)]
    return llm.llm_engine.model_config.quantization, found, answer.outputs[0].token_ids[0]


class Vllm(unittest.TestCase):
    def check(self, name: str, chosen: str | None = None) -> None:
        """Logarithms and a token of a golden model beside those of its reference."""
        with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
            for file in ("config.json", "model.safetensors"):  # vLLM loads all that lie there
                shutil.copy(GOLDENS / name / file, folder)
            reference = load_file(GOLDENS / name / "reference.safetensors")
            ids = reference["prompt1.ids"].tolist()
            want = torch.log_softmax(reference["prompt1.logits"].double(), -1)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                method, found, token = pool.apply(run, (folder, ids, chosen))
            self.assertEqual(method, "subbyte")
            # Its attention of float32 and ours are sums in another order each.
            for i, logprob in enumerate(found):
                self.assertAlmostEqual(logprob, want[i, ids[i + 1]].item(), delta=2e-3)
            self.assertEqual(token, reference["prompt1.greedy"][0].item())

    def test_logprobs_are_those_of_the_reference(self):
        for name in ("qwen3-gptq-act-order", "gptqmodel-3-bits", "bitsandbytes-nf4-double"):
            self.check(name)

    def test_experts(self):
        for name in ("llmcompressor-qwen3-moe", "qwen3-moe-fp8"):
            self.check(name, "subbyte")

    def test_kbit_is_as_its_dequantized_weights(self):
        import kbit_model
        with tempfile.TemporaryDirectory() as folder:
            path, ids, logits = kbit_model.make(Path(folder), "kbit3")
            want = torch.log_softmax(logits.double(), -1)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                method, found, token = pool.apply(run, (str(path), ids))
        self.assertEqual(method, "subbyte")
        for i, logprob in enumerate(found):
            self.assertAlmostEqual(logprob, want[i, ids[i + 1]].item(), delta=2e-3)
        self.assertEqual(token, logits[-1].argmax().item())


if __name__ == "__main__":
    unittest.main()
