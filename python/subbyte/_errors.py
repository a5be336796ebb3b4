"""The exception of the package."""
from __future__ import annotations

from . import _core


class Error(Exception):
    """Something that cannot be done because of a file, an argument or the machine.

    `str(error)` is one line that names file, tensor, what was expected and what was found.
    `error.code` is stable and for programs, such as "file.not_found" or "import.shape".
    """

    code: str

    def __init__(self, message: str, code: str = "python") -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[Error], tuple[str, str]]:
        return type(self), (str(self), self.code)


_core.set_error_type(Error)
