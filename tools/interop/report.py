"""The tables of docs/conversions.md out of what interop.py has seen."""

import datetime
import json
import pathlib
import re
import subprocess

import torch
from safetensors.torch import load_file

import compare
import tiny

# Unit roundoffs of the types that software multiplies in.
ROUNDOFF = {torch.float32: 2.0 ** -24, torch.float16: 2.0 ** -11, torch.bfloat16: 2.0 ** -8}
# A logit is a sum over two layers of products of rounded weights and activations; the errors of
# this many roundings, all in one direction, would still be called equal.
ROUNDINGS = 16


def compare_weights(expected, found):
    """(what differs or None, the coarsest type in which weights were rounded)."""
    coarsest = torch.float32
    for name, tensor in expected.items():
        if name not in found:
            return f"no {name}", coarsest
        if found[name].shape != tensor.shape:
            return f"{name} {list(found[name].shape)}, not {list(tensor.shape)}", coarsest
        kinds = [kind for kind in ROUNDOFF
                 if torch.equal(tensor.to(kind).float(), found[name].float())]
        # Some kernels round the scale before they multiply by it.
        near = 2 * ROUNDOFF[torch.bfloat16] * tensor.abs()
        if not kinds and ((tensor - found[name]).abs() <= near).all():
            kinds = [torch.bfloat16]
        if not kinds:
            worst = (tensor - found[name]).abs().max() / tensor.abs().max()
            return f"{name} by {worst:.2g}", coarsest
        coarsest = max(coarsest, kinds[0], key=ROUNDOFF.get)
    return None, coarsest


def compare_logits(expected, found, roundoff):
    worst = (expected - found).abs().max().item()
    allowed = ROUNDINGS * roundoff * expected.abs().max().item()
    return None if worst <= allowed else f"logits by {worst:.2g}"


def quantizes_activations(folder):
    """As the software of compressed-tensors does where a config says so; subbyte never does."""
    section = json.loads((folder / "config.json").read_text()).get("quantization_config", {})
    groups = section.get("config_groups", {}).values()
    return section["quant_method"] == "compressed-tensors" and any(
        group.get("input_activations") for group in groups) if section else False


def verdict(folder, reader, expected):
    """"equal", or in which way not."""
    place = f"{folder}.{reader[0]}-{reader[1]}"
    report = json.loads(pathlib.Path(place + ".json").read_text())
    if "refused" in report:
        return "refused: " + report["refused"]
    if report["wrong"]:
        return "; ".join(f"{kind} {names[0]} and {len(names) - 1} more"
                         for kind, names in report["wrong"].items())
    found = load_file(place + ".safetensors")
    logits = found.pop("logits")
    weights = {name: tensor for name, tensor in expected.items() if name != "logits"}
    different, kind = compare_weights(compare.with_stacks(weights), compare.with_stacks(found))
    if different is None and quantizes_activations(folder):
        return "equal weights"
    if different is None:
        run_in = getattr(torch, report["dtype"].removeprefix("torch."))
        wanted = expected["logits"]
        if kind != torch.float32 or run_in != torch.float32:  # of the weights as they were rounded
            wanted = compare.logits_of(compare.text_model(folder, found, run_in), tiny.TOKENS)
        roundoff = max(ROUNDOFF[run_in], 2.0 ** -17)
        different = compare_logits(wanted, logits, roundoff)
    return "equal" if different is None else "other " + different


def experts_differ(source, expected):
    """Whether experts are far from those that the tool was given: gate and up are not told apart
    by software that only reads what it wrote."""
    given = source.folder.parent / "dense" / source.folder.name
    if "gpt-oss" not in source.name or not given.exists():
        return None
    for name, tensor in compare.tensors_of(given).items():
        if "experts" not in name or name.endswith("bias"):
            continue
        error = (tensor.float() - expected[name]).abs().mean() / tensor.float().abs().mean()
        if error > 0.5:  # of 4 bits: 0.1
            return f"{name} by {error:.2g} from what the tool was given"
    return None


def judge(source, readers):
    """{"source": {...}, target: {reader: verdict}} of one source."""
    if source.error:
        return {"made": source.error}
    seen = json.loads(pathlib.Path(f"{source.folder}.seen.json").read_text())
    row = {key: "yes" if seen[key][0] == 0 else f"exit {seen[key][0]}: {seen[key][1]}"
           for key in ("inspect", "verify", "logits", "dequantized")}
    if seen["dequantized"][0] != 0 or seen["logits"][0] != 0:
        return row
    dense = source.result("expected")
    expected = compare.tensors_of(dense)
    expected = {name: tensor.float() for name, tensor in expected.items()}
    theirs = load_file(f"{dense}.tools-transformers.safetensors")
    expected["logits"] = theirs["logits"]
    ours = load_file(f"{source.folder}.logits")["logits"]
    row["logits"] = compare_logits(theirs["logits"], ours, 2.0 ** -17) or "equal"
    row["readers"] = {"-".join(reader): experts_differ(source, expected) or
                                        verdict(source.folder, reader, expected)
                      for reader in source.readers}
    row["targets"] = {}
    for target, outcome in seen["targets"].items():
        if outcome["refused"] is not None:
            row["targets"][target] = outcome["refused"]
            continue
        row["targets"][target] = {
            "-".join(reader): verdict(source.result(target), reader, expected)
            for reader in readers(source, target)}
    return row


PACKAGES = ["transformers", "torch", "compressed-tensors", "llmcompressor", "gptqmodel",
            "auto-round", "bitsandbytes", "nvidia-modelopt", "autoawq"]
BEGIN, END = "<!-- tables: tools/interop/interop.py -->\n", "<!-- end of tables -->"

SOFTWARE = {
    "tools-transformers": "transformers",
    "tools-transformers-auto": "transformers",
    "tools-transformers-gptq": "transformers with GPTQModel",
    "tools-transformers-mxfp4": "transformers with dequantize",
    "tools-transformers-dequantized": "transformers with dequantize",
    "tools-gptqmodel": "GPTQModel",
    "tools-modelopt": "ModelOpt's tensors",
    "tools-compressor": "compressed-tensors' compressors",
    "ct17-transformers": "transformers, older",
    "awq-autoawq": "AutoAWQ",
}


def versions(options, environment):
    code = ("import importlib.metadata as m\n"
            "names = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
            f"print(', '.join(f'{{p}} {{names[p]}}' for p in {PACKAGES} if p in names))")
    python = options.environments / environment / "bin" / "python"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


class Notes:
    """Letters for what a cell has to say."""

    def __init__(self):
        self.letters = {}

    def of(self, text):
        letter = self.letters.setdefault(text, chr(ord("a") + len(self.letters)))
        return f" {letter}"

    def lines(self):
        return [f"- {letter}: {text}" for text, letter in self.letters.items()]


def cell(verdicts, notes):
    """"=" when a reader finds all equal; what another says is a note."""
    equal = any(verdict == "equal" for verdict in verdicts.values())
    text = "=" if equal else ""
    for reader, verdict in verdicts.items():
        if verdict != "equal":
            text += notes.of(f"{SOFTWARE[reader]}: {shorter(verdict)}")
    return text.strip()


def shorter(verdict):
    """Without names and numbers of one model."""
    for found, said in (("ignore_mismatched_sizes", "refused, tensors of another shape"),
                        ("automatic conversion", "refused, while converting weights"),
                        ("missing_keys", "does not find the experts, random weights"),
                        ("equal weights", "equal weights, other logits: it quantizes activations")):
        if found in verdict:
            return said
    return verdict


def forward_table(rows, notes):
    lines = ["| made by | opened by | weights and logits | subbyte's logits | inspect, verify |",
             "|---|---|---|---|---|"]
    for name, row in rows.items():
        name = name.split(": ", 1)[1] + (" (older)" if name.startswith("ct17") else "")
        if "made" in row:
            lines.append(f"| {name} |{notes.of('not made: ' + row['made'])} | | | |")
            continue
        if "readers" not in row:
            refused = row["logits"].split("]")[0].split("[")[-1]
            lines.append(f"| {name} | | refused here{notes.of(f'`{refused}`')} | | |")
            continue
        software = list(dict.fromkeys(SOFTWARE[reader] for reader in row["readers"]))
        whole = "yes" if row["inspect"] == row["verify"] == "yes" else "no"
        lines.append(f"| {name} | {', '.join(software)} | {cell(row['readers'], notes)} | "
                     f"{'=' if row['logits'] == 'equal' else row['logits']} | {whole} |")
    return lines


def back_table(rows, targets, notes):
    lines = ["| from \\ to | " + " | ".join(targets) + " |", "|---" * (len(targets) + 1) + "|"]
    for name, row in rows.items():
        if "targets" not in row:
            continue
        name = name.split(": ", 1)[1] + (" (older)" if name.startswith("ct17") else "")
        cells = ["." if isinstance(row["targets"][target], str) else
                 cell(row["targets"][target], notes) for target in targets]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def compact(lines):
    """Rows without blanks beside their bars; those that say the same of several names are one."""
    lines = [re.sub(r" *\| *", "|", line) for line in lines]
    names = {}
    for line in lines[2:]:
        name, cells = line[1:].split("|", 1)
        names.setdefault(cells, []).append(name)
    return lines[:2] + [f"|{'; '.join(names[cells])}|{cells}" for cells in names]


def tables(options, rows, targets):
    notes = Notes()
    today = datetime.date.today().isoformat()
    main, older, awq = (versions(options, name) for name in ("tools", "ct17", "awq"))
    lines = [f"Seen on {today}, on the CPU: {main}. Older: {older}. AutoAWQ: {awq}.", ""]
    lines += compact(forward_table(rows, notes)) + [""]
    lines += compact(back_table(rows, targets, notes)) + [""]
    return "\n".join(lines + notes.lines()) + "\n"


def write(options, sources, readers):
    rows = {}
    for source in sources:
        rows[f"{source.environment}: {source.name}"] = judge(source, readers)
    (options.work / "seen.json").write_text(json.dumps(rows, indent=2) + "\n")
    targets = next(list(row["targets"]) for row in rows.values() if "targets" in row)
    text = tables(options, rows, targets)
    print(text)
    if options.write:
        document = options.write.read_text()
        before, rest = document.split(BEGIN)
        options.write.write_text(before + BEGIN + text + END + rest.split(END, 1)[1])
