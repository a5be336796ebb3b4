#!/usr/bin/env python3
"""Configures project/ as a stranger's project around the library, and looks at what that gets.

What is handed on to it, what it would have to build, and that its one file compiles under warnings
of its own. It is linked with the libraries of the build that runs this: they are the same sources.
"""
import argparse
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

problems = []


def expect(holds, problem):
    if not holds:
        problems.append(problem)


def run(*command, **options):
    """Its output, standard error included."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)
    expect(done.returncode == 0, f"{shlex.join(map(str, command))}: {done.stdout}")
    return done.stdout


def check_flags(commands):
    """Nothing of how our files are compiled is in the command for theirs."""
    command, = (c["command"] for c in commands if c["file"].endswith("/project/main.cc"))
    own = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    flags = [flag for flag in shlex.split(command)[1:] if re.match("-[Wfm]|--param|-O", flag)]
    expect(flags == own, f"compiled with {flags}, expected {own}")
    layers = [c["command"] for c in commands if "/src/" in c["file"]]
    expect(len(layers) > 100, f"{len(layers)} files of layers")
    for command in layers:
        expect("-fPIC" in command and "-Wconversion" in command, f"a layer: {command}")


def check_parts(commands):
    """Only the library, and no CUDA unless it was asked for."""
    for command in commands:
        name = command["file"]
        expect(not name.endswith(".cu"), f"{name} is built without being asked for")
        for part in ("_test.cc", "/app/", "/bench/", "/examples/", "/tests/support/"):
            expect(part not in name, f"{name} is built")


def check_program(folder, libraries, cuda):
    """The files compile; one program, linked with the libraries of this build, runs. Where that
    has CUDA, so has the program: what its libraries need besides is in `cuda`."""
    ninja = shutil.which("ninja")
    run(ninja, "-C", folder, "CMakeFiles/mine.dir/main.cc.o",
        "CMakeFiles/public.dir/public.cc.o")
    link = run(ninja, "-C", folder, "-t", "commands", "-s", "mine").strip()
    link = re.sub(r"\bsubbyte/(src/\w+/lib\w+\.a)", rf"{libraries}/\1", link)
    if cuda:
        more = shlex.join(map(str, cuda))
        link = re.sub(r" && :$", "", link) + f" {more} -ldl -lrt -lpthread"
    run("sh", "-c", link, cwd=folder)
    if problems:
        return
    said = run(folder / "mine").splitlines()
    expect(said[0].count(".") == 2 and said[1] == "expected an argument [mine.argument]",
           f"the program says {said}")


def check_top_level(options, folder):
    """A top project that names no kind of build is optimized."""
    run(options.cmake, "-G", "Ninja", "-S", options.source, "-B", folder,
        f"-DCMAKE_CXX_COMPILER={options.cxx}", "-DSUBBYTE_ISAS=scalar", "-DSUBBYTE_CUDA=OFF",
        "-DSUBBYTE_BUILD_TESTS=OFF", "-DSUBBYTE_BUILD_BENCHMARKS=OFF")
    cache = (folder / "CMakeCache.txt").read_text()
    expect("CMAKE_BUILD_TYPE:STRING=RelWithDebInfo\n" in cache, "no kind of build by itself")


def main():
    parser = argparse.ArgumentParser()
    for name in ("cmake", "cxx", "source", "build"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    parser.add_argument("--cuda", nargs="*", default=[], type=pathlib.Path)
    options = parser.parse_args()
    folder = options.build / "embedding"
    shutil.rmtree(folder, ignore_errors=True)
    said = run(options.cmake, "-G", "Ninja", "-S", options.source / "tests/embedding/project",
               "-B", folder / "project", f"-DCMAKE_CXX_COMPILER={options.cxx}",
               "-DCMAKE_BUILD_TYPE=", "-DSUBBYTE_ISAS=scalar",
               f"-DSUBBYTE_SOURCE={options.source}")
    expect("CMAKE_BUILD_TYPE is empty" in said, "no warning that nothing is optimized")
    if not problems:
        commands = json.loads((folder / "project/compile_commands.json").read_text())
        check_flags(commands)
        check_parts(commands)
        check_program(folder / "project", options.build, options.cuda)
    check_top_level(options, folder / "top")
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
