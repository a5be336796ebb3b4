#!/usr/bin/env python3
"""Each file includes what it uses: by itself, or through headers of ours that it includes.

CI compiles files together (SUBBYTE_UNITY), where one that lacks an include compiles all the same
because of its neighbours, and precompiled headers and the standard library hide as much. So this
compares names with includes:

- std::NAME and the integers of <cstdint>, for the names listed below;
- types, constants and functions of two words or more that one header of ours alone declares at the
  level of a namespace, in a folder of which the file includes something or its own, where no file
  that is included mentions the name and the file itself does not declare it.

    tools/check_includes.py [--root DIR]    prints file, line and name, exits 1 if there is one
    tools/check_includes.py --self-test
"""
from __future__ import annotations

import re
import sys
import tempfile
from functools import cache
from pathlib import Path

import checks

FOLDERS = ("app", "bench", "examples", "fuzz", "include", "python/src", "src", "tests", "tools")
SUFFIXES = {".h", ".cc", ".cuh", ".def"}
# Roots of "..." includes, in the order of the compiler's command.
ROOTS = ("src", "tests", ".", "include", "python/src", "fuzz")

STANDARD = {
    "algorithm": "all_of any_of binary_search clamp copy count count_if equal equal_range fill "
                 "fill_n find find_if for_each generate is_sorted lower_bound max max_element "
                 "merge min min_element minmax mismatch none_of nth_element partial_sort partition "
                 "remove_if replace reverse rotate shuffle sort stable_sort transform unique "
                 "upper_bound",
    "array": "array", "atomic": "atomic atomic_ref", "barrier": "barrier",
    "bit": "bit_cast bit_ceil bit_floor bit_width countl_zero countr_zero endian has_single_bit "
           "popcount rotl",
    "bitset": "bitset", "charconv": "from_chars to_chars", "chrono": "chrono",
    "cmath": "abs cbrt ceil cos exp exp2 expm1 fabs floor fma fmod isfinite isinf isnan ldexp log "
             "log1p log2 lrint nearbyint pow rint round signbit sin sqrt tanh trunc",
    "complex": "complex", "concepts": "convertible_to derived_from floating_point integral "
                                      "invocable same_as",
    "condition_variable": "condition_variable",
    "cstdio": "FILE fclose fflush fopen fprintf fputs fread fwrite printf puts",
    "cstdlib": "abort exit free getenv malloc strtol system",
    "cstring": "memchr memcmp memcpy memmove memset strcmp strerror strlen strncmp",
    "deque": "deque", "exception": "exception exception_ptr", "filesystem": "filesystem",
    "fstream": "fstream ifstream ofstream",
    "functional": "function greater hash less plus", "future": "async future promise",
    "initializer_list": "initializer_list", "iostream": "cerr cin clog cout",
    "iterator": "back_inserter distance istreambuf_iterator next prev size ssize",
    "limits": "numeric_limits", "list": "list", "locale": "locale", "map": "map multimap",
    "memory": "make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "lock_guard mutex once_flag call_once scoped_lock unique_lock",
    "new": "align_val_t bad_alloc nothrow", "numbers": "numbers",
    "numeric": "accumulate gcd inner_product iota midpoint reduce",
    "optional": "nullopt optional", "ostream": "ostream", "queue": "priority_queue queue",
    "random": "mt19937 mt19937_64 uniform_int_distribution", "ranges": "views",
    "set": "multiset set", "shared_mutex": "shared_mutex", "span": "as_bytes span "
    "as_writable_bytes", "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "logic_error out_of_range runtime_error", "string": "getline stod stoi string "
    "to_string", "string_view": "string_view", "thread": "jthread thread",
    "tuple": "apply get tie tuple", "type_traits": "conditional_t decay_t enable_if_t is_same_v "
    "remove_cv_t remove_cvref_t underlying_type_t", "unordered_map": "unordered_map "
    "unordered_multimap", "unordered_set": "unordered_set",
    "utility": "exchange forward index_sequence make_index_sequence move pair swap",
    "variant": "get_if holds_alternative monostate variant visit", "vector": "vector",
}
# Headers that are documented to bring names of another.
ALSO = {
    "initializer_list": {"array", "map", "set", "span", "string", "unordered_map",
                         "unordered_set", "vector", "deque"},
    "iterator": {"array", "map", "set", "span", "string", "string_view", "vector", "deque",
                 "unordered_map"},
    "string": {"filesystem", "sstream", "fstream", "iostream", "stdexcept", "regex"},
    "string_view": {"string", "filesystem"}, "tuple": {"map", "utility", "unordered_map"},
    "utility": {"map", "unordered_map", "tuple", "algorithm", "vector", "functional", "optional",
                "memory", "string", "array", "variant", "set", "span"},
    "ostream": {"iostream", "sstream", "fstream"}, "algorithm": {"ranges"},
    "exception": {"stdexcept", "new"}, "functional": {"string_view", "string", "optional",
                                                      "memory", "thread", "variant", "map", "set"},
    "concepts": {"ranges", "iterator", "span"}, "type_traits": {"concepts", "utility", "tuple"},
    "cstdint": {"cinttypes"}, "new": {"memory", "exception"},
    "thread": set(), "array": {"span", "tuple"}, "cstdio": set(), "cstdlib": set(),
    "chrono": {"thread", "condition_variable", "mutex", "filesystem"},
}
# What headers of others cannot do without.
BROUGHT = {"gtest/gtest.h": {"string", "vector", "memory", "tuple", "ostream", "sstream",
                             "type_traits", "limits", "utility", "set", "map"},
           "nlohmann/json.hpp": {"string", "vector", "map", "memory", "initializer_list",
                                 "utility", "iterator", "cstdint", "functional"},
           "fmt/format.h": {"string", "string_view", "cstdint", "limits"},
           "metal_stdlib": {"cstdint"}}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', re.MULTILINE)
NOISE = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*(?:.|\n)*?\*/')
USED_STD = re.compile(r"(?<![\w:])(?:::)?std::(\w+)(?:::(\w+))?")
USED_CSTDINT = re.compile(r"\b(u?int(?:8|16|32|64)_t)\b")
WORD = re.compile(r"(?<![\w.>:~&])(\w+[a-z0-9](?:[A-Z]|_[a-z])\w*|[A-Z]\w{3,})\b(?!:(?!:))")
DECLARED = re.compile(
    r"^(?:template <[^\n]*> ?)?(?:(?:class|struct|enum(?: class)?|concept) (?:\[\[\w+\]\] )?(\w+)"
    r"(?! ?;)|using (\w+) =|(?:inline )?constexpr [^=(;{]*?\b(k[A-Z]\w+)(?:\[[^\]]*\])* ?[={(;]"
    r"|(?:[\w:<>,*&\[\]]+ )+[*&]?(\w+)\()", re.MULTILINE)
# Any way in which a file declares the name itself: a type, a parameter, a variable, a function.
OWN = re.compile(r"(?:(?<=[\w>\])&*] )|(?<=[\w>] [*&])|(?<=\(\*))(?<!return )(?<!else )(?<!throw )"
                 r"([A-Za-z]\w+)(?=[ ({=;,):\[<]|$)|^ *(k[A-Z]\w+)(?=,| = )|, (\w+)(?=[,\]])",
                 re.MULTILINE)

OF_STANDARD = {name: header for header, names in STANDARD.items() for name in names.split()}


class Tree:
    def __init__(self, root: Path, names: list[str]):
        self.root = root
        self.names = set(names)
        self.declaring: dict[str, set[str]] = {}
        for name in names:
            if name.endswith(".h") and not name.endswith(".inl.h"):
                for found in DECLARED.findall(self.code(name)):
                    self.declaring.setdefault("".join(found), set()).add(name)

    @cache
    def text(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8", errors="replace")

    @cache
    def code(self, name: str) -> str:
        """The text without comments and strings, line by line."""
        return NOISE.sub(lambda found: "\n" * found.group().count("\n"), self.text(name))

    @cache
    def words(self, name: str) -> frozenset[str]:
        return frozenset(re.findall(r"[A-Za-z_]\w*", self.code(name)))

    @cache
    def includes(self, name: str) -> tuple[list[str], list[str]]:
        """The files of ours and those of others that it includes itself."""
        ours, others = [], []
        for _, file in INCLUDE.findall(self.text(name)):
            first = "." if name.startswith("app/") else "src"  # tests/app/ is not app/
            places = [str(Path(root, file)) for root in (first, *ROOTS)]
            places.append(str(Path(name).parent / file))
            found = next((place for place in places if place in self.names), None)
            (ours if found else others).append(found or file)
        return ours, others

    @cache
    def reached(self, name: str) -> tuple[frozenset[str], frozenset[str]]:
        ours, others, left = {name}, set(), [name]
        while left:
            mine, foreign = self.includes(left.pop())
            others.update(foreign)
            left += [file for file in mine if file not in ours]
            ours.update(mine)
        for header in list(others):
            others |= BROUGHT.get(header, set())
        return frozenset(ours), frozenset(others)


def lacking(tree: Tree, name: str) -> list[tuple[int, str, str]]:
    """Line, name and the header that is missing, each name once."""
    ours, others = tree.reached(name)
    code = tree.code(name)
    found: dict[str, tuple[int, str, str]] = {}

    def note(place: int, used: str, header: str) -> None:
        found.setdefault(used, (code.count("\n", 0, place) + 1, used, header))

    for match in USED_STD.finditer(code):
        header = OF_STANDARD.get(match.group(1))
        if header and not ({header} | ALSO.get(header, set())) & others:
            note(match.start(), "std::" + match.group(1), f"<{header}>")
    for match in USED_CSTDINT.finditer(code):
        if not {"cstdint", "stdint.h", "cinttypes"} & others:
            note(match.start(), match.group(1), "<cstdint>")
    folders = {str(Path(file).parent) for file in ours}
    own = {word for match in OWN.findall(code) for word in match}
    for match in WORD.finditer(code):
        word = match.group(1)
        places = tree.declaring.get(word, set())
        if len(places) != 1 or word in own or places & ours or \
                str(Path(min(places)).parent) not in folders:
            continue
        if not any(word in tree.words(file) for file in ours if file != name):
            note(match.start(), word, f'"{min(places)}"')
    return list(found.values())


def self_test() -> None:
    files = {
        "src/a/a.h": "#include <vector>\nstruct AbleType {\n};\n"
                     "inline constexpr int kMostOfA = 1;\n",
        "src/a/b.h": '#include "a/a.h"\n',
        "src/a/right.cc": '#include "a/b.h"\nstd::vector<AbleType> f(int a = kMostOfA);\n',
        "src/a/wrong.cc": "std::vector<int> f();\n// std::map\nuint8_t g();\n"
                          "AbleType h(kMostOfA);\n",
        "src/a/own.cc": "#include <cstdint>\nstruct AbleType {};\n"
                        'const char* x = "std::map kMostOfA";\n',
        "src/a/member.cc": "int f() { return Other::kMostOfA + a.AbleType; }\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        tree = Tree(root, list(files))
        expected = [(1, "std::vector", "<vector>"), (3, "uint8_t", "<cstdint>"),
                    (4, "AbleType", '"src/a/a.h"'), (4, "kMostOfA", '"src/a/a.h"')]
        assert lacking(tree, "src/a/wrong.cc") == expected, lacking(tree, "src/a/wrong.cc")
        for name in files:
            assert name.endswith("wrong.cc") or not lacking(tree, name), name
    print("ok")


def main() -> int:
    arguments = checks.parser_of(__doc__).parse_args()
    if arguments.self_test:
        self_test()
        return 0
    names = [path.relative_to(arguments.root).as_posix() for folder in FOLDERS
             for path in (arguments.root / folder).rglob("*") if path.suffix in SUFFIXES]
    tree = Tree(arguments.root, names)
    bad = 0
    for name in sorted(tree.names):
        if name.endswith((".h", ".cc")) and not name.endswith(".inl.h"):
            for line, used, header in lacking(tree, name):
                print(f"{name}:{line}: uses {used} and does not include {header}")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
