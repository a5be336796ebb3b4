"""The tables of docs/conversions.md out of what interop.py has seen."""

import json
import pathlib

import torch
from safetensors.torch import load_file

import compare

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
    weights = {name: tensor for name, tensor in expected.items() if name != "logits"}
    different, kind = compare_weights(weights, compare.with_stacks(found))
    if different is None and quantizes_activations(folder):
        return "equal weights"
    if different is None:
        run_in = getattr(torch, report["dtype"].removeprefix("torch."))
        roundoff = max(ROUNDOFF[kind], ROUNDOFF[run_in], 2.0 ** -17)
        different = compare_logits(expected["logits"], found["logits"], roundoff)
    return "equal" if different is None else "other " + different


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
    row["readers"] = {"-".join(reader): verdict(source.folder, reader, expected)
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


def write(options, sources, readers):
    rows = {}
    for source in sources:
        rows[f"{source.environment}: {source.name}"] = judge(source, readers)
    (options.work / "seen.json").write_text(json.dumps(rows, indent=2) + "\n")
    for name, row in rows.items():
        print(name)
        for key, value in row.items():
            if key == "targets":
                for target, cell in value.items():
                    print(f"    -> {target:22} {cell}")
            else:
                print(f"    {key:12} {value}")
