"""How far a download is: written by the thread that downloads, read by the one that reports."""

import json
import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pdinference.api.plain_text import plain

LARGEST = 128 << 10
"""Bytes of an annotation; an object takes 256 KiB of them in all."""
_LONGEST_MESSAGE = 1000


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
        """For the Job's annotation, where the operator reads it: at most `LARGEST` bytes, facts left out for that."""
        content: dict[str, Any] = {"phase": self.phase.value}
        if self.commit:
            content["commit"] = self.commit
        if self.total:
            content |= {"totalBytes": self.total, "downloadedBytes": min(self.total, self._arrived())}
        if self.problem:
            reason, message = self.problem
            content["reason"], content["message"] = reason, plain(message, _LONGEST_MESSAGE)
        for facts in (self.facts, {name: fact for name, fact in self.facts.items() if name != "adapters"}):
            if facts and len(json.dumps({**content, "facts": facts})) <= LARGEST:
                return {**content, "facts": facts}
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
