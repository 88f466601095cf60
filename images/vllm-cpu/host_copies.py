"""What vLLM's KV offloading asks of an accelerator, for a KV cache that lies in host memory already.

vLLM moves blocks of the KV cache between an accelerator and its CPU tier on streams, and times them by events. Without
an accelerator both ends are host memory: a copy is a `memmove`, done when the call returns, and an event is the time on
the clock. Everything above the copying (which blocks, when, the tiers behind, the metrics) is vLLM's own; patches.py
makes it use this module.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any


class HostEvent:
    """A point in time, reached as soon as it is recorded."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def record(self, stream: Any = None) -> None:
        """Take the time; there is no stream whose work would have to be waited for.

        Args:
            stream: Ignored.
        """
        self._seconds = time.perf_counter()

    def query(self) -> bool:
        """Whether the event has happened: always."""
        return True

    def synchronize(self) -> None:
        """Wait for the event, which has happened."""

    def elapsed_time(self, end: HostEvent) -> float:
        """Milliseconds from this event to another.

        Args:
            end: The later event.
        """
        return (end._seconds - self._seconds) * 1000


def swap_blocks_batch(sources: Any, targets: Any, sizes: Any, *, is_src_access_order_any: bool = False) -> None:
    """Copy pieces of memory.

    Args:
        sources: Addresses to copy from, as a tensor.
        targets: Addresses to copy to.
        sizes: Bytes of each piece.
        is_src_access_order_any: Ignored; copies are made one after the other.
    """
    for source, target, size in zip(sources.tolist(), targets.tolist(), sizes.tolist(), strict=True):
        ctypes.memmove(target, source, size)
