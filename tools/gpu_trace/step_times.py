#!/usr/bin/env python3
"""Tables of the kernels of a step of each GPU, from what kernel_trace.cc wrote.

A step begins with the kernel that looks up its tokens. Steps that launched the same kernels with
the same grids are one kind; of each kind that ran several times the step in the middle is shown.
"""

import argparse
import collections
import re
import statistics

FIRST_KERNEL = "embed"
LEAST_STEPS = 3

Kernel = collections.namedtuple("Kernel", "begin end gpu grid threads registers shared name")


def read(path):
    kernels = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            begin, end, *launch, name = line.rstrip("\n").split("|", 7)
            kernels.append(Kernel(int(begin), int(end), *launch, short(name)))
    return sorted(kernels)


def short(name):
    """Without namespaces, the type of the result and the parameters."""
    name = re.sub(r"subbyte::(cuda|gpu)::|\(anonymous namespace\)::|<unnamed>::|^void ", "", name)
    return re.sub(r"\((?!Element).*", "", name)


def steps_of(kernels):
    steps = []
    for kernel in kernels:
        if kernel.name.startswith(FIRST_KERNEL) or not steps:
            steps.append([])
        steps[-1].append(kernel)
    return steps


def print_step(step, count):
    """Microseconds: of the kernels, and of what each adds to the end of those before it."""
    span = (step[-1].end - step[0].begin) / 1e3
    print(f"\nGPU {step[0].gpu}: {count} steps of {len(step)} kernels, {span:.0f} us from the "
          "first to the last\n")
    print("| kernel | grid | launches | us each | us of the step |\n|---|---|---|---|---|")
    rows = collections.defaultdict(list)
    end = step[0].begin
    for kernel in step:
        row = rows[kernel.name, kernel.grid, kernel.shared]
        row.append(((kernel.end - kernel.begin) / 1e3, max(0, kernel.end - end) / 1e3))
        end = max(end, kernel.end)
    for (name, grid, _), times in sorted(rows.items(), key=lambda row: -sum(t[1] for t in row[1])):
        median = statistics.median(own for own, _ in times)
        print(f"| {name} | {grid} | {len(times)} | {median:.1f} | {sum(t[1] for t in times):.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", help="the file that KERNEL_TRACE named")
    kernels = read(parser.parse_args().trace)
    for gpu in sorted({kernel.gpu for kernel in kernels}):
        kinds = collections.defaultdict(list)
        for step in steps_of([kernel for kernel in kernels if kernel.gpu == gpu]):
            kinds[tuple((kernel.name, kernel.grid) for kernel in step)].append(step)
        for steps in kinds.values():
            if len(steps) >= LEAST_STEPS:
                print_step(steps[len(steps) // 2], len(steps))


if __name__ == "__main__":
    main()
