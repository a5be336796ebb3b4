#!/usr/bin/env python3
"""Fails when a file includes a header of a layer that its own layer does not depend on.

The one source of truth is what the build uses: `subbyte_layer(<name> DEPENDS <layer>...)` in
src/<name>/CMakeLists.txt, and the `subbyte::<layer>` libraries in app/CMakeLists.txt. Dependencies
are transitive, but for HIDDEN_DEPENDS, which only the layer itself sees. Tests of a layer see its
TEST_DEPENDS, too. The include path already enforces this for what is compiled; this check also sees
files that a build leaves out, and relative includes, which would slip past the include path.

The name of a family of models (src/models/models.def), in whatever spelling, stands in its own
file src/models/<name>.cc alone; not in code of src/ or app/ elsewhere. Comments, tests, examples in
help texts and what other programs call theirs (app/foreign_names.def) may name models. So it is
with its types, such as qwen3_next of the family qwen3_5, in the files of other families. A family
is thus one file of code, one line of models.def and its goldens, of which each type has one;
--families shows them.

include/subbyte/ is what programs of others see: its headers include the standard library and each
other only. A header there belongs to the layer that implements it (PUBLIC_HEADERS), and is seen
where that layer is.

Boost is of src/http/ alone: its headers take long to compile, and nobody else should know whose
server it is.

In src/kernels/cpu/ a file of generic/ is what the folders of at least two instruction sets include,
directly or through another one of generic/: what one folder uses lies there.

    tools/check_layers.py [--root DIR]    check the tree, print file:line for each bad include
    tools/check_layers.py --families      check the tree, print what each family consists of
    tools/check_layers.py --self-test     plant bad includes in a copy and see them reported
"""
from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

import checks

SUFFIXES = {".h", ".cc", ".def"}
TOP = "app"  # the only folder outside src/ that is checked
PUBLIC = "subbyte"  # the folder of include/
PUBLIC_HEADERS = {  # of include/subbyte/, by the layer that they belong to
    "c_interface": {"subbyte", "subbyte_models"},
    "base": {"executor", "function_ref", "sampling", "status", "version"},
    "checkpoints": {"modules", "quantize"},
    "formats": {"blocks", "format"},
    "json": {"json"},
    "matrix": {"matrix"},
    "models": {"checkpoint"},
    "text": {"answer", "request", "tokenizer"},
    "backends": {"device", "products"},
    "session": {"session"},
    "transform": {"transform"},
    "verify": {"verify"},
}
LIBRARY_OF = {"boost": "http"}  # libraries of others that one layer has to itself
TEST_ONLY = {"support", "gtest", "gmock"}  # for *_test.cc; support is tests/support
KEYWORDS = {"DEPENDS", "HIDDEN_DEPENDS", "LIBRARIES", "TEST_DEPENDS"}
LAYER_CALL = re.compile(r"subbyte_layer\(\s*(\w+)([^)]*)\)")
LIBRARY = re.compile(r"subbyte::(\w+)")
FAMILY = re.compile(r"^SUBBYTE_MODEL\((\w+)\)", re.MULTILINE)
MODEL_TYPES = re.compile(r"ModelType \w+\[\] = \{(.*?)\};", re.DOTALL)
NAME_OF_TYPE = re.compile(r'\.(name|architecture|wrapper) = "([^"]+)"')
GOLDEN = re.compile(r'^SUBBYTE_GOLDEN\("([^"]+)", "([^"]+)"', re.MULTILINE)
FAMILY_SUFFIXES = SUFFIXES | {".cu", ".cuh"}
# Comments, and what may have slashes inside: raw strings, strings, characters.
CODE_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|'
                        r"(?<!\w)'(?:\\.|[^'\\\n])*'", re.DOTALL)
EXAMPLE = re.compile(r'"  subbyte [^"]*"')  # in the help of a command
DIRECTIVE = re.compile(r"^\s*#\s*include\s*(.*)")
HEADER = re.compile(r'(["<])([^">]+)[">]')


class Broken(Exception):
    """The tree cannot be checked at all."""


def without_comments(cmake: str) -> str:
    return re.sub(r"#.*", "", cmake)


def keyword_lists(arguments: str) -> dict[str, list[str]]:
    """What follows each keyword of a subbyte_layer() call."""
    lists: dict[str, list[str]] = {keyword: [] for keyword in KEYWORDS}
    keyword = ""
    for word in arguments.split():
        if word in KEYWORDS:
            keyword = word
        elif keyword:
            lists[keyword].append(word)
    return lists


class Dependencies:
    """Layer -> the layers that its CMakeLists.txt names."""

    def __init__(self) -> None:
        self.direct: dict[str, list[str]] = {}     # seen by what stands upon the layer, too
        self.hidden: dict[str, list[str]] = {}     # seen by the layer alone
        self.test_only: dict[str, list[str]] = {}  # seen by its tests alone


def read_dependencies(root: Path) -> Dependencies:
    found = Dependencies()
    direct = found.direct
    for path in sorted((root / "src").glob("*/CMakeLists.txt")):
        call = LAYER_CALL.search(without_comments(path.read_text()))
        if not call or call[1] != path.parent.name:
            raise Broken(f"{path}: expected subbyte_layer({path.parent.name} ...)")
        lists = keyword_lists(call[2])
        direct[call[1]] = lists["DEPENDS"]
        found.hidden[call[1]] = lists["HIDDEN_DEPENDS"]
        found.test_only[call[1]] = lists["TEST_DEPENDS"]
    if not direct:
        raise Broken(f"{root}/src: no layer found")
    for folder in (root / "src").iterdir():
        if folder.is_dir() and folder.name not in direct:
            raise Broken(f"{folder}: a folder of src/ without CMakeLists.txt is not a layer")
    app = root / TOP / "CMakeLists.txt"
    if app.exists():
        direct[TOP] = sorted(set(LIBRARY.findall(without_comments(app.read_text()))))
    for layer, names in (*direct.items(), *found.hidden.items(), *found.test_only.items()):
        for name in names:
            if name not in direct or name == TOP:
                raise Broken(f"layer {layer} depends on {name}, which is not a layer")
    return found


def visible_layers(layer: str, direct: dict[str, list[str]]) -> set[str]:
    """The layer itself and all that who stands upon it sees."""
    return {layer}.union(*(visible_layers(name, direct) for name in direct[layer]))


def refuse_circles(layer: str, found: Dependencies, path: tuple[str, ...] = ()) -> None:
    if layer in path:
        raise Broken("layers depend on each other in a circle: " + " -> ".join((*path, layer)))
    for name in (*found.direct[layer], *found.hidden.get(layer, [])):
        refuse_circles(name, found, (*path, layer))


def check_include(spelling: str, layer: str, visible: set[str], layers: set[str],
                  is_test: bool) -> str | None:
    """What is wrong with the text after #include, if anything."""
    header = HEADER.match(spelling)
    if not header:
        return f"cannot tell what '{spelling.strip()}' includes; write a file name"
    quote, name = header.groups()
    target = name.split("/")[0]
    if target in layers:
        if target in visible:
            return None
        return f'layer {layer} must not include "{name}": it sees only {", ".join(sorted(visible))}'
    if target == PUBLIC:
        stem = Path(name).stem
        owner = next((one for one, stems in PUBLIC_HEADERS.items() if stem in stems), None)
        if owner in visible:
            return None
        if owner:
            return f'layer {layer} must not include "{name}", which belongs to {owner}'
        return f'"{name}" belongs to no layer (PUBLIC_HEADERS)'
    if target in LIBRARY_OF and layer != LIBRARY_OF[target]:
        return f'"{name}" is for layer {LIBRARY_OF[target]} alone'
    if target in TEST_ONLY:
        return None if is_test else f'"{name}" is for tests only'
    if quote == '"':
        return f'"{name}" does not read "<layer>/<file>"'
    return None


def check_tree(root: Path) -> list[str]:
    """One line for each bad include."""
    found = read_dependencies(root)
    direct = found.direct
    for layer in direct:
        refuse_circles(layer, found)
    problems = []
    for layer in direct:
        def with_more(visible: set[str], more: dict[str, list[str]]) -> set[str]:
            return visible.union(*(visible_layers(name, direct) for name in more.get(layer, [])))

        visible = with_more(visible_layers(layer, direct), found.hidden)
        visible_to_tests = with_more(visible, found.test_only)
        folder = root / TOP if layer == TOP else root / "src" / layer
        for path in sorted(folder.rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            is_test = path.name.endswith("_test.cc")
            for number, line in enumerate(path.read_text().splitlines(), 1):
                directive = DIRECTIVE.match(line)
                if not directive:
                    continue
                seen = visible_to_tests if is_test else visible
                problem = check_include(directive[1], layer, seen, set(direct), is_test)
                if problem:
                    problems.append(f"{path.relative_to(root)}:{number}: {problem}")
    return problems + check_public(root) + check_generic(root) + check_families(root) + \
        check_family_lists(root)


def check_public(root: Path) -> list[str]:
    """One line for each include of a public header that leads elsewhere."""
    problems = []
    for path in sorted((root / "include").rglob("*.h")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            directive = DIRECTIVE.match(line)
            header = HEADER.match(directive[1]) if directive else None
            if not directive or (header and header[1] == "<" and "/" not in header[2]) or \
                    (header and header[2].startswith(f"{PUBLIC}/")):
                continue
            problems.append(f"{path.relative_to(root)}:{number}: a public header includes the "
                            f"standard library and other public headers, not {directive[1]}")
    return problems


def without_cpp_comments(text: str) -> str:
    """The same lines; strings stay."""
    return CODE_TOKEN.sub(lambda token: "\n" * token[0].count("\n") if token[0][0] == "/" else
                          token[0], text)


# What other software and its makers call after a family: a switch of a tokenizer, whose files it is
# for, and words of rope sections.
# An architecture of GGUF may hold models of several families.
OF_GGUF = re.compile(r"GgufArchitecture kGguf\[\]")
NAMED_AFTER = re.compile(r'fix_mistral_regex|"llama3"|llama_4_scaling_beta|has_mistral_pattern|'
                         "kConcerned|Mistral's or Meta's|"
                         "vocabularies of Mistral|kSentencePiece =|kCharacters =|"
                         + OF_GGUF.pattern)
SEPARATORS = str.maketrans("", "", "-_ ")


def spelling_of(family: str) -> re.Pattern[str]:
    """gpt_oss, GptOss, gpt-oss; Qwen3, qwen-3; but not llama.cpp, llama-bench, nor ExLlama."""
    name = re.sub(r"(?<=[a-z])(?=[0-9])", "[-_ ]?", family.replace("_", "[-_ ]?"))
    return re.compile(rf"(?:(?<![A-Za-z])|(?<!Ex)(?=[A-Z]))(?i:{name})(?!\.cpp|_cpp|2\.c|-bench)")


def check_families(root: Path) -> list[str]:
    """One line for each place that names a family of models outside of its file."""
    families = FAMILY.findall((root / "src/models/models.def").read_text())
    spellings = {name: spelling_of(name) for name in families}
    problems = []
    for folder in (root / "src", root / TOP):
        for path in sorted(folder.rglob("*")):
            is_code = path.suffix in FAMILY_SUFFIXES and not path.name.endswith("_test.cc")
            if not is_code or path.name in ("models.def", "foreign_names.def",
                                             "gguf_pre_tokenizers.cc"):
                continue
            text = path.read_text()
            squeezed = text.lower().translate(SEPARATORS)  # quicker than the patterns, on each file
            named = [name for name in families if name.translate(SEPARATORS) in squeezed]
            if not named:
                continue
            for number, line in enumerate(without_cpp_comments(text).splitlines(), 1):
                if NAMED_AFTER.search(line) or (folder.name == TOP and EXAMPLE.search(line)):
                    continue
                for name in named:
                    # qwen3_5 cannot be named without qwen3.
                    is_longer = path.stem in families and path.stem.startswith(name)
                    if spellings[name].search(line) and not (is_longer and folder.name != TOP):
                        problems.append(f"{path.relative_to(root)}:{number}: names the family "
                                        f"{name}, which src/models/{name}.cc alone may do")
    return problems


class Family:
    """What a family of models consists of, by its line in models.def."""

    def __init__(self, root: Path, name: str, goldens: list[tuple[str, str]]) -> None:
        self.name = name
        self.file = root / f"src/models/{name}.cc"
        code = without_cpp_comments(self.file.read_text()) if self.file.exists() else ""
        types = MODEL_TYPES.search(code)
        names = NAME_OF_TYPE.findall(types[1]) if types else []
        self.types = [name for kind, name in names if kind == "name"]
        self.names = [name for _, name in names]
        self.wrappers = [name for kind, name in names if kind == "wrapper"]  # others may have it
        self.goldens = [folder for folder, of_type in goldens if of_type in self.types]
        tested = {of_type for _, of_type in goldens}
        self.untested = [name for name in self.types if name not in tested]


def families_of(root: Path) -> list[Family]:
    goldens = GOLDEN.findall((root / "tests/goldens/goldens.def").read_text())
    return [Family(root, name, goldens)
            for name in FAMILY.findall((root / "src/models/models.def").read_text())]


def check_family_lists(root: Path) -> list[str]:
    """One line for each line of models.def that is no family of one file with goldens, and for each
    place where one family names a type of another."""
    families = families_of(root)
    names = [family.name for family in families]
    problems = []
    for family in families:
        where = "src/models/models.def:1: the family " + family.name
        if names.count(family.name) > 1:
            problems.append(f"{where} has several lines")
        if not family.types:
            problems.append(f"{where} has no types in {family.file.relative_to(root)}")
        problems += [f"{where} has no golden of its type {name}" for name in family.untested]
        if not family.file.exists():
            continue
        others = {name for other in families if other.name != family.name for name in other.names}
        others -= set(family.wrappers)
        code = without_cpp_comments(family.file.read_text())
        for number, line in enumerate(code.splitlines(), 1):
            problems += [f"{family.file.relative_to(root)}:{number}: names {name}, a type of "
                         "another family" for name in others
                         if f'"{name}"' in line and not OF_GGUF.search(line)]
    return problems


def show_families(root: Path) -> None:
    for family in families_of(root):
        lines = len(family.file.read_text().splitlines())
        print(f"{family.name}: {family.file.relative_to(root)} ({lines} lines), one line of "
              f"src/models/models.def\n  types: {', '.join(family.types)}\n"
              f"  goldens: {', '.join(family.goldens)}")
    print("No other file of src/ or app/ names them.")


def check_generic(root: Path) -> list[str]:
    """One line for each file of src/kernels/cpu/generic/ with fewer than two folders of users."""
    folder = root / "src/kernels/cpu"
    included: dict[Path, set[Path]] = {}
    for path in folder.rglob("*"):
        if path.suffix in SUFFIXES:
            headers = (HEADER.match(spelling) for spelling in
                       re.findall(r"^\s*#\s*include\s*(.*)", path.read_text(), re.MULTILINE))
            included[path] = {root / "src" / header[2] for header in headers if header}

    users: dict[Path, set[str]] = {path: set() for path in included
                                   if path.parent.name == "generic"}

    def visit(path: Path, user: str) -> None:
        for header in included.get(path, set()):
            if header in users and user not in users[header]:
                users[header].add(user)
                visit(header, user)

    for path in included:
        if path.parent not in (folder, folder / "generic"):
            visit(path, path.parent.name)
    return [f"{path.relative_to(root)}:1: for what at least two instruction sets include, "
            f"not {' '.join(names) or 'none'} alone"
            for path, names in sorted(users.items()) if len(names) < 2]


# Each plant: a file, the line to plant there, and words of the complaint that must come.
PLANTS = [
    ("src/formats/planted.h", '#include "engine/engine.h"', "layer formats must not include"),
    ("src/quantize/planted.cc", '#include "checkpoints/a.h"', "layer quantize must not include"),
    ("src/models/planted.cc", '#include "kernels/cpu/a.h"', "layer models must not include"),
    ("src/engine/planted.cc", '#include "cpu_backend/a.h"', "layer engine must not include"),
    ("app/planted.cc", '#include "kernels/cpu/execution.h"', "layer app must not include"),
    ("src/base/planted_test.cc", "#  include <json/strict_json.h>", "layer base must not include"),
    ("src/synth/planted.cc", '#include "engine/generate.h"', "layer synth must not include"),
    ("src/ops/planted.cc", '#include "../text/tokenizer.h"', 'does not read "<layer>/<file>"'),
    ("src/models/planted.cc", "#include SOME_MACRO", "write a file name"),
    ("src/models/planted.h", '#include "support/random_model.h"', "for tests only"),
    ("src/models/planted.cc", "#include <gtest/gtest.h>", "for tests only"),
    ("src/completions/planted.cc", "#include <boost/asio.hpp>", "for layer http alone"),
    ("src/synth/planted.cc", 'if (type == "gpt_oss") return;', "names the family gpt_oss"),
    ("src/kernels/planted.cuh", "constexpr int kGptOssRows = 8;", "names the family gpt_oss"),
    ("src/models/gpt_oss_planted.cc", "bool is_qwen3 = true;  // gpt_oss", "the family qwen3"),
    ("app/planted.cc", 'print("for Qwen-3");', "names the family qwen3"),
    ("src/engine/planted.cc", '#include "subbyte/planted.h"', "belongs to no layer"),
    ("src/engine/planted.cc", '#include "subbyte/session.h"', "belongs to session"),
    ("src/base/planted.cc", '#include "subbyte/format.h"', "belongs to formats"),
    ("include/subbyte/planted.h", '#include "base/status.h"', "a public header includes"),
    ("include/subbyte/planted.h", "#include <fmt/format.h>", "a public header includes"),
]

# A line at the end of a file that is there, and words of the complaints about lists of families.
APPENDED = [
    ("src/models/qwen3.cc", 'constexpr auto kOther = "qwen3_next";', "a type of another family"),
    ("src/models/qwen2.cc", 'constexpr auto kOther = "LlamaForCausalLM";', "another family"),
    ("src/models/models.def", "SUBBYTE_MODEL(llama)", "the family llama has several lines"),
    ("src/models/models.def", "SUBBYTE_MODEL(unwritten)", "no types in src/models/unwritten.cc"),
]


Plant = tuple[str, str, str]


def batches(plants: list[Plant]) -> list[list[Plant]]:
    """Plants in different files, which one look at the tree finds together."""
    found: list[list[Plant]] = []
    for plant in plants:
        free = (batch for batch in found if plant[0] not in (other[0] for other in batch))
        batch = next(free, None)
        if batch is None:
            found.append(batch := [])
        batch.append(plant)
    return found


def self_test(root: Path) -> list[str]:
    """Plants that were not reported, and anything reported about the tree without them."""
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for folder_of_code in ("src", TOP, "include"):
            shutil.copytree(root / folder_of_code, copy / folder_of_code)
        (copy / "tests/goldens").mkdir(parents=True)
        shutil.copy(root / "tests/goldens/goldens.def", copy / "tests/goldens")
        before = check_tree(copy)
        for plants in batches(PLANTS):
            for file, line, _ in plants:
                (copy / file).write_text(f"// line 1\n{line}\n")
            found = [problem for problem in check_tree(copy) if problem not in before]
            for file, line, words in plants:
                (copy / file).unlink()
                said = [problem for problem in found if problem.startswith(f"{file}:")]
                found = [problem for problem in found if problem not in said]
                if len(said) != 1 or not said[0].startswith(f"{file}:2: ") or words not in said[0]:
                    failures.append(f"planted {file}: {line}\n  expected '{words}', found {said}")
            failures += [f"nobody planted {problem}" for problem in found]
        for file, line, words in APPENDED:
            before_it = (copy / file).read_text()
            (copy / file).write_text(before_it + line + "\n")
            found = check_family_lists(copy)
            (copy / file).write_text(before_it)
            if not found or any(words not in problem for problem in found):
                failures.append(f"appended {line} to {file}: expected '{words}', found {found}")
        lonely = "kernels/cpu/generic/planted.inl.h"
        (copy / "src" / lonely).write_text("")
        (copy / "src/kernels/cpu/avx2/planted.inl.h").write_text(f'#include "{lonely}"\n')
        found = [problem for problem in check_tree(copy) if problem not in before]
        if len(found) != 1 or not found[0].startswith(f"src/{lonely}:1: for") \
                or "not avx2 alone" not in found[0]:
            failures.append(f"planted {lonely} with one user: found {found}")
        makefile = copy / "src/base/CMakeLists.txt"
        makefile.write_text("subbyte_layer(base DEPENDS engine)\n")
        try:
            check_tree(copy)
            failures.append("a circle of layers was not noticed")
        except Broken as error:
            if "circle" not in str(error):
                failures.append(f"a circle of layers: found '{error}'")
    return failures


def main() -> int:
    parser = checks.parser_of(__doc__)
    parser.add_argument("--families", action="store_true")
    arguments = parser.parse_args()
    try:
        problems = (self_test if arguments.self_test else check_tree)(arguments.root)
    except Broken as error:
        problems = [str(error)]
    if arguments.families and not problems:
        show_families(arguments.root)
    return checks.ended(problems)


if __name__ == "__main__":
    sys.exit(main())
