"""The stable codes of errors and findings: those that literals of the sources name, and the
manual of the C interface. A list that may grow, so that what is new does not differ."""
from __future__ import annotations

import re
from pathlib import Path

from kept import ROOT, Texts, as_text

FAMILIES = """array batch blocks c chat completion config context convert cuda device divergence
exchange execution export file generate gguf gptq group_gemm hadamard hqq import index isa jinja job
json kbit kv layout linear logits matrix memory model naive_quantized orin pack pack_quantized
perplexity plan python quantization quantize recast resume results safetensors sampling scheduler
session synth template text tokenizer torch usage verify vq""".split()
LITERAL = re.compile(rf'["`]((?:{"|".join(FAMILIES)})\.[a-z0-9_]+)["`]')
# Names of files, of modules of models, and of keys of GGUF.
NO_CODE = re.compile(
    r"(?<!^usage)\.(json|h|cc|safetensors|model|norm|layers|embed_tokens|visual|language_model)$"
    r"|^model\.embedding_norm$|^tokenizer\.chat_templates?$"
    r"|^linear\.weight$|^torch\.(float8_e4m3fn|uint8)$")


def sources() -> list[Path]:
    found = [ROOT / "docs/c.md"]
    for folder in ("src", "app", "include", "python"):
        found += [path for path in (ROOT / folder).rglob("*")
                  if re.search(r"\.(cc|h|def|py|cu|cuh)$", path.name)
                  and not path.name.endswith("_test.cc")]
    return [path for path in found if ROOT / "python/tests" not in path.parents]


def texts(build: Path) -> Texts:
    found = {code for path in sources()
             for code in LITERAL.findall(path.read_text(encoding="utf-8"))}
    return {"codes.txt": as_text(sorted(code for code in found if not NO_CODE.search(code)))}
