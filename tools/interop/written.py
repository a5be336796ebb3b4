"""Every format that `subbyte quantize` writes, of three families: run, verified, converted, and
opened by the software of the format.

    tools/interop/install.sh tools          # an environment in build/interop
    build/interop/tools/bin/python tools/interop/written.py --program build/release/app/subbyte

1. tiny models in bf16 with random weights: Qwen3, Qwen3-MoE, gpt-oss, Qwen3 with odd sizes, and,
   with gated delta nets, Qwen3.5, Qwen3.5-MoE and Qwen3-Next.
2. `quantize` to each format with each of its bits, with and without zero points, in groups and
   whole rows; each directory is verified, run, converted to f32 and compared with that by `diff`.
3. open.py opens each with its own software. "=": nothing is missing, the weights are those that
   subbyte makes of them, and the logits are its own, but for roundings of the type that the
   software multiplies in. "= rounded": both have the logits of transformers on these weights, one
   in f32, the other in 16 bits. "-": no software reads the format for this family.

The table is written to WORK/written.md, too. No network is used, and CI does not run this.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
HYBRID = ("qwen3.5", "qwen3.5-moe", "qwen3-next")
FAMILIES = ("qwen3", "odd", "qwen3-moe", "gpt-oss", *HYBRID)
BITS = {"gptq": (2, 3, 4, 8), "gptq_v2": (2, 3, 4, 8), "compressed-tensors": range(2, 9)}


def variants():
    """(format, options of quantize) of all."""
    rows = []
    for name, widths in BITS.items():
        for bits in widths:
            for symmetry in ("--symmetric", "--asymmetric"):
                rows.append((name, ["--bits", str(bits), symmetry]))
        rows += [(name, ["--group-size", group]) for group in ("0", "16", "32")]
    rows += [("compressed-tensors", ["--bits", "4", "--group-size", "8"]),
             ("compressed-tensors", ["--bits", "3.4"]), ("gptq", ["--bits", "3.4"]),
             ("compressed-tensors", ["--head"]), ("compressed-tensors", ["--embedding", "--head"]),
             ("int8", []), ("int8", ["--asymmetric"]), ("int8", ["--group-size", "32"]),
             ("awq", []), ("awq", ["--group-size", "32"]), ("fp8", []), ("float_quantized", []),
             ("mxfp4", []), ("mxfp4_pack_quantized", []), ("nvfp4", []), ("modelopt_nvfp4", []),
             ("nf4", []), ("nf4", ["--group-size", "32"]), ("kbit2", []), ("kbit3", []),
             ("kbit4", []), ("kbit5", []), ("kbit", ["--bits", "3.4"]), ("vq2", []), ("vq4", []),
             ("vq", ["--bits", "2.5"])]
    return rows


def ways_of(family, name, options):
    """How open.py reads it; empty where nothing does."""
    if name.startswith(("kbit", "vq")):
        return []
    moe, oss = family in ("qwen3-moe", "qwen3.5-moe", "qwen3-next"), family == "gpt-oss"
    if family in HYBRID and name == "fp8":
        return []  # transformers divides sides that are no multiples of 128 evenly
    if name == "mxfp4":
        return ["transformers-mxfp4"] if oss else ["transformers-auto"]
    if name in ("gptq", "gptq_v2", "awq"):
        # transformers has no modules for experts there, and none of its readers mixes widths.
        if moe or "3.4" in options:
            return ["gptqmodel"]
        return ["transformers"] if name == "awq" else ["transformers-gptq"]
    if name == "modelopt_nvfp4":
        return ["modelopt"]
    if name == "nf4":
        return [] if moe or oss else ["transformers"]
    if oss:
        return [] if name in ("fp8", "float_quantized") else ["compressor"]
    if name == "fp8":
        return ["transformers-fp8"]
    if name in ("mxfp4_pack_quantized", "nvfp4"):
        # transformers drops the factors of experts.
        return ["compressor"] if moe and name == "nvfp4" else ["transformers-auto"]
    if moe and ("--asymmetric" in options or "3.4" in options):
        # transformers 5.23 ends while it stacks zero points of experts, and takes one width.
        return ["compressor"]
    if "--asymmetric" in options or "--embedding" in options:
        return ["transformers-dequantized"]
    return ["transformers"]


class Case:
    def __init__(self, work, family, name, options):
        self.family, self.name, self.options = family, name, options
        self.label = " ".join([name, *(option.removeprefix("--") for option in options)])
        self.folder = work / family / self.label.replace(" ", "_")
        self.note = pathlib.Path(f"{self.folder}.seen.json")
        self.ways = ways_of(family, name, options)

    def seen(self):
        return json.loads(self.note.read_text()) if self.note.exists() else {}


def make(options, _):
    import tiny
    import torch
    # The second layer of qwen3_moe is dense, and of qwen3_next, which GPTQModel does not know.
    models = {"qwen3": lambda: tiny.qwen3(layers=1), "qwen3-moe": lambda: tiny.qwen3_moe(layers=1),
              "gpt-oss": lambda: tiny.gpt_oss(layers=1),
              "odd": lambda: tiny.qwen3(hidden=96, intermediate=168, layers=1, vocab=263),
              # So that groups of 32 inputs divide all sides.
              "qwen3.5": lambda: tiny.qwen3_5(linear_value_head_dim=32),
              "qwen3.5-moe": lambda: tiny.qwen3_5_moe(linear_value_head_dim=32),
              "qwen3-next": lambda: tiny.qwen3_next(linear_value_head_dim=32, mlp_only_layers=[])}
    for family, model in models.items():
        if options.family and family not in options.family:
            continue
        folder = options.work / family / "source"
        model().to(torch.bfloat16).save_pretrained(folder)
        tiny.tokenizer().save_pretrained(folder)


def quantize(options, cases):
    import compare
    import tiny
    ids = ",".join(map(str, tiny.TOKENS))
    for case in cases:
        shutil.rmtree(case.folder, ignore_errors=True)
        dense = pathlib.Path(f"{case.folder}.f32")
        shutil.rmtree(dense, ignore_errors=True)
        program = options.program
        steps = [
            ("quantize", [case.folder.parent / "source", case.folder, "--format", case.name,
                          *case.options, "--allow-lossy"]),
            ("verify", [case.folder]),
            ("run", [case.folder, "-p", "ab", "-n", "4", "--ignore-eos"]),
            ("logits", [case.folder, "--ids", ids, "-o", f"{case.folder}.logits", "--force"]),
            ("convert", [case.folder, dense, "--to", "f32", "--allow-lossy"]),
            ("diff", [case.folder, dense])]
        seen = {}
        for command, arguments in steps:
            status, message = compare.run(program, command, *arguments)
            if case.family == "odd" and message.endswith("[quantize.group_size]"):
                # What the message says: down_proj has 168 inputs.
                arguments += ["--ignore", "mlp.down_proj"]
                status, message = compare.run(program, command, *arguments)
            seen[command] = [status, message]
            # What has 25 bits and more is rounded to f32, which diff says.
            if status != 0 and not (command == "diff" and status == 3):
                break
        case.note.write_text(json.dumps(seen, indent=2) + "\n")
        print(case.family, case.label, "" if list(seen)[-1] == "diff" else list(seen.items())[-1],
              flush=True)


def open_all(options, cases):
    jobs = {}
    for case in cases:
        if "logits" in case.seen() and case.seen()["logits"][0] == 0:
            for way in case.ways:
                jobs.setdefault(way, []).append(case.folder)
    for way, folders in jobs.items():
        if options.ways and way not in options.ways:
            continue
        python = options.environments / "tools" / "bin" / "python"
        with open(options.work / f"open-{way}.log", "w") as log:
            done = subprocess.run([python.absolute(), FOLDER / "open.py", "tools", way, *folders],
                                  stderr=log)
        print(f"opened {len(folders)} by {way}: exit {done.returncode}", flush=True)


def with_fused_experts(weights):
    """Experts that are modules as transformers has them: gate above up, one stack for all."""
    import re
    import torch
    result, apart = {}, {}
    for name, tensor in weights.items():
        parts = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight", name)
        if parts is None:
            result[name] = tensor
        else:
            apart.setdefault(parts[1], {})[parts[3], int(parts[2])] = tensor
    for place, tensors in apart.items():
        count = 1 + max(expert for _, expert in tensors)
        both = [torch.cat([tensors["gate", e], tensors["up", e]]) for e in range(count)]
        result[place + ".gate_up_proj"] = torch.stack(both)
        result[place + ".down_proj"] = torch.stack([tensors["down", e] for e in range(count)])
    return result


def is_equal_rounded(case, weights, run_in, ours, theirs):
    """Whether subbyte has the logits of transformers on the same weights in f32, and the software
    those of transformers in the type that it multiplies in, where routes may be others."""
    import compare
    import report
    import tiny
    import torch
    exact, rounded = (compare.logits_of(compare.text_model(case.folder, weights, dtype),
                                        tiny.TOKENS).float() for dtype in (torch.float32, run_in))
    return report.compare_logits(exact, ours, 2.0 ** -17) is None and \
        report.compare_logits(rounded, theirs, report.ROUNDOFF[run_in]) is None


def verdict_of(case, way):
    import compare
    import report
    import torch
    from safetensors.torch import load_file
    place = f"{case.folder}.tools-{way}"
    if not pathlib.Path(place + ".json").exists():
        return "not opened"
    seen = json.loads(pathlib.Path(place + ".json").read_text())
    if "refused" in seen:
        return "refused: " + seen["refused"]
    if seen["wrong"]:
        return "; ".join(f"{kind} {names[0]} and {len(names) - 1} more"
                         for kind, names in seen["wrong"].items())
    found = load_file(place + ".safetensors")
    expected = {name: tensor.float() for name, tensor
                in compare.tensors_of(pathlib.Path(f"{case.folder}.f32")).items()}
    if case.family == "gpt-oss":
        expected, found = compare.with_stacks(expected), compare.with_stacks(found)
    elif any(name.endswith("experts.gate_up_proj") for name in found):
        expected = with_fused_experts(expected)
    different, kind = report.compare_weights(expected, found)
    if different is None:
        run_in = getattr(torch, seen["dtype"].removeprefix("torch."))
        roundoff = max(report.ROUNDOFF[kind], report.ROUNDOFF[run_in], 2.0 ** -17)
        ours = load_file(f"{case.folder}.logits")["logits"]
        different = report.compare_logits(ours, found["logits"], roundoff)
        if different is not None and run_in != torch.float32 and \
                is_equal_rounded(case, expected, run_in, ours, found["logits"]):
            return "= rounded"
    return "=" if different is None else "other " + different


def judge(case):
    seen = case.seen()
    if not seen:
        return "not made"
    for command, (status, message) in seen.items():
        if command == "quantize" and status in (1, 2):
            return message.rsplit("[", 1)[-1].rstrip("]") if "[" in message else message
        if status != 0 and not (command == "diff" and status == 3):
            return f"{command} exits with {status}: {message}"
    lossy = "" if seen["diff"][0] == 0 else " (f32 rounds)"
    if not case.ways:
        return "-" + lossy
    return "; ".join(f"{verdict_of(case, way)}" for way in case.ways) + lossy


def write_report(options, cases):
    labels = list(dict.fromkeys(case.label for case in cases))
    families = [family for family in FAMILIES if any(case.family == family for case in cases)]
    table = {(case.label, case.family): judge(case) for case in cases}
    lines = ["|`quantize --format`|" + "|".join(families) + "|",
             "|---|" + "---|" * len(families)]
    same = {}
    for label in labels:  # of one format with the same outcome: one line
        outcome = tuple(table[label, family] for family in families)
        same.setdefault((label.split(" ")[0], outcome), []).append(label)
    for (name, outcome), of in same.items():
        more = [label.removeprefix(name).strip() or "as it is" for label in of]
        lines.append(f"|{name}: {'; '.join(more)}|" + "|".join(outcome) + "|")
    print("\n".join(lines))
    (options.work / "written.md").write_text("\n".join(lines) + "\n")


STAGES = {"make": make, "quantize": quantize, "open": open_all, "report": write_report}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/app/subbyte")
    parser.add_argument("--environments", type=pathlib.Path, default="build/interop")
    parser.add_argument("--work", type=pathlib.Path, default="build/interop/written")
    parser.add_argument("--family", nargs="+", choices=FAMILIES, help="only these")
    parser.add_argument("--only", default="", help="only formats that begin with this")
    parser.add_argument("--ways", nargs="+", help="only these ways of open.py")
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    options = parser.parse_args()
    options.work = options.work.resolve()
    cases = [Case(options.work, family, name, more) for family in options.family or FAMILIES
             for name, more in variants() if name.startswith(options.only)]
    for stage in options.stages:
        STAGES[stage](options, cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
