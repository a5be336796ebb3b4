"""Checkpoints of real tools, opened and converted by subbyte, and opened by real tools again.

    tools/interop/install.sh                       # environments in build/interop, some 8 GB
    build/interop/tools/bin/python tools/interop/interop.py --program build/release/app/subbyte

1. make.py lets each tool write tiny models with random weights, on the CPU.
2. subbyte looks at each (inspect, verify), computes its logits, and converts it to every format.
3. open.py opens all of these with the real software of their format.
4. A cell is "equal" when the software reports no tensor missing, unexpected or of another shape,
   its weights are those of subbyte's dequantized source (rounded once to a type of 16 bits, where
   the software multiplies in one), and its logits are, too. The tables go into
   docs/conversions.md with --write.

--stages names a part of these; --only sources whose names contain a text. No network is used, and
CI does not run this.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

import compare
import report
import tiny

FOLDER = pathlib.Path(__file__).resolve().parent

# Environments, and what makes checkpoints there: a process for each, as some change others.
TOOLS = [("tools", tool) for tool in ("transformers", "golden", "bitsandbytes", "GPTQModel",
                                      "llm-compressor", "AutoRound", "ModelOpt")]
TOOLS += [("ct17", "llm-compressor"), ("awq", "AutoAWQ")]

FLAVOURS = FOLDER.parents[1] / "src" / "checkpoints" / "flavours"
READER = re.compile(r'SUBBYTE_READERS\(\s*"(\w+)",\s*"([^"]*)"\)')
# The ways (open.py) to open what each exporter writes, and an environment for each.
READERS = {
    **{name: [tuple(reader.split()) for reader in readers.split(",")]
       for file in sorted(FLAVOURS.glob("*.cc"))
       for name, readers in READER.findall(file.read_text())},
    "f32": [("tools", "transformers")],
    "bf16": [("tools", "transformers")],
}
# Where transformers has no modules for experts of gpt-oss.
EXPERTS_ELSEWHERE = {
    "awq": ("tools", "gptqmodel"),
    "gptq": ("tools", "gptqmodel"), "gptq_v2": ("tools", "gptqmodel"),
    "pack_quantized": ("tools", "compressor"), "pack_quantized_lanes": ("tools", "compressor"),
    "nvfp4_pack_quantized": ("tools", "compressor"),
    "mxfp4_pack_quantized": ("tools", "compressor"),
}
# transformers drops the factors of NVFP4 experts, and has no modules for experts in AWQ and GPTQ.
FACTORS_ELSEWHERE = ("tools", "compressor")


def has_hybrid_experts(name):
    return "Qwen3.5-MoE" in name or "Qwen3-Next" in name


def readers_of_source(name, environment):
    """Who reads what a tool wrote: the format's own software in the tool's environment."""
    if environment == "awq":
        return [("awq", "autoawq")]
    if "gpt-oss" in name and name.startswith(("GPTQModel", "llm-compressor")):
        return [("tools", "gptqmodel" if name.startswith("GPTQModel") else "compressor")]
    if name.startswith("GPTQModel AWQ"):
        return READERS["awq"]
    if name.startswith("GPTQModel"):
        return [*READERS["gptq"], ("tools", "gptqmodel")]
    if name.startswith("transformers") and name.endswith("FP8"):
        return READERS["fp8"]
    if name.startswith("ModelOpt"):
        return [("tools", "modelopt")]
    if name.startswith("AutoRound auto_awq"):
        return READERS["awq"]
    if name.startswith("AutoRound auto_gptq"):
        return READERS["gptq"]
    if name.startswith("golden"):
        return READERS["mxfp4"]
    if "FP4" in name and has_hybrid_experts(name) or "FP8 beside" in name:
        return [FACTORS_ELSEWHERE]
    if "FP4" in name and not name.startswith("ModelOpt"):
        return READERS["nvfp4_pack_quantized"]
    if name.startswith("llm-compressor") and environment == "tools":
        return READERS["pack_quantized"]
    return [(environment, "transformers")]


def readers_of(source, target):
    """Overrides of single modules are read by GPTQModel's own loader and not by transformers."""
    if "gpt-oss" in source.name and target in EXPERTS_ELSEWHERE:
        return [EXPERTS_ELSEWHERE[target]]
    if has_hybrid_experts(source.name) and target == "nvfp4_pack_quantized":
        return [FACTORS_ELSEWHERE]
    if target.startswith("gptq") and "and 8 bits" in source.name:
        return [*READERS[target], ("tools", "gptqmodel")]
    return READERS[target]


class Source:
    def __init__(self, note):
        data = json.loads(note.read_text())
        self.name, self.environment = data["name"], data["environment"]
        self.error = data["error"]
        self.folder = pathlib.Path(str(note).removesuffix(".source.json"))
        self.readers = readers_of_source(self.name, self.environment)

    def result(self, target):
        results = self.folder.parent.parent / "results"
        return results / f"{self.environment}-{self.folder.name}" / target


def sources(options):
    notes = sorted(options.work.glob("*/*.source.json"))
    found = [Source(note) for note in notes]
    return [source for source in found if options.only in source.name]


def make(options):
    for environment, tool in TOOLS:
        python = options.environments / environment / "bin" / "python"
        options.work.mkdir(parents=True, exist_ok=True)
        subprocess.run([python.absolute(), FOLDER / "make.py", environment, options.work,
                        "--tool", tool, "--only", options.only],
                       check=True, cwd=options.work)  # tools leave logs


def convert(program, source, target, folder):
    """(code of the refusal or None, options)."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    more = []
    status, message = compare.run(program, "convert", source, folder, "--to", target)
    if status != 0 and "[convert.activation_scale]" in message:
        more = ["--allow-lossy"]
        status, message = compare.run(program, "convert", source, folder, "--to", target, *more)
    code = re.search(r"\[([\w.]+)\]$", message)
    return {"refused": None if status == 0 else (code[1] if code else message), "options": more,
            "message": message}


def convert_all(options):
    for source in sources(options):
        if source.error:
            continue
        program = options.program
        seen = {"inspect": compare.run(program, "inspect", source.folder),
                "verify": compare.run(program, "verify", source.folder),
                "logits": compare.run(program, "logits", source.folder, "--ids",
                                      ",".join(map(str, tiny.TOKENS)), "-o",
                                      f"{source.folder}.logits", "--force")}
        dense = source.result("expected")
        shutil.rmtree(dense, ignore_errors=True)
        dense.parent.mkdir(parents=True, exist_ok=True)
        seen["dequantized"] = compare.run(program, "convert", source.folder, dense, "--to", "f32",
                                          "--allow-lossy")
        seen["targets"] = {target: convert(program, source.folder, target, source.result(target))
                           for target in READERS}
        pathlib.Path(f"{source.folder}.seen.json").write_text(json.dumps(seen, indent=2))
        print("converted", source.name, flush=True)


def open_all(options):
    """One process for each environment and way, for all folders that are read so."""
    jobs = {}
    for source in sources(options):
        if source.error:
            continue
        seen = json.loads(pathlib.Path(f"{source.folder}.seen.json").read_text())
        for reader in source.readers:
            jobs.setdefault(reader, []).append(source.folder)
        if seen["dequantized"][0] == 0:
            jobs.setdefault(("tools", "transformers"), []).append(source.result("expected"))
        for target, outcome in seen["targets"].items():
            for reader in readers_of(source, target) if outcome["refused"] is None else []:
                jobs.setdefault(reader, []).append(source.result(target))
    for (environment, way), folders in jobs.items():
        if options.way and options.way != way:
            continue
        python = options.environments / environment / "bin" / "python"
        if not python.exists():
            print(f"not opened by {environment} {way}: not installed", flush=True)
            continue
        log = options.work / f"open-{environment}-{way}.log"
        with open(log, "w") as errors:
            done = subprocess.run([python, FOLDER / "open.py", environment, way, *folders],
                                  stderr=errors)
        print(f"opened {len(folders)} by {environment} {way}: exit {done.returncode}", flush=True)


STAGES = {"make": make, "convert": convert_all, "open": open_all,
          "report": lambda options: report.write(options, sources(options), readers_of)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/app/subbyte")
    parser.add_argument("--environments", type=pathlib.Path, default="build/interop")
    parser.add_argument("--work", type=pathlib.Path, default="build/interop/work")
    parser.add_argument("--only", default="", help="sources whose names contain this")
    parser.add_argument("--way", default="", help="only this way of opening")
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    parser.add_argument("--write", type=pathlib.Path, help="a document that gets the tables")
    options = parser.parse_args()
    options.work = options.work.resolve()
    for stage in options.stages:
        STAGES[stage](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
