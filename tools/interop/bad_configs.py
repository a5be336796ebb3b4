#!/usr/bin/env python3
"""Changes each number and list of a config.json, and asks what verify and run say of the model.

    python3 tools/interop/bad_configs.py PROGRAM [--arch ARCH ...]

For each family a tiny model is synthesized. Each number of its config.json becomes 0, -1, a larger
one, a fraction, NaN, 1e400 and a text; each list one element longer, one shorter and empty; each
boolean a number. A change is refused where verify ends with 3 and run with 1, each naming the key,
or a tensor that is another one then, or the place in the file of what is no JSON (NaN, 1e400).
Where both end with 0 the change asks for nothing: the values for which that is so are printed by
key, for people to look at. Everything else is WRONG: other codes, a line that does not name the
key, one that is refused by one command alone.
"""

import argparse
import collections
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

OTHER_WORDS = ["json.syntax", "model.layers.", "model.embed_tokens", "backbone.layers."]
NUMBERS = [0, -1, 1 << 40, 0.5, float("nan"), "1e400", "three"]


def changes_of(value):
    if isinstance(value, bool):
        return [7, "yes"]
    if isinstance(value, (int, float)):
        return [change for change in NUMBERS if change != value]
    if isinstance(value, list):
        return [value[:-1], [*value, value[-1]], [], 5] if value else [[1], 5]
    if isinstance(value, dict):
        return [5, []]
    return []


def places_of(config, path=()):
    for key, value in config.items():
        yield (*path, key), value
        if isinstance(value, dict):
            yield from places_of(value, (*path, key))


def changed(config, path, value):
    made = copy.deepcopy(config)
    place = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = "@" if value == "1e400" else value
    return json.dumps(made).replace('"@"', "1e400")


def ask(program, *arguments):
    """The exit code, and all that was said."""
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True,
                          timeout=120)
    return done.returncode, done.stdout + done.stderr


def verdict_of(program, model, key):
    """"refused", "taken" or what is wrong."""
    verified, said = ask(program, "verify", model)
    ran, error = ask(program, "run", model, "-p", "a b", "-n", "1", "--device", "cpu")
    if (verified, ran) == (0, 0):
        return "taken"
    if (verified, ran) != (3, 1):
        return f"verify ends with {verified}, run with {ran}: {(error or said).strip()[-200:]}"
    if all(any(word in text for word in (key, *OTHER_WORDS)) for text in (said, error)):
        return "refused" if error.count("\n") == 1 else f"more than one line: {error}"
    return f"the key is not named: {error.strip()[-200:]}"


def check(program, arch, folder, taken):
    model = folder / arch
    code, said = ask(program, "synth", model, "--arch", arch, "--shape", "tiny")
    assert code == 0, said
    path = model / "config.json"
    config = json.loads(path.read_text())
    wrong = refused = 0
    for place, value in places_of(config):
        for change in changes_of(value):
            path.write_text(changed(config, place, change))
            verdict = verdict_of(program, model, place[-1])
            if verdict == "refused":
                refused += 1
            elif verdict == "taken":
                taken[arch, ".".join(place)].append(change)
            else:
                wrong += 1
                print(f"WRONG {arch} {'.'.join(place)} = {change!r:.60}: {verdict}", flush=True)
    print(f"{arch}: {refused} refused, {wrong} wrong", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--arch", nargs="+", default=["mistral4", "glm-moe-dsa", "nemotron-h"])
    options = parser.parse_args()
    taken = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        wrong = sum(check(options.program, arch, pathlib.Path(folder), taken)
                    for arch in options.arch)
    for (arch, key), values in taken.items():
        print(f"taken {arch} {key}: {', '.join(f'{value!r:.20}' for value in values)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
