"""Many replicas of a model, and jobs over many prompts and checkpoints, on a cluster of Ray.

    pip install 'subbyte[ray]'
    python -m subbyte.ray serve ./model --replicas 3 -- --parallel 64

application() is an application of Ray Serve; its replicas are `subbyte serve`. answer() maps a
dataset of prompts or messages to answers; quantize(), convert() and verify() run one task for each
checkpoint. docs/cluster.md is the manual.
"""
from __future__ import annotations

try:
    import ray as _ray  # noqa: F401
except ImportError:
    raise ImportError("subbyte.ray needs Ray: pip install 'subbyte[ray]'") from None

from ._jobs import answer, convert, quantize, verify
from ._serving import Settings, application

__all__ = ["Settings", "answer", "application", "convert", "quantize", "verify"]
