"""Loads libsubbyte_torch.so, which registers torch.ops.subbyte through libtorch's C interface."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch


def load() -> ctypes.CDLL:
    """Defines the operators with their kernels; ImportError says why it cannot."""
    library = ctypes.CDLL(str(Path(__file__).with_name("libsubbyte_torch.so")))
    library.subbyte_torch_register.argtypes = [ctypes.c_char_p]
    library.subbyte_torch_register.restype = ctypes.c_char_p
    library.subbyte_torch_kept_bytes.restype = ctypes.c_int64
    library.subbyte_torch_format.argtypes = [ctypes.c_char_p, ctypes.c_int64,
                                             ctypes.POINTER(ctypes.c_int32)]
    library.subbyte_torch_format.restype = ctypes.c_char_p
    library.subbyte_torch_signatures.restype = ctypes.c_char_p
    library.subbyte_torch_refuse_call.argtypes = [ctypes.c_char_p]
    capability = torch.backends.cpu.get_cpu_capability()
    problem = library.subbyte_torch_register(capability.encode())
    if problem is not None:
        raise ImportError(problem.decode())
    return library


# Kept as long as the process lives: torch calls into it.
LIBRARY = load()
