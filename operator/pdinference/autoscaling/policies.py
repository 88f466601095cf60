"""Which resources are autoscaled by the operator's metrics, and at what their HPAs aim."""

from collections.abc import Mapping

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.validation import InvalidResourceError, validated
from pdinference.cluster.kinds import Owner
from pdinference.cluster.records import ResourceRecord
from pdinference.planning.scaling.signals import Signal
from pdinference.planning.scaling.targets import targets_milli

Policy = Mapping[Role, Mapping[Signal, float]]
"""Of each autoscaled role: how much of each signal a pod is to bear."""

_MARK = b'"autoscaling"'
_NONE: Policy = {}


class Policies:
    """Policies by resource, each read once a generation."""

    def __init__(self) -> None:
        self._known: dict[Owner, tuple[str, int, Policy]] = {}

    def of(self, record: ResourceRecord | None) -> Policy:
        """The policy of a resource; empty when no role is autoscaled, or by others' metrics."""
        if record is None or _MARK not in record.spec:
            return _NONE
        known = self._known.get(record.owner)
        if known is not None and known[:2] == (record.uid, record.generation):
            return known[2]
        policy = _read(record)
        self._known[record.owner] = (record.uid, record.generation, policy)
        return policy

    def forget(self, owner: Owner) -> None:
        """The resource is gone."""
        self._known.pop(owner, None)


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
