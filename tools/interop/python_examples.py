#!/usr/bin/env python3
"""Runs examples of vLLM and llama-cpp-python with subbyte in their place: nothing but the imports
and the names of models differ.

    tools/interop/python_examples.py MODEL [--vllm FOLDER] [--llama-cpp-python FOLDER] [--names]

MODEL is a model that subbyte runs. A FOLDER is a checkout, or a bare repository, of
github:vllm-project/vllm or github:abetlen/llama-cpp-python, or has the files that are read here at
their places. --names compares the arguments of their functions with
python/tests/foreign_arguments.json, which docs/python_arguments.md is made of, and prints those
that are missing there. The package subbyte must be installed.
"""
from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("examples/basic/offline_inference", "examples/offline_inference/basic")
IMPORTS = [(r"from vllm\.utils[\w.]* import FlexibleArgumentParser",
            "from argparse import ArgumentParser as FlexibleArgumentParser"),
           (r"from vllm[\w.]* import", "from subbyte import"),
           (r"from llama_cpp import Llama\b", "from subbyte import LLM as Llama"),
           (r"from llama_cpp\.\w+ import", "from subbyte import"),
           (r"import llama_cpp\b", "import subbyte as llama_cpp; llama_cpp.Llama = llama_cpp.LLM")]
MODELS = r"((?:\bmodel|model_path|repo_id)\s*=\s*)\"[^\"]*\""
# Of blocks of llama-cpp-python's README that may be refused: what they ask for, and the words.
REFUSED = {"filename=": "GGUF", "json_object": "response_format", "chatml-function-calling":
           "chat_format", "embedding=True": "embedding", "n_ctx=": "longer than the model",
           "LlamaHFTokenizer": "tokenizer.json", "ChatHandler": "text alone",
           "LlamaPromptLookupDecoding": "draft models"}


def text_of(folder: Path, path: str) -> str | None:
    """A file of a checkout or of a bare repository; None where there is none."""
    if (folder / path).is_file():
        return (folder / path).read_text()
    shown = subprocess.run(["git", "--git-dir", folder, "show", f"HEAD:{path}"],
                           capture_output=True, text=True, check=False)
    return shown.stdout if shown.returncode == 0 else None


def ours(program: str, model: str) -> str:
    """The program with our imports and the model's name."""
    for pattern, replacement in IMPORTS:
        program = re.sub(pattern, replacement, program)
    return re.sub(MODELS, lambda found: found[1] + json.dumps(model), program)


def run(title: str, program: str, model: str, *arguments: str) -> bool:
    """Runs it and says how it ended: well, or refused in one line with what it asks for. No other
    exceptions reach it than ours, and those of its imports."""
    expected = [words for sign, words in REFUSED.items() if sign in program]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "example.py"
        script.write_text(ours(program, model))
        done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True,
                              cwd=folder, check=False)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    is_ours = last.startswith(("subbyte._errors.Error: ", "ImportError: subbyte has no "))
    is_right = done.returncode == 0 or (is_ours and any(words in last for words in expected))
    print(f"{title}: {'runs' if done.returncode == 0 else last}{'' if is_right else '  <-- WRONG'}")
    return is_right


def run_vllm(folder: Path, model: str) -> list[bool]:
    results = []
    for name in ("basic.py", "chat.py"):
        found = [text for part in EXAMPLES if (text := text_of(folder, f"{part}/{name}"))]
        results.append(bool(found) and run(f"vllm {name}", found[0], model))
    if found and "--chat-template-path" in found[0]:
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
            file.flush()
            results.append(run("vllm chat.py --chat-template-path", found[0], model,
                               "--max-tokens", "8", "--chat-template-path", file.name))
    return results


def run_llama(folder: Path, model: str) -> list[bool]:
    readme = text_of(folder, "README.md") or ""
    part = readme.partition("## High-level API")[2].partition("## OpenAI Compatible")[0]
    blocks = [block for block in re.findall(r"^```python\n(.*?)^```", part, re.M | re.S)
              if "Llama" in block]
    results = [bool(blocks)]
    for i, block in enumerate(blocks):
        begin = "" if "import" in block else "from llama_cpp import Llama\n"
        results.append(run(f"llama-cpp-python README {i + 1}", begin + block, model))
    return results


def arguments_of(tree: ast.Module, class_name: str, function: str | None) -> list[str]:
    """The arguments of a method, or the public fields of a class."""
    [found] = [node for node in tree.body
               if isinstance(node, ast.ClassDef) and node.name == class_name]
    if function is None:
        return [node.target.id for node in found.body if isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name) and not node.target.id.startswith("_")]
    method = [node for node in found.body
              if isinstance(node, ast.FunctionDef) and node.name == function][-1]
    return [each.arg for each in method.args.posonlyargs + method.args.args + method.args.kwonlyargs
            if each.arg not in ("self", "cls")]


def check_names(vllm: Path | None, llama: Path | None) -> list[bool]:
    """Compares the lists of arguments with the sources; old names may be in them, too."""
    names = json.loads((ROOT / "python/tests/foreign_arguments.json").read_text())
    places = [("vLLM: LLM", vllm, "vllm/entrypoints/llm.py", "LLM", "__init__"),
              ("vLLM: LLM", vllm, "vllm/engine/arg_utils.py", "EngineArgs", None),
              ("vLLM: LLM.generate", vllm, "vllm/entrypoints/llm.py", "LLM", "generate"),
              ("vLLM: LLM.chat", vllm, "vllm/entrypoints/llm.py", "LLM", "chat"),
              ("vLLM: SamplingParams", vllm, "vllm/sampling_params.py", "SamplingParams", None)]
    for function in ("__init__", "from_pretrained", "create_completion", "create_chat_completion"):
        title = "llama-cpp-python: Llama" + ("" if function == "__init__" else f".{function}")
        places.append((title, llama, "llama_cpp/llama.py", "Llama", function))
    results = []
    for title, folder, path, class_name, function in places:
        source = text_of(folder, path) if folder else None
        if source is None:
            continue
        found = arguments_of(ast.parse(source), class_name, function)
        missing = [name for name in found if name not in names[title]]
        print(f"{title}, {path}: {len(found)} names"
              + (f", missing: {', '.join(missing)}" if missing else ""))
        results.append(not missing)
    return results or [False]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--vllm", type=Path)
    parser.add_argument("--llama-cpp-python", type=Path)
    parser.add_argument("--names", action="store_true")
    given = parser.parse_args()
    results = check_names(given.vllm, given.llama_cpp_python) if given.names else []
    if given.vllm:
        results += run_vllm(given.vllm, given.model)
    if given.llama_cpp_python:
        results += run_llama(given.llama_cpp_python, given.model)
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
