"""The spec in effect of a PDInference: the stored one, or the last valid one while that is invalid or withheld."""

import json
import logging
import pickle
from dataclasses import replace

from pdinference.cluster.child import Child
from pdinference.cluster.history.entry import with_decode_replicas
from pdinference.cluster.history.store import History
from pdinference.cluster.kinds import Owner
from pdinference.cluster.state.records import ResourceRecord, compact
from pdinference.examination.client import AGAIN_AFTER_S, ExaminationEndedError, Examinations
from pdinference.examination.desired import Desired, EffectiveSpec, InvalidSpecError
from pdinference.planning.pause import resume_command

_LOG = logging.getLogger(__name__)
_MOST_FIELDS = 8


class PausedError(InvalidSpecError):
    """The resource is paused, and no valid spec is known that could be in effect."""

    fault = "The resource is paused and its history has no valid spec"

    @classmethod
    def of(cls, owner: Owner) -> "PausedError":
        """The error of this resource."""
        return cls(f"Roll out the stored spec with {resume_command(owner.namespace, owner.name)}.")


class EffectiveSpecs:
    """Finds the spec in effect of each resource, and caches its examination."""

    def __init__(self, examinations: Examinations, history: History) -> None:
        self._examinations = examinations
        self._history = history
        self._desired: dict[Owner, bytes] = {}
        """Pickled: a quarter of the memory, for a tenth of a millisecond per read."""

    async def find(self, resource: ResourceRecord) -> EffectiveSpec:
        """Examine the spec in effect of a resource.

        Raises:
            InvalidSpecError: The stored spec is invalid, and no valid one is known.
            PausedError: The resource is paused, and no valid spec is known.
            BusyError: The isolated process is busy with other specs.
            ApiError: The last valid spec could not be read.
        """
        if resource.paused and not self._history.is_newest(resource):
            return await self._while_paused(resource)
        try:
            found = await self._compiled(resource)
        except InvalidSpecError as error:
            return await self._last_valid(resource, error)
        self._history.forget(resource.owner)
        return found

    async def children(self, spec: EffectiveSpec) -> tuple[Child, ...]:
        """All children, rendered.

        Raises:
            ExaminationEndedError: The rendering did not complete.
            BusyError: The isolated process is busy with other specs.
        """
        return spec.children or await self._examinations.rendered(spec.record)

    def forget(self, owner: Owner) -> None:
        """Drop the cached spec of a deleted resource."""
        self._desired.pop(owner, None)
        self._history.forget(owner)
        self._examinations.forget(owner)

    async def _last_valid(self, resource: ResourceRecord, error: InvalidSpecError) -> EffectiveSpec:
        last_valid = await self._history.last_valid(resource)
        if last_valid is None:
            raise error
        try:
            found = await self._compiled(last_valid)
        except InvalidSpecError:  # it was valid for another version of the operator
            raise error from None
        invalid = error.with_consequence("the last valid spec stays in effect")
        return replace(found, invalid=invalid, examine_again_after=examine_again_after(error))

    async def _while_paused(self, resource: ResourceRecord) -> EffectiveSpec:
        """The last valid spec with D's replica count of the stored one, because paused resources scale.

        The stored spec is not examined. A count that makes the last valid spec invalid is withheld, too.
        """
        last_valid = await self._history.last_valid(resource)
        if last_valid is None:
            raise PausedError.of(resource.owner)
        spec = with_decode_replicas(json.loads(last_valid.spec), json.loads(resource.spec) or {})
        scaled = replace(last_valid, spec=compact(spec))
        try:
            return replace(await self._compiled(scaled), withheld=scaled.spec != resource.spec)
        except InvalidSpecError:
            pass
        try:
            return replace(await self._compiled(last_valid), withheld=True)
        except ExaminationEndedError:
            raise
        except InvalidSpecError:  # it was valid for another version of the operator
            raise PausedError.of(resource.owner) from None

    async def _compiled(self, resource: ResourceRecord) -> EffectiveSpec:
        known = self._known(resource.owner)
        if known is not None and known.is_of(resource):
            return EffectiveSpec(resource, known)
        desired, children = await self._examinations.compiled(resource)
        if desired.ignored:
            fields = ", ".join(desired.ignored[:_MOST_FIELDS])
            _LOG.warning(
                "Fields of a CRD of another version are ignored: %s", fields, extra={"resource": str(resource.owner)}
            )
        self._desired[resource.owner] = pickle.dumps(desired)
        return EffectiveSpec(resource, desired, children)

    def _known(self, owner: Owner) -> Desired | None:
        kept = self._desired.get(owner)
        if kept is None:
            return None
        known: Desired = pickle.loads(kept)  # noqa: S301 - made here
        return known


def examine_again_after(error: InvalidSpecError) -> float | None:
    """Seconds until the same spec may be found valid; None for never."""
    return AGAIN_AFTER_S if isinstance(error, ExaminationEndedError) else None
