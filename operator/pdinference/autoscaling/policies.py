"""Which resources are autoscaled by the operator's metrics, and at what their HPAs aim."""

import logging
from collections.abc import Mapping

from pdinference.api import names
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.validation import InvalidResourceError, validated
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import AUTOSCALER, SCALER, ChildKey, Owner
from pdinference.cluster.records import ResourceRecord
from pdinference.planning.observed import AutoscalerState
from pdinference.planning.scale_target import ScalerState
from pdinference.planning.scaling.condition import asks_operator
from pdinference.planning.scaling.signals import Signal
from pdinference.planning.scaling.targets import targets_milli

Policy = Mapping[Role, Mapping[Signal, float]]
"""Of each autoscaled role: how much of each signal a pod is to bear."""

_LOG = logging.getLogger(__name__)
_MARK = b'"autoscaling"'
_NONE: Policy = {}
_SIGNALS = frozenset(Signal)


def autoscaler_of(cache: Cache, owner: Owner, role: Role) -> AutoscalerState | None:
    """The live HPA of a role; None where there is none."""
    record = cache.children.get(ChildKey(AUTOSCALER.name, owner.namespace, names.role_object(owner.name, role)))
    return record.autoscaler if record is not None and record.owner == owner else None


def scaler_of(cache: Cache, owner: Owner, role: Role) -> ScalerState | None:
    """The scale target of a role; None where there is none."""
    record = cache.children.get(ChildKey(SCALER.name, owner.namespace, names.role_object(owner.name, role)))
    return record.scaler if record is not None and record.owner == owner else None


class Policies:
    """What each HPA aims at, and where there is none yet, what the spec asks for.

    An HPA is told nothing new while the spec is invalid, so it goes on by what an earlier spec asked for.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._asked: dict[Owner, tuple[str, int, Policy]] = {}

    def of(self, owner: Owner) -> Policy:
        """The policy of a resource; empty when no role is autoscaled, or by others' metrics."""
        record = self._cache.resources.get(owner)
        if record is None:
            self._asked.pop(owner, None)
            return _NONE
        hpas = {role: autoscaler_of(self._cache, owner, role) for role in ENGINE_ROLES}
        told = {role: _aims(hpa) for role, hpa in hpas.items() if hpa is not None and asks_operator(hpa)}
        return {**self._of_spec(record), **told}

    def _of_spec(self, record: ResourceRecord) -> Policy:
        """Read once a generation."""
        if _MARK not in record.spec:
            return _NONE
        known = self._asked.get(record.owner)
        if known is not None and known[:2] == (record.uid, record.generation):
            return known[2]
        policy = _guarded(record)
        self._asked[record.owner] = (record.uid, record.generation, policy)
        return policy


def _aims(hpa: AutoscalerState) -> dict[Signal, float]:
    """Of each metric of the operator's that the HPA divides by its pods."""
    ours = (load for load in hpa.loads if load.averaged and load.metric in _SIGNALS)
    return {Signal(load.metric): load.target_milli / 1000 for load in ours}


def _guarded(record: ResourceRecord) -> Policy:
    """A fault at one stored spec must not end the rounds of all tenants' pods."""
    try:
        return _read(record)
    except Exception:  # noqa: BLE001 - logged once a generation; its reconcile fails, too, and is counted
        _LOG.exception("The targets of a resource could not be read", extra={"resource": str(record.owner)})
        return _NONE


def _read(record: ResourceRecord) -> Policy:
    try:
        spec = validated(record.body()).spec
    except InvalidResourceError:  # the reconciler reports it
        return _NONE
    if spec.metrics_source not in {None, "Builtin"}:  # others read these pods
        return _NONE
    scaled = {role: spec.of(role) for role in ENGINE_ROLES if spec.of(role).autoscaled}
    return {
        role: {signal: milli / 1000 for signal, milli in targets_milli(role, part.autoscaling).items()}
        for role, part in scaled.items()
        if part.autoscaling is not None
    }
