"""Examines stored resources in the isolated process, for reconciles."""

import math
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pdinference.api.v1alpha1 import PDBatch
from pdinference.cluster.child import Child
from pdinference.cluster.kinds import Owner
from pdinference.cluster.state.records import ResourceRecord
from pdinference.examination.desired import Desired, InvalidSpecError, SpecIdentity, spec_identity
from pdinference.examination.tasks import BATCH, COMPILE, RENDER
from pdinference.isolation.calls import Calls, EndedError

AGAIN_AFTER_S: Final = 300.0
"""Time until a spec whose examination did not complete is examined again, unless it changes."""


_REFUSALS: Final = 2
"""Cached for each resource: the refusals of the stored spec and of the last valid one."""


class ExaminationEndedError(InvalidSpecError):
    """The examination of a stored spec took too long, needed too much memory, or failed."""

    fault = "The stored resource could not be examined"


@dataclass(frozen=True, slots=True)
class _Refusal:
    error: InvalidSpecError
    until: float


class Examinations:
    """Calls examinations, and caches their refusals.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, calls: Calls, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._calls = calls
        self._clock = clock
        self._refusals: dict[Owner, dict[SpecIdentity, _Refusal]] = {}
        # A running batch is reconciled every few seconds.
        self._batches: dict[Owner, tuple[tuple[SpecIdentity, bool], PDBatch]] = {}

    async def compiled(self, record: ResourceRecord) -> tuple[Desired, tuple[Child, ...]]:
        """Examine and render a PDInference.

        Raises:
            InvalidSpecError: The stored spec is invalid, although the API server accepted it.
            BusyError: The isolated process is busy with other specs.
        """
        if record.unreadable:
            raise InvalidSpecError.from_problems([record.unreadable])
        found: tuple[Desired, tuple[Child, ...]] = await self._examined(COMPILE, record)
        return found

    async def rendered(self, record: ResourceRecord) -> tuple[Child, ...]:
        """Render a PDInference that was found valid before, without examining it again; raises the same errors."""
        found: tuple[Child, ...] = await self._examined(RENDER, record)
        return found

    async def batch(self, record: ResourceRecord, *, begun: bool = False) -> PDBatch:
        """Examine a PDBatch; raises the same errors.

        Args:
            record: The stored resource.
            begun: Whether its Job exists already.
        """
        if record.unreadable:
            raise InvalidSpecError.from_problems([record.unreadable])
        identity = (spec_identity(record), begun)
        known = self._batches.get(record.owner)
        if known is not None and known[0] == identity:
            return known[1]
        found: PDBatch = await self._examined(BATCH, record, begun=begun)
        self._batches[record.owner] = identity, found
        return found

    def forget(self, owner: Owner) -> None:
        """Drop the cached results of a resource that was deleted, or needs no more examinations."""
        self._refusals.pop(owner, None)
        self._batches.pop(owner, None)

    async def _examined(self, task: str, record: ResourceRecord, **options: object) -> Any:
        identity = spec_identity(record)
        known = self._refusals.get(record.owner, {}).get(identity)
        if known is not None and self._clock() < known.until:
            raise known.error
        try:
            answer = await self._calls.call(task, pickle.dumps((record, options)), turn=record.owner.namespace)
        except EndedError as error:
            raise self._refused(record.owner, identity, ExaminationEndedError(str(error)), AGAIN_AFTER_S) from None
        found = pickle.loads(answer)  # noqa: S301 - from the operator; bytes of the resource are only data
        if isinstance(found, InvalidSpecError):
            raise self._refused(record.owner, identity, found, math.inf)
        return found

    def _refused(
        self, owner: Owner, identity: SpecIdentity, error: InvalidSpecError, seconds: float
    ) -> InvalidSpecError:
        kept = self._refusals.setdefault(owner, {})
        kept.pop(identity, None)
        kept[identity] = _Refusal(error, self._clock() + seconds)
        if len(kept) > _REFUSALS:
            del kept[next(iter(kept))]
        return error
