"""Right and wrong edits of a resource, one after another, while something happens to the operator."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, Literal

from pdinference.cluster.client import ApiServer, load_configuration
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import RESOURCE

Outcome = Literal["accepted", "refused", "unanswered"]

_PAUSE_SECONDS = 0.1
_WRONG: tuple[dict[str, Any], ...] = (
    {"engine": {"args": {"nonsense": 1}}},
    {"engine": {"args": {"nonsense": 1}}, "decode": {"replicas": "2"}},  # the schema would refuse the second, too
)
_WORDS = "spec.engine.args.nonsense"


@dataclass(frozen=True)
class Edit:
    """One edit.

    Attributes:
        at: When it was over, on the monotonic clock.
        right: Whether it should get in.
        words: What the API server said; empty when it got in.
    """

    at: float
    right: bool
    words: str

    @property
    def outcome(self) -> Outcome:
        """What became of it."""
        if not self.words:
            return "accepted"
        return "refused" if _WORDS in self.words else "unanswered"


@dataclass
class Edits:
    """All edits so far."""

    made: list[Edit] = field(default_factory=list)

    def of(self, *, right: bool) -> list[Edit]:
        """Those that should get in, or those that should not."""
        return [edit for edit in list(self.made) if edit.right == right]

    def mistakes(self) -> list[Edit]:
        """Wrong ones that got in, and right ones that were refused for what they say."""
        return [edit for edit in list(self.made) if edit.outcome == ("refused" if edit.right else "accepted")]

    def longest_gap(self) -> float:
        """The most seconds between two right edits that got in, one after the other: for so long, nobody could edit."""
        accepted = [edit.at for edit in self.of(right=True) if edit.outcome == "accepted"]
        return max((after - before for before, after in pairwise(accepted)), default=0.0)


@contextmanager
def editing(kubeconfig: Path, namespace: str, name: str) -> Iterator[Edits]:
    """Edit a resource in the background until the end of the block; no edit reaches its pods."""
    edits, stop = Edits(), threading.Event()
    path = RESOURCE.path(namespace, name)
    thread = threading.Thread(target=lambda: asyncio.run(_keep_editing(kubeconfig, path, edits, stop)), daemon=True)
    thread.start()
    try:
        yield edits
    finally:
        stop.set()
        thread.join()


async def _keep_editing(kubeconfig: Path, path: str, edits: Edits, stop: threading.Event) -> None:
    api = ApiServer(await load_configuration(kubeconfig), user_agent="edits")
    try:
        stored, other = "Enforce", "Warn"
        for wrong in cycle(_WRONG):
            if stop.is_set():
                break
            right = await _edit(api, path, {"memoryPolicy": other}, right=True)
            if right.outcome == "accepted":  # what changes nothing would get in without anybody being asked
                stored, other = other, stored
            edits.made += [right, await _edit(api, path, wrong, right=False)]
            await asyncio.sleep(_PAUSE_SECONDS)
        await api.merge(path, {"spec": {"memoryPolicy": None}})
    finally:
        await api.close()


async def _edit(api: ApiServer, path: str, spec: dict[str, Any], *, right: bool) -> Edit:
    words = ""
    try:
        await api.merge(path, {"spec": spec})
    except ApiError as error:
        words = error.message
    return Edit(time.monotonic(), right, words)
