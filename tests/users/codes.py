"""The stable codes of errors and findings: those that literals of the sources name, and the
manual of the C interface. A list that may grow, so that what is new does not differ."""
from __future__ import annotations

import re
import subprocess
from pathlib import Path

from kept import ROOT, Texts, as_text

FAMILIES = """array batch blocks c chat completion config context convert cuda device divergence
execution export file generate gptq group_gemm hadamard import index isa jinja job json kbit kv
layout linear logits matrix memory model naive_quantized orin pack pack_quantized perplexity plan
python quantization quantize recast resume results safetensors sampling scheduler session synth
template text tokenizer torch usage verify vq""".split()
LITERAL = re.compile(rf'["`]((?:{"|".join(FAMILIES)})\.[a-z0-9_]+)["`]')
# Names of files, and of modules of models.
NO_CODE = re.compile(
    r"(?<!^usage)\.(json|h|cc|safetensors|model|norm|layers|embed_tokens|visual|language_model)$"
    r"|^linear\.weight$|^torch\.(float8_e4m3fn|uint8)$")


def sources() -> list[Path]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "src", "app", "include", "python",
                             "docs/c.md"], check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.splitlines()
            if re.search(r"\.(cc|h|def|py|cu|cuh)$|^docs/c\.md$", name)
            and not re.search(r"_test\.cc$|^python/tests/", name)]


def texts(build: Path) -> Texts:
    found = {code for path in sources() if path.exists()
             for code in LITERAL.findall(path.read_text())}
    return {"codes.txt": as_text(sorted(code for code in found if not NO_CODE.search(code)))}
