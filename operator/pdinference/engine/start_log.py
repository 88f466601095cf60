"""Phases of vLLM's start, by the lines of its log that end them (vLLM 0.26 to 0.33).

Tests: tests/engine/test_start_log.py, tests/cli/test_status_startup.py
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

PHASES: Final = {
    "imports": "non-default args",  # entrypoints/serve/utils/api_utils.py, in 0.26 entrypoints/utils.py
    "engine process": "Initializing a V1 LLM engine",  # v1/engine/core.py
    "device": "Starting to load model|Loading model from scratch",  # v1/worker/*model_runner.py
    "weights": "Model loading took",  # the same
    "compilation": r"torch\.compile took",  # compilation/monitor.py
    "profiling": "Available KV cache memory",  # v1/worker/gpu_worker.py
    "graphs": "Graph capturing finished",  # v1/worker/*model_runner.py
    "warm-up": "init engine ",  # v1/engine/core.py
    "server": "Application startup complete",  # of Uvicorn
}
"""Each phase, and what the line says that ends it. Without one of them (graphs of an eager engine), its time is in the
next phase."""
COMPILE_CACHE_LINE: Final = "Compile cache: restored"
"""Of `scripts/compile_cache.py`."""
_ENDS: Final = {phase: re.compile(said) for phase, said in PHASES.items()}

Line = tuple[datetime, str]


def phase_seconds(lines: Iterable[Line], begin: datetime) -> dict[str, float]:
    """Seconds of each phase whose end is in the log.

    Args:
        lines: The first run of vLLM, with the time at which each line was written.
        begin: When its process began.
    """
    left, found = list(_ENDS), dict[str, float]()
    for at, text in lines:
        phase = next((phase for phase in left if _ENDS[phase].search(text)), None)
        if phase is not None:
            found[phase] = max(0.0, (at - begin).total_seconds())
            begin = at
            left = left[left.index(phase) + 1 :]
        if not left:
            break
    return found
