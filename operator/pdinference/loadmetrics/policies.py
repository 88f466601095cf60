"""What scraping needs of specs: autoscaled roles with their target values, latency objectives, GPU products."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pdinference.api import names
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1.pair_autoscaling import MetricsSource
from pdinference.api.validation import InvalidResourceError, validated
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT, SCALER, ChildKey, Owner
from pdinference.cluster.state.records import ResourceRecord
from pdinference.planning.objectives import StatedObjectives
from pdinference.planning.observed import AutoscalerState
from pdinference.planning.scale_target import ScalerState
from pdinference.planning.scaling.condition import reads_operator
from pdinference.planning.scaling.signals import Signal
from pdinference.planning.scaling.targets import signal_of, targets_milli

Policy = Mapping[Role, Mapping[Signal, float]]
"""Target value per pod of each signal, for each autoscaled role."""

_LOG = logging.getLogger(__name__)
_MARKS = (b'"autoscaling"', b'"objectives"')


@dataclass(frozen=True, slots=True)
class _SpecPolicy:
    """The policy of a spec, and what else is needed of it.

    Attributes:
        products: GPU products that the pods of each role may run on; empty for any.
        gpus: GPUs of one instance of each role.
        adaptive: Whether requests go to D without P, too (`router.disaggregation`).
        ahead: Roles whose autoscalers look ahead.
    """

    policy: Policy = field(default_factory=dict)
    source: MetricsSource | None = None
    objectives: StatedObjectives | None = None
    products: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)
    gpus: Mapping[Role, int] = field(default_factory=dict)
    adaptive: bool = False
    ahead: frozenset[Role] = frozenset()


_NONE: Final = _SpecPolicy()


def autoscaler_of(cache: Cache, owner: Owner, role: Role) -> AutoscalerState | None:
    """The HPA or ScaledObject of a role in the cache; None if there is none."""
    for kind in (AUTOSCALER, SCALED_OBJECT):
        record = cache.children.get(ChildKey(kind.name, owner.namespace, names.role_object(owner.name, role)))
        if record is not None and record.owner == owner:
            return record.autoscaler
    return None


def scaler_of(cache: Cache, owner: Owner, role: Role) -> ScalerState | None:
    """The scale target of a role in the cache; None if there is none."""
    record = cache.children.get(ChildKey(SCALER.name, owner.namespace, names.role_object(owner.name, role)))
    return record.scaler if record is not None and record.owner == owner else None


class Policies:
    """Targets of autoscalers: those of the live objects, or else those of the spec.

    Live objects take precedence, because autoscalers keep the targets of the last valid spec while the spec is invalid.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._from_specs: dict[Owner, tuple[str, bytes, _SpecPolicy]] = {}

    def policy(self, owner: Owner) -> Policy:
        """The policy of a resource; empty if no role is autoscaled."""
        record = self._cache.resources.get(owner)
        if record is None:
            self._from_specs.pop(owner, None)
            return _NONE.policy
        scalers = {role: autoscaler_of(self._cache, owner, role) for role in ENGINE_ROLES}
        live = {
            role: _targets_of(scaler)
            for role, scaler in scalers.items()
            if scaler is not None and reads_operator(scaler)
        }
        return {**self._from_spec(record).policy, **live}

    def autoscaled(self) -> list[tuple[Owner, Policy]]:
        """All resources with an autoscaled role, with their policies."""
        found = [(record.owner, self.policy(record.owner)) for _, record in self._cache.resources.items()]
        return [(owner, policy) for owner, policy in found if policy]

    def objectives(self, owner: Owner) -> StatedObjectives | None:
        """The latency objectives of a resource; None without any."""
        record = self._cache.resources.get(owner)
        return None if record is None else self._from_spec(record).objectives

    def products(self, owner: Owner, role: Role) -> tuple[str, ...]:
        """GPU products that the pods of a role may run on; empty for any, and where nothing is measured."""
        record = self._cache.resources.get(owner)
        return () if record is None else self._from_spec(record).products.get(role, ())

    def gpus(self, owner: Owner, role: Role) -> int:
        """GPUs of one instance of a role; 0 on CPU, and where nothing is measured."""
        record = self._cache.resources.get(owner)
        return 0 if record is None else self._from_spec(record).gpus.get(role, 0)

    def is_adaptive(self, owner: Owner) -> bool:
        """Whether requests go to D without P, too; False where nothing is measured."""
        record = self._cache.resources.get(owner)
        return record is not None and self._from_spec(record).adaptive

    def looks_ahead(self, owner: Owner, role: Role) -> bool:
        """Whether the loads of a role are those that are expected (`autoscaling.lookAhead`)."""
        record = self._cache.resources.get(owner)
        return record is not None and role in self._from_spec(record).ahead

    def measured(self) -> list[Owner]:
        """All resources whose pods are measured: those with an autoscaled role or with objectives."""
        found = (record.owner for _, record in self._cache.resources.items())
        return [owner for owner in found if self.policy(owner) or self.objectives(owner) is not None]

    def inferences(self) -> list[Owner]:
        """All PDInferences."""
        found = (record.owner for _, record in self._cache.resources.items())
        return [owner for owner in found if owner.kind == names.KIND]

    def uses_metrics_api(self, owner: Owner) -> bool:
        """Whether autoscalers of a resource use the operator's external metrics API. True if not known."""
        record = self._cache.resources.get(owner)
        return record is None or self._from_spec(record).source in {None, "Builtin"}

    def _from_spec(self, record: ResourceRecord) -> _SpecPolicy:
        """The policy in the spec in effect, parsed once."""
        last_valid = self._cache.last_valid.get(record.owner)
        if last_valid is not None and last_valid.uid == record.uid:
            record = last_valid
        if not any(mark in record.spec for mark in _MARKS):
            return _NONE
        known = self._from_specs.get(record.owner)
        if known is not None and known[:2] == (record.uid, record.spec):
            return known[2]
        found = _guarded(record)
        self._from_specs[record.owner] = (record.uid, record.spec, found)
        return found


def _targets_of(scaler: AutoscalerState) -> dict[Signal, float]:
    """Targets of the signals for which the autoscaler uses an average value."""
    found = ((signal_of(load.metric), load) for load in scaler.loads if load.averaged)
    return {signal: load.target_milli / 1000 for signal, load in found if signal is not None}


def _guarded(record: ResourceRecord) -> _SpecPolicy:
    """Parse a spec. An internal error with one spec must not stop the scraping of all tenants."""
    try:
        return _read(record)
    except Exception:  # noqa: BLE001 - logged once per generation; its reconcile fails, too, and is counted
        _LOG.exception("Cannot read the targets and objectives of a resource", extra={"resource": str(record.owner)})
        return _NONE


def _read(record: ResourceRecord) -> _SpecPolicy:
    try:
        spec = validated(record.body(), admitted=True).spec
    except InvalidResourceError:  # the reconciler reports it
        return _NONE
    scaled = {role: spec.of(role) for role in spec.workload_roles if spec.of(role).autoscaled}
    policy = {
        role: {signal: milli / 1000 for signal, milli in targets_milli(role, part.autoscaling).items()}
        for role, part in scaled.items()
        if part.autoscaling is not None
    }
    products = {role: tuple(spec.products(role)) for role in spec.engine_roles}
    gpus = {role: spec.of(role).gpus for role in spec.engine_roles}
    objectives, adaptive = StatedObjectives.of(spec.objectives), spec.router.is_adaptive and spec.transfers_kv
    ahead = frozenset(role for role, part in scaled.items() if part.autoscaling and part.autoscaling.look_ahead)
    return _SpecPolicy(policy, spec.metrics_source, objectives, products, gpus, adaptive, ahead)
