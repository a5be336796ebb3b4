"""Functions of bitsandbytes by its names; subbyte.bitsandbytes.functional has them."""

from . import functional

__all__ = ["functional"]
