"""Limits of a process that runs examinations: additional memory, and CPU time of each examination."""

import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

MOST_MEMORY = 64 << 20
"""Bytes of one examination, beyond what the process has before it."""
MOST_CPU_S = 2.0
"""Of one look at a document; what takes long here takes 0.5 s."""

_MOST_CPU_IN_C_S = 20


@contextmanager
def memory_limit() -> Iterator[None]:
    """More memory than that is a MemoryError. Mutations, which copy, are made outside of it."""
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


@contextmanager
def cpu_limit() -> Iterator[None]:
    """A TimeoutError when Python code takes too long; C code that does not return ends with the process."""
    started = time.process_time()

    def over(_: int, __: FrameType | None) -> None:
        if (used := time.process_time() - started) >= MOST_CPU_S:
            raise TimeoutError(f"{used:.1f} s of CPU time and no end")

    signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S, MOST_CPU_S / 4)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(started) + _MOST_CPU_IN_C_S, most))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
