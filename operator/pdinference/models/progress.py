"""How far a download is: written by the thread that downloads, read by the one that reports."""

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Phase(StrEnum):
    """What is being done."""

    WAITING = "Waiting"  # another pod downloads the same model into the same cache
    ASKING = "Asking"  # the hub, what the repository holds
    DOWNLOADING = "Downloading"
    VERIFYING = "Verifying"
    READY = "Ready"
    FAILED = "Failed"


@dataclass
class Progress:
    """How far a download is.

    Attributes:
        folder: Where files arrive; what lies there is what was downloaded.
        facts: What is known of the model, at the end.
        problem: Why it failed: a CamelCase reason, and a message.
    """

    phase: Phase = Phase.ASKING
    commit: str = ""
    total: int = 0
    folder: Path | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    problem: tuple[str, str] | None = None

    def as_json(self) -> dict[str, Any]:
        """For the Job's annotation, where the operator reads it."""
        content: dict[str, Any] = {"phase": self.phase.value}
        if self.commit:
            content["commit"] = self.commit
        if self.total:
            content |= {"totalBytes": self.total, "downloadedBytes": min(self.total, self._arrived())}
        if self.facts:
            content["facts"] = self.facts
        if self.problem:
            content["reason"], content["message"] = self.problem
        return content

    def _arrived(self) -> int:
        if self.phase is Phase.READY or self.folder is None:
            return self.total
        return sum(_size(Path(where, name)) for where, _, names in os.walk(self.folder) for name in names)


def _size(file: Path) -> int:
    """Bytes that a file takes up: a download may set aside the whole size at once. 0 for one that just went."""
    try:
        found = file.lstat()
    except FileNotFoundError:
        return 0
    return min(found.st_size, found.st_blocks * 512)
