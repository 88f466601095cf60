"""Progress of a download. The downloading thread writes it, and the reporting thread reads it.

Tests: tests/models/files/test_hostile_files.py, tests/models/test_fetch.py
"""

import json
import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pdinference.api.plain_text import plain

LARGEST = 128 << 10
"""Maximum size of the annotation in bytes. Kubernetes allows 256 KiB for all annotations of an object."""
_LONGEST_MESSAGE = 1000


class Phase(StrEnum):
    """Phase of a download."""

    WAITING = "Waiting"  # another pod downloads the same model into the same cache
    ASKING = "Asking"  # requests the list of files from the hub
    DOWNLOADING = "Downloading"
    VERIFYING = "Verifying"
    READY = "Ready"
    FAILED = "Failed"


@dataclass
class DownloadProgress:
    """Progress of a download.

    Attributes:
        folder: Target folder. The size of its files is the downloaded size.
        facts: Facts about the model, set at the end.
        problem: Reason (CamelCase) and message of a failure.
    """

    phase: Phase = Phase.ASKING
    commit: str = ""
    total: int = 0
    folder: Path | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    problem: tuple[str, str] | None = None

    def as_json(self) -> dict[str, Any]:
        """Content of the Job's annotation for the operator. Facts are left out if it would exceed `LARGEST` bytes."""
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
    """Allocated bytes of a file, because downloads may create sparse files. 0 if it was removed meanwhile."""
    try:
        found = file.lstat()
    except FileNotFoundError:
        return 0
    return min(found.st_size, found.st_blocks * 512)
