"""How long an engine's steps take, as a plugin of vLLM: nothing, unless `STEP_TIMES` names a file.

The file gets a line of JSON for each step: its tokens and requests, when it was launched (seconds of the monotonic
clock), the time that a CPU took to launch its kernels, the time on the GPU from its first to its last kernel, and how
long the GPU had nothing to do before it (ms). Where the time on the GPU is that of the launches, a CPU is what limits
the step. The entry point is `step_times = benchmarks.on_gpu.step_times:install` of the group `vllm.general_plugins`.
"""

import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

FILE: Final = "STEP_TIMES"


class _Steps:
    """Steps whose end on the GPU has not come yet, in their order."""

    def __init__(self, executor: Any, file: Path) -> None:
        self._executor = executor
        self._execute, self._sample = executor.execute_model, executor.sample_tokens
        self._file = file.open("a", encoding="utf-8", buffering=1)
        self._open: deque[tuple[dict[str, Any], Any, Any]] = deque()
        self._began: tuple[dict[str, Any], Any] | None = None
        self._last: Any = None

    def execute(self, scheduled: Any, *given: Any, **named: Any) -> Any:
        """Launch a step."""
        step = {"at": time.monotonic(), "tokens": scheduled.total_num_scheduled_tokens}
        step["requests"] = len(scheduled.num_scheduled_tokens)
        self._began = step, _event()
        return self._execute(scheduled, *given, **named)

    def sample(self, *given: Any, **named: Any) -> Any:
        """Launch the sampling, which ends a step."""
        found = self._sample(*given, **named)
        if self._began is not None:
            step, first = self._began
            step["launch_ms"] = round(1000 * (time.monotonic() - step["at"]), 3)
            self._open.append((step, first, _event()))
            self._began = None
        while self._open and self._open[0][2].query():
            self._write(*self._open.popleft())
        return found

    def _write(self, step: dict[str, Any], first: Any, last: Any) -> None:
        step["gpu_ms"] = round(first.elapsed_time(last), 3)
        step["idle_ms"] = round(self._last.elapsed_time(first), 3) if self._last is not None else None
        self._last = last
        self._file.write(json.dumps(step) + "\n")


def install() -> None:
    """Measure the steps of engines that start in this process, or in one that is forked from it."""
    file = os.environ.get(FILE)
    if file is None:
        return
    from vllm.v1.engine.core import EngineCore  # noqa: PLC0415 - only where vLLM runs

    start = EngineCore.__init__

    def started(self: Any, *given: Any, **named: Any) -> None:
        start(self, *given, **named)
        steps = _Steps(self.model_executor, Path(file))
        self.model_executor.execute_model, self.model_executor.sample_tokens = steps.execute, steps.sample

    EngineCore.__init__ = started


def _event() -> Any:
    """An event at the end of what the GPU has been given to do so far."""
    import torch  # noqa: PLC0415 - the same

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
