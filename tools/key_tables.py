#!/usr/bin/env python3
"""The tables of docs/model_files.md, made of the lists of keys that the program is compiled from.

    tools/key_tables.py           writes them
    tools/key_tables.py --check   fails where the page has others
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "model_files.md"
MODELS = ROOT / "src" / "models"
FLAVOURS = ROOT / "src" / "checkpoints" / "flavours"
TEXT = r'"(?:[^"\\]|\\.)*"'
VALUE = rf"(?:{TEXT}(?:\s+{TEXT})*|[\w.+-]+)"  # texts that follow each other are one
ROW = re.compile(rf"SUBBYTE_(\w+)\(\s*({VALUE}(?:\s*,\s*{VALUE})*)\s*\)")
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
# Kinds of rows, with the names of what they have.
KINDS = {
    "KEY": ("key", "use", "neutral", "note"),
    "ROPE_KEY": ("key", "use", "neutral", "note"),
    "GENERAL_KEY": ("keys", "use", "neutral", "note"),
    "GENERAL_ROPE_KEY": ("key", "use", "neutral", "note"),
    "CONFIG_KEY": ("scope", "keys", "use", "neutral", "note"),
    "CONFIG_NUMBER": ("owner", "scope", "keys", "place", "absent", "least", "most", "note"),
    "CONFIG_FLAG": ("owner", "scope", "keys", "place", "absent", "note"),
    "FLAVOUR_KEY": ("scope", "keys", "use", "neutral", "note"),
    "GGUF_KEY": ("keys", "use", "neutral", "note"),
    "MODEL_FILE": ("key", "use", "note"),
}
# Rows of GgufKeyRule, their lists and the architectures that have one.
GGUF_ROW = re.compile(r'\{(?:\.name = )?"([\w.]+)",\s*(?:\.key = )?"(\w+)"(?:, "([^"]*)")?[^}]*\}')
GGUF_LIST = re.compile(r"GgufKeyRule (k\w+)\[\] = \{(.*?)\n\};", re.DOTALL)
GGUF_COPIED = re.compile(r"copy\((k\w+), all")  # into a longer list
# Rows by a function, with kGgufKeys or with kLatentGgufKeys.
GGUF_CALL = re.compile(r'\b(latent_)?gguf(?:_of)?\("([\w-]+)"')
GGUF_ARCHITECTURE = re.compile(r'\{\s*\.name = "([\w-]+)",(?:(?!\.name = ).)*?\.keys = (k\w+)',
                               re.DOTALL)
# Lists that families share.
SHARED_LIST = re.compile(r"constexpr (?:json::KeyRule|ConfigKey) (k\w+)\[\] = \{(.*?)\n\};",
                         re.DOTALL)
FILE_USES = {"kComputed": "read", "kRefused": "refused",
             "kIgnored": "changes nothing"}


def joined(literal):
    """The text of one or more literals of C++ in a row."""
    return "".join(json.loads(text) for text in re.findall(TEXT, literal))


def family_files():
    """Those that have rows of the list of config.json, too."""
    families = re.findall(r"^SUBBYTE_MODEL\((\w+)\)", (MODELS / "models.def").read_text(), re.M)
    return [MODELS / f"{family}.cc" for family in families]


def flavour_files():
    """Those that have rows of the list of quantization configs, too."""
    return [file for file in sorted(FLAVOURS.glob("*.cc"))
            if "SUBBYTE_FLAVOUR_KEY(" in file.read_text()]


def all_rows_of(path):
    """The rows of a list, with those of families: some of their types, or all, have them; or with
    those of flavours."""
    rows = rows_of(path)
    if path == FLAVOURS.parent / "shared_keys.def":
        for file in flavour_files():
            rows += rows_of(file)
    if path == MODELS / "gguf_keys.def":
        rows = [row for file in (path.with_suffix(".cc"), *family_files())
                for row in gguf_rows_of(file)] + rows
    if path == MODELS / "config_keys.def":
        for file in family_files():
            own = [*rows_of(file), *shared_rows_of(file), *wrapper_rows_of(file)]
            rows += [{**row, "family": file.stem} for row in own]
    return rows


def shared_rows_of(file):
    """The rows of the lists that a family shares with others, of its types without one of their
    own."""
    source = file.read_text()
    own = rows_of(file)
    types = [name for name, _ in types_of(file)]
    lists = "".join(header.read_text() for header in sorted(MODELS.glob("*.h")))
    for name, text in SHARED_LIST.findall(lists):
        for row in rows_in(text) if re.search(rf"\b{name}\b", source) else ():
            scopes = [other.get("scope", "") for other in own if other["key"] == row["key"]]
            others = [name for name in types if name not in " ".join(scopes).split(" ")]
            if not scopes:
                yield row
            elif "" not in scopes and others:
                yield {**row, "scope": " ".join(others)}


def wrapper_rows_of(file):
    """What wrappers have the config of the text model in, where no row of theirs says more."""
    wrappers = {own["wrapper"]: None for _, own in types_of(file) if "wrapper" in own}
    if wrappers and not any(row["key"] == "text_config" for row in rows_of(file)):
        yield {"kind": "CONFIG_KEY", "scope": " ".join(wrappers), "key": "text_config",
               "use": "kComputed", "neutral": "", "note": "the config of the text model"}


def rows_of(path):
    """The rows of a file, as dictionaries."""
    return rows_in(path.read_text())


def rows_in(text):
    lines = [line for line in text.splitlines() if not line.startswith("//")]
    rows = []
    for match in ROW.finditer("\n".join(lines)):
        if match[1] not in KINDS:
            continue
        values = re.findall(VALUE, match[2])
        texts = [joined(value) if value[0] == '"' else value for value in values]
        kind = match[1].replace("GENERAL_KEY", "CONFIG_KEY").removeprefix("GENERAL_")
        row = {"kind": kind, **dict(zip(KINDS[match[1]], texts, strict=True))}
        if "place" in row:
            absent = "by the type" if row["absent"] == "kKept" else row["absent"]
            # A number that may not be said stands for none.
            if absent == "0" and re.fullmatch(r"[\d.]+e-\d+", row.get("least", "")):
                absent = "none"
            note = "; ".join(filter(None, (row["note"], f"absent: {absent}")))
            row |= {"kind": "CONFIG_KEY", "use": "kComputed", "neutral": "", "note": note}
        rows += [{**row, "key": key} for key in row.pop("keys", row.get("key")).split(" ")]
    return rows


def gguf_rows_of(file):
    """Keys that are keys of config.json under another name."""
    source = file.read_text()
    names = {}
    found = GGUF_ARCHITECTURE.findall(source)
    found += [(architecture, "kLatentGgufKeys" if of_latents else "kGgufKeys")
              for of_latents, architecture in GGUF_CALL.findall(source)]
    for architecture, keys in found:
        for used in [keys, *GGUF_COPIED.findall(source)]:
            if architecture not in names.setdefault(used, []):
                names[used].append(architecture)
    shared = "".join(header.read_text() for header in sorted(MODELS.glob("*.h")))
    lists = GGUF_LIST.findall(source)
    lists += [one for one in GGUF_LIST.findall(shared) if one[0] in names]
    for keys, text in lists:
        for name, key, absent in GGUF_ROW.findall(text):
            yield {"kind": "GGUF_KEY", "scope": " ".join(names.get(keys, [])), "key": f"*.{name}",
                   "use": "kComputed", "neutral": "",
                   "note": f"`{key}`" + (f"; absent: {absent}" if absent else "")}


def scope_of(row):
    scope = (row.get("scope") or row.get("family", "")).replace(" ", ", ")
    if row["kind"] == "ROPE_KEY":
        return f"rope section of {scope}" if scope else "rope section"
    return scope


def names_of(rows):
    """Each key once, those of the same scopes together: "`a`, `b` (qwen3); `c` (llama)"."""
    scopes = {}
    for row in rows:
        scopes.setdefault((row["key"], bool(scope_of(row))), []).append(scope_of(row))
    keys = {}
    for (key, _), of_it in scopes.items():
        keys.setdefault(", ".join(dict.fromkeys(of_it)), []).append(f"`{key}`")
    return "; ".join(", ".join(of_it) + (f" ({scope})" if scope else "")
                     for scope, of_it in keys.items())


def alike(rows, *parts):
    """Lists of the rows that have the same parts, in the order of the first ones. A note that
    begins with "the same" is about the row before: both stay by themselves."""
    lists = {}
    refers = [row["note"].startswith("the same") for row in rows] + [False]
    for i, row in enumerate(rows):
        place = i if refers[i] or refers[i + 1] else None
        lists.setdefault((place, *(row[part] for part in parts)), []).append(row)
    return lists.values()


def neutral_of(row):
    values = [json.dumps(value) for value in json.loads(f"[{row['neutral']}]")]
    if row["kind"] != "GGUF_KEY":  # which has no null
        values.insert(0, "null")
    return ", ".join(f"`{value}`" for value in values)


def file_table(rows):
    lines = [f"|`{row['key']}`|{FILE_USES[row['use']]}: {row['note']}|\n" for row in rows]
    return "|file||\n|---|---|\n" + "".join(lines)


def key_tables(rows):
    """What is computed, what is refused, and what changes nothing; keys with one note are a row."""
    computed, refused, ignored = ([row for row in rows if row["use"] == use]
                                  for use in ("kComputed", "kRefused", "kIgnored"))
    text = ""
    if computed:
        text += "|computed||\n|---|---|\n"
        text += "".join(f"|{names_of(same)}|{same[0]['note']}|\n"
                        for same in alike(computed, "note"))
    if refused:
        text += "\n|not computed|asks for nothing||\n|---|---|---|\n"
        text += "".join(f"|{names_of(same)}|{neutral_of(same[0])}|{same[0]['note']}|\n"
                        for same in alike(refused, "neutral", "note"))
    if ignored:
        text += "\n|changes nothing|because|\n|---|---|\n"
        text += "".join(f"|{names_of(same)}|{same[0]['note']}|\n"
                        for same in alike(ignored, "note"))
    return text


# Keys whose absence the type of a model decides, with the field of ConfigDefaults and what some
# defaults stand for there.
DEFAULTS = {
    "intermediate_size": ("intermediate_size", {"-1": "must be there", "0": "of no layer"}),
    "vocab_size": ("vocab", {"0": "must be there"}),
    "num_attention_heads": ("heads", {"0": "must be there"}),
    "num_key_value_heads": ("kv_heads", {"0": "num_attention_heads"}),
    "head_dim": ("head_dim", {"0": "hidden_size / num_attention_heads"}),
    "max_position_embeddings": ("max_positions", {}),
    "rms_norm_eps": ("rms_norm_eps", {}),
    "rope_theta": ("rope_theta", {}),
    "partial_rotary_factor": ("rotary_fraction", {}),
    "attention_bias": ("attention_bias", {}),
    "tie_word_embeddings": ("tie_word_embeddings", {}),
}


def types_of(file):
    """The name of each type of a family, with the defaults that it sets."""
    source = file.read_text()
    shared = dict(re.findall(r"ConfigDefaults (\w+) = \{(.*?)\};", source, re.DOTALL))
    functions = {name: (re.findall(r"(\w+)(?:,|$)", parameters), body)
                 for name, parameters, body in re.findall(
                     r"ConfigDefaults (\w+)\((.*?)\) \{\s*return \{(.*?)\};", source, re.DOTALL)}
    text = re.search(r"kModelTypes\[\] = \{(.*?)\};", source, re.DOTALL)[1]
    for one in re.split(r"(?=\.name = )", text)[1:]:
        name = re.match(r'\.name = "(\w+)"', one)[1]
        defaults = re.search(r"\.defaults = (\w+)(?:\((.*?)\))?", one)
        if defaults and defaults[2]:
            parameters, body = functions[defaults[1]]
            for parameter, value in zip(parameters, defaults[2].split(", "), strict=True):
                body = re.sub(rf"= {parameter}\b", f"= {value}", body)
            one += body
        elif defaults:
            one += shared[defaults[1]]
        yield name, dict(re.findall(r'\.(\w+) = "?([\w.-]+)', one))


def defaults_table():
    text = (MODELS / "config_defaults.h").read_text()
    usual = dict(re.findall(r"^  \w+ (\w+) = ([\w.-]+);", text, re.M))
    lines = ["|model_type|" + "|".join(f"`{key}`" for key in DEFAULTS) + "|\n",
             "|---" * (len(DEFAULTS) + 1) + "|\n"]
    for file in family_files():
        for name, own in types_of(file):
            values = ((own.get(field, usual[field]), words) for field, words in DEFAULTS.values())
            cells = (words.get(value, value) for value, words in values)
            lines.append(f"|`{name}`|" + "|".join(cells) + "|\n")
    return "".join(lines)


def table(path):
    if path == "src/models/config_defaults.h":
        return defaults_table()
    rows = all_rows_of(ROOT / path)
    assert rows, path
    return file_table(rows) if rows[0]["kind"] == "MODEL_FILE" else key_tables(rows)


def main():
    page = PAGE.read_text()
    wanted = BLOCK.sub(lambda block: block[1] + table(block[2]) + block[3], page)
    if sys.argv[1:] == ["--check"]:
        if page != wanted:
            sys.exit(f"{PAGE.relative_to(ROOT)}: expected the tables of the lists of keys, found "
                     "others; tools/key_tables.py writes them")
    elif not sys.argv[1:]:
        PAGE.write_text(wanted)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
