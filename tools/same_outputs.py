#!/usr/bin/env python3
"""Compares what two programs write: conversions, quantized, packed and unpacked checkpoints.

usage: tools/same_outputs.py OLD NEW [--only WORD] [--jobs N]

Sources are the goldens of tests/data and small synthesized models of every family. Each is verified
and inspected, converted to every format and packed into every layout, and those in bf16 are
quantized to every format; what was quantized is converted to some more, and what was packed is
unpacked. All files but resume.json must be equal byte for byte, and so must exit codes and what is
printed, but for times and the order of words. --only takes the commands that have WORD in them.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "tests" / "data" / "goldens"
IGNORED = {"resume.json"}
AGAIN = ("compressed-tensors", "bf16", "f32", "gptq", "ak48")  # of what was quantized
TIME = re.compile(r'[\d.]+ s\b|"\w*seconds": [\d.e-]+')


def list_of(program, command, option):
    """The values of an option, as the program's help names them."""
    text = subprocess.run([program, command, "--help"], capture_output=True, text=True,
                          check=True).stdout
    text = re.sub(r"\s+", " ", text[text.index(option):])
    return re.findall(r"[\w.-]+", re.search(r"one of ([\w., -]+?)(?:;| \[| or |$| --)", text)[1])


def run(program, folder, arguments):
    """The exit code and the output, without the name of the folder."""
    done = subprocess.run([program, *arguments, "--threads", "1", "--no-progress"], cwd=folder,
                          capture_output=True, text=True, errors="replace")
    text = (done.stdout + done.stderr).replace(str(folder), "")
    return done.returncode, text


def words(text):
    """Text whose words may have another order, as lists of names do, without times."""
    return collections.Counter(re.findall(r"[\w./-]+", TIME.sub("", text)))


def hashes(folder):
    """What lies in a folder, or the file itself, by name."""
    files = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    return {str(file.relative_to(folder.parent)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in files if file.is_file() and file.name not in IGNORED}


class Comparison:
    def __init__(self, old, new, only, jobs):
        self.programs = (old, new)
        self.only = only
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self.folders = [pathlib.Path(tempfile.mkdtemp(prefix="same_")) for _ in self.programs]
        for folder in self.folders:
            (folder / "goldens").symlink_to(GOLDENS)
        self.count = collections.Counter()
        self.differences = []

    def compare(self, arguments, output=None, reads=True):
        """Runs a command in both folders; whether both wrote `output`."""
        if self.only not in " ".join(arguments) and reads:
            return False
        results = [run(program, folder, arguments)
                   for program, folder in zip(self.programs, self.folders)]
        outputs = [folder / output for folder in self.folders] if output else []
        written = [hashes(path) if path.exists() else None for path in outputs]
        command = " ".join(arguments)
        same = results[0][0] == results[1][0] and words(results[0][1]) == words(results[1][1])
        if not same or written[:1] != written[1:]:
            files = "" if written[:1] == written[1:] else " (files)"
            self.differences.append(f"{command}{files}\n  old {results[0]}\n  new {results[1]}")
        self.count[arguments[0] if results[0][0] == 0 else f"{arguments[0]} refused"] += 1
        return results[0][0] == 0 and results[1][0] == 0

    def remove(self, output):
        for folder in self.folders:
            path = folder / output
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def each(self, function, cases):
        list(self.pool.map(lambda case: function(*case), cases))

    def convert(self, source, target):
        output = f"c-{source.replace('/', '-')}-{target}"
        self.compare(["convert", source, output, "--to", target, "--allow-lossy"], output)
        self.remove(output)

    def pack(self, source, layout, dtype):
        output = f"p-{source.replace('/', '-')}-{layout}"
        if self.compare(["pack", source, output, "--to", layout, *dtype], output):
            self.compare(["unpack", output, output + "-back"], output + "-back")
            self.remove(output + "-back")
        self.remove(output)

    def quantize(self, source, form):
        output = f"q-{source}-{form}"
        if self.compare(["quantize", source, output, "--format", form], output):
            for target in AGAIN:
                self.convert(output, target)
            self.compare(["verify", output, "--json"])
        self.remove(output)

    def run(self):
        old = self.programs[0]
        targets = list_of(old, "convert", "--to")
        layouts = list_of(old, "pack", "--to")
        forms = list_of(old, "quantize", "--format")
        archs = re.findall(r"[\w.-]+", re.search(
            r"--arch ARCH +([\w., \n-]+)\[", subprocess.run(
                [old, "synth", "--help"], capture_output=True, text=True, check=True).stdout)[1])
        goldens = [f"goldens/{path.name}" for path in sorted(GOLDENS.iterdir())]
        self.each(lambda golden: [self.compare([command, golden, "--json"])
                                  for command in ("verify", "inspect")], [(g,) for g in goldens])
        self.each(self.convert, [(g, target) for g in goldens for target in targets])
        self.each(self.pack, [(g, layout, ("--dtype", "bf16") if layout == "marlin-fp4" else ())
                              for g in goldens for layout in layouts])
        for arch in archs:
            formats = ("mxfp4",) if arch == "gpt-oss" else ("awq", "gptq", "fp8", "kbit3", "vq2")
            for form in ("bf16", *formats):
                self.compare(["synth", f"s-{arch}-{form}", "--arch", arch, "--shape", "tiny",
                              "--format", form], f"s-{arch}-{form}", reads=False)
            self.each(self.quantize, [(f"s-{arch}-bf16", form) for form in forms])
            self.each(self.convert, [(f"s-{arch}-{form}", target) for form in formats
                                     for target in targets])

    def finish(self):
        for folder in self.folders:
            shutil.rmtree(folder)
        for difference in self.differences:
            print(difference)
        print(", ".join(f"{count} {name}" for name, count in sorted(self.count.items())))
        print(f"{len(self.differences)} of {sum(self.count.values())} differ")
        return 1 if self.differences else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("new", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    comparison = Comparison(options.old, options.new, options.only, options.jobs)
    comparison.run()
    return comparison.finish()


if __name__ == "__main__":
    sys.exit(main())
