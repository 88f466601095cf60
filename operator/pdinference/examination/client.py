"""Examinations of stored resources: made in the isolated process, for the reconciles."""

import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pdinference.api.v1alpha1 import PDBatch
from pdinference.cluster.child import Child
from pdinference.cluster.kinds import Owner
from pdinference.cluster.records import ResourceRecord
from pdinference.examination.desired import Desired, InvalidSpecError, asked_by
from pdinference.examination.tasks import BATCH, COMPILE
from pdinference.isolation.calls import Calls, EndedError
from pdinference.planning.memory import NO_VERDICT

AGAIN_AFTER_S: Final = 300.0
"""How long a spec whose examination did not end well is left alone, unless it changes."""


class ExaminationEndedError(InvalidSpecError):
    """The examination of a stored spec took too long, needed too much memory, or failed."""


@dataclass(frozen=True, slots=True)
class _Ended:
    asked: tuple[str, int, str]
    until: float
    sentence: str


class Examinations:
    """Asks for examinations, and remembers those that did not end well.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, calls: Calls, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._calls = calls
        self._clock = clock
        self._ended: dict[Owner, _Ended] = {}
        # A batch that runs is looked at every few seconds.
        self._batches: dict[Owner, tuple[tuple[tuple[str, int, str], bool], PDBatch]] = {}

    async def compiled(self, record: ResourceRecord) -> tuple[Desired, tuple[Child, ...]]:
        """Examine and render a PDInference.

        Raises:
            InvalidSpecError: The API server let something through that the operator cannot work with.
            BusyError: Others are examined.
        """
        if record.unreadable:
            raise InvalidSpecError.of([record.unreadable])
        found: tuple[Desired, tuple[Child, ...]] = await self._asked(COMPILE, record)
        return found

    async def batch(self, record: ResourceRecord, *, begun: bool = False) -> PDBatch:
        """Examine a PDBatch; raises the same.

        Args:
            record: The stored resource.
            begun: Whether its Job was made already.
        """
        if record.unreadable:
            raise InvalidSpecError(
                f"The stored resource is not valid, so its Job is left alone. Correct it: {record.unreadable}"
            )
        asked = (asked_by(record), begun)
        known = self._batches.get(record.owner)
        if known is not None and known[0] == asked:
            return known[1]
        found: PDBatch = await self._asked(BATCH, record, begun=begun)
        self._batches[record.owner] = asked, found
        return found

    def forget(self, owner: Owner) -> None:
        """The resource is gone, or needs no more examinations."""
        self._ended.pop(owner, None)
        self._batches.pop(owner, None)

    async def _asked(self, task: str, record: ResourceRecord, **options: object) -> Any:
        asked = asked_by(record)
        known = self._ended.get(record.owner)
        if known is not None and known.asked == asked and self._clock() < known.until:
            raise ExaminationEndedError(known.sentence, NO_VERDICT)
        try:
            answer = await self._calls.call(task, pickle.dumps((record, options)), turn=record.owner.namespace)
        except EndedError as error:
            sentence = f"{error} Nothing was changed and running pods are left alone."
            self._ended[record.owner] = _Ended(asked, self._clock() + AGAIN_AFTER_S, sentence)
            raise ExaminationEndedError(sentence) from None
        self._ended.pop(record.owner, None)
        found = pickle.loads(answer)  # noqa: S301 - from our own code; it holds no bytes of the resource but as data
        if isinstance(found, InvalidSpecError):
            raise found
        return found
