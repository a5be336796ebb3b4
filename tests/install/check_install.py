#!/usr/bin/env python3
"""Installs a build into an empty folder, moves it, and uses it as a stranger would.

The examples are built as a project of their own, by g++ as C++20 and by clang++ (where it is
installed) as C++23, and run on the demo model; the headers are compiled by each as both, under
warnings that the library does not choose; pkg-config is used; what the shared library exports is
what its headers say. The library is stripped, so that linking it takes no time.
"""
import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wno-sign-conversion",
            "-Werror"]
C_WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)', re.MULTILINE)
API = re.compile(r"SUBBYTE_API[^;{}()]*\b(subbyte_[a-z0-9_]+)\s*\(")

problems = []


def expect(holds, problem):
    if not holds:
        problems.append(problem)
    return holds


def run(*command, fails=False, **options):
    """Its output, standard error included."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **options)
    expect((done.returncode != 0) == fails,
           f"{shlex.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def install(options, folder):
    """Installs into one folder and moves all to another: nothing may know where it lies."""
    run(options.cmake, "--install", options.build, "--prefix", folder / "first", "--strip")
    if problems:
        return None
    prefix = folder / "moved"
    (folder / "first").rename(prefix)
    return prefix


def check_files(prefix, options, folder):
    """All that was promised is there, and no file of the package names a folder of the build."""
    def there(pattern):
        return expect(list(prefix.glob(pattern)), f"nothing installed as {pattern}")

    for pattern in ("bin/subbyte", "include/subbyte/session.h", "**/libsubbyte_cpp.a",
                    "**/cmake/subbyte/subbyteConfig.cmake", "**/pkgconfig/subbyte-cpp.pc",
                    "share/man/man1/subbyte.1.gz", "share/bash-completion/completions/subbyte",
                    "share/zsh/vendor-completions/_subbyte",
                    "share/fish/vendor_completions.d/subbyte.fish",
                    "lib/systemd/system/subbyte.service"):
        there(pattern)
    for path in [*prefix.rglob("*.cmake"), *prefix.rglob("*.pc"), *prefix.rglob("*.h")]:
        text = path.read_text()
        for place in (options.source, options.build, folder):
            expect(str(place) not in text, f"{path.relative_to(prefix)} names {place}")


def check_headers(prefix, compilers):
    """Each header stands alone, and includes the standard library and its neighbours only."""
    headers = sorted((prefix / "include/subbyte").glob("*.h"))
    for header in headers:
        for quote, name in INCLUDE.findall(header.read_text()):
            expect(name.startswith("subbyte/") if quote == '"' else "/" not in name,
                   f"{header.name} includes {name}")
    def compile_all(compiler, standard, some):
        flags = [flag for header in some for flag in ("-include", f"subbyte/{header.name}")]
        run(compiler, f"-std={standard}", *WARNINGS, "-fsyntax-only", "-I", prefix / "include",
            *flags, "-x", "c++", "/dev/null")

    for header in headers:
        compile_all(compilers[0], "c++20", [header])
    for compiler in compilers:
        for standard in ("c++20", "c++2b"):
            compile_all(compiler, standard, headers)


def check_examples(prefix, options, compiler, standard, folder):
    """The folder examples/ as a project by itself."""
    run(options.cmake, "-G", "Ninja", "-S", options.source / "examples", "-B", folder,
        f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_CXX_STANDARD={standard}",
        f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0",
        f"-DSUBBYTE_DEMO_MODEL={options.source / 'demo/model'}")
    if not problems:
        run(options.cmake, "--build", folder, "--parallel", "2")
    if not problems:
        run(options.cmake.parent / "ctest", "--test-dir", folder, "--output-on-failure")


def package_flags(prefix, name, *wanted):
    where = next(prefix.rglob(f"{name}.pc")).parent
    path = f"{where}:{os.environ.get('PKG_CONFIG_PATH', '')}"
    return shlex.split(run("pkg-config", *wanted, name,
                           env={**os.environ, "PKG_CONFIG_PATH": path}))


def check_pkg_config(prefix, options, folder):
    program = folder / "by_pkg_config"
    flags = package_flags(prefix, "subbyte-cpp", "--cflags")
    expect(all(flag.startswith("-I") for flag in flags), f"flags for all files of users: {flags}")
    run(options.cxx, "-std=c++20", options.source / "examples/continue.cc", "-o", program,
        *package_flags(prefix, "subbyte-cpp", "--cflags", "--libs"))
    if not problems:
        said = run(program, options.source / "demo/model", "Mr. Sherlock Holmes")
        expect(said.strip(), "the program that pkg-config helped to build says nothing")
    older = subprocess.run([options.cxx, "-std=c++17", "-fsyntax-only", "-x", "c++", *flags, "-"],
                           input="#include <subbyte/session.h>\n", capture_output=True, text=True)
    first = next((line for line in older.stderr.splitlines() if "error" in line), "")
    expect("C++20" in first, f"the first error of an older C++ does not name C++20: {first}")


def check_refusals(prefix, options, folder):
    """A version and a component that are not there are refused, saying so."""
    for number, (wanted, words) in enumerate([
            ("99.0 REQUIRED", "version"), ("REQUIRED COMPONENTS none", "none")]):
        project = folder / f"refused{number}"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(x CXX)\n"
            f"find_package(subbyte {wanted})\n")
        said = run(options.cmake, "-S", project, "-B", project / "build",
                   f"-DCMAKE_PREFIX_PATH={prefix}", fails=True)
        expect(words in said, f"find_package(subbyte {wanted}) says {said}")


def check_c(prefix, options, folder):
    """The shared library exports what its headers mark, and programs in C and C++ link it."""
    library = next(prefix.rglob("libsubbyte.so"))
    headers = [prefix / "include/subbyte" / name for name in ("subbyte.h", "subbyte_models.h")]
    dynamic = run("readelf", "-dW", library)
    expect("[libsubbyte.so.0]" in dynamic, f"soname: {dynamic}")
    expect("RUNPATH" not in dynamic and "RPATH" not in dynamic, f"a path in {library}")
    exported = {line.split()[-1].split("@")[0]
                for line in run("nm", "-D", "--defined-only", library).splitlines()}
    exported -= {"SUBBYTE_0"}
    marked = {name for header in headers for name in API.findall(header.read_text())}
    expect(exported == marked and marked, f"exported and not marked {sorted(exported - marked)}, "
           f"marked and not exported {sorted(marked - exported)}")
    flags = [*package_flags(prefix, "subbyte", "--cflags", "--libs"),
             f"-Wl,-rpath,{library.parent}"]
    for source in sorted((options.source / "examples/c").glob("*.c")):
        run("cc", *C_WARNINGS, source, "-o", folder / source.stem, *flags)
    if not problems:
        run(folder / "matrix", options.source / "demo/model", "model.layers.0.mlp.up_proj")
    source = folder / "main.cc"
    source.write_text('#include <subbyte/subbyte.h>\n#include <cstdio>\n'
                      'int main() { return std::puts(subbyte_version()) < 0; }\n')
    run(options.cxx, *WARNINGS, source, "-o", folder / "in_cpp", *flags)
    if not problems:
        expect(run(folder / "in_cpp").count(".") == 2, "subbyte_version() is none")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("cmake", "source", "build", "cxx"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    parser.add_argument("--prefix", type=pathlib.Path, help="an installed tree instead of another")
    options = parser.parse_args()
    folder = options.build / "install_test"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    prefix = options.prefix or install(options, folder)
    if prefix:
        clang = shutil.which("clang++")
        compilers = [options.cxx, *([clang] if clang else [])]
        check_files(prefix, options, folder)
        run(prefix / "bin/subbyte", "--version")
        check_headers(prefix, compilers)
        check_examples(prefix, options, options.cxx, 20, folder / "examples")
        if clang:
            check_examples(prefix, options, clang, 23, folder / "examples_clang")
        check_pkg_config(prefix, options, folder)
        check_refusals(prefix, options, folder)
        check_c(prefix, options, folder)
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
