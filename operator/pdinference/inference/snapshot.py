"""The inputs of a reconcile of a PDInference, at one moment.

Tests: tests/inference/test_reconcile.py, tests/inference/test_scaling.py, tests/inference/test_mode.py
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Status
from pdinference.cluster.kinds import (
    AUTOSCALER,
    DEPLOYMENT,
    HTTP_ROUTE,
    JOB,
    SCALED_OBJECT,
    SCALER,
    SERVICE,
    ChildKey,
    Owner,
)
from pdinference.cluster.state.records import ChildRecord, ResourceRecord
from pdinference.examination.desired import Desired, EffectiveSpec
from pdinference.planning.model_report import ModelView
from pdinference.planning.observations import Observations
from pdinference.planning.observed import AutoscalerState, PodSummary, RouteParent, WorkloadState
from pdinference.planning.scale_target import ScalerState
from pdinference.planning.scaling.fleet import ScaledFleet


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a resource at one moment.

    Attributes:
        resource: The stored resource.
        spec: Its spec in effect.
        previous: Its status.
        children: Every object owned by the resource, or with the name of one of its children.
        pods: Its pods, of any revision.
        observations: What is measured of it.
        now: Current time.
        history_due: Whether to write the stored spec as the newest entry of the history, or to delete entries.
        unproven: Whether the history does not say yet that requests went to the stored spec.
    """

    resource: ResourceRecord
    spec: EffectiveSpec
    previous: Status
    children: Mapping[ChildKey, ChildRecord]
    pods: tuple[PodSummary, ...]
    observations: Observations
    now: datetime
    history_due: bool = False
    unproven: bool = False

    @property
    def desired(self) -> Desired:
        """The desired state from its spec in effect."""
        return self.spec.desired

    @property
    def owner(self) -> Owner:
        """Key of the resource."""
        return self.resource.owner

    def own(self, key: ChildKey) -> ChildRecord | None:
        """A child that is not being deleted; None without one. Its owner is this resource, not one of the same name."""
        record = self.children.get(key)
        return record if record is not None and self._is_own(record) and not record.deleting else None

    def owned(self) -> Iterator[ChildRecord]:
        """Every child of this resource, including those being deleted."""
        return (record for record in self.children.values() if self._is_own(record))

    def workloads(self) -> Iterator[tuple[ChildKey, WorkloadState]]:
        """Every workload of this resource that is not being deleted."""
        return (
            (record.key, record.workload)
            for record in self.owned()
            if record.workload is not None and not record.deleting
        )

    @property
    def fleet(self) -> ScaledFleet:
        """GPUs of its pods."""
        return ScaledFleet((workload for _, workload in self.workloads()), self.pods)

    @property
    def aggregated_revisions(self) -> frozenset[str]:
        """Revisions whose mode has no P. P of the target revision may not exist yet."""
        fleet, target = self.fleet, self.desired.revision
        without = {revision for revision in fleet.revisions if not fleet.has(Role.PARAMETER, revision)}
        return frozenset(without - {target} if Role.PARAMETER in self.desired.roles else without | {target})

    @property
    def router(self) -> WorkloadState | None:
        """The router Deployment; None if it does not exist."""
        record = self.children.get(self.role_key(DEPLOYMENT.name, Role.ROUTER))
        return record.workload if record is not None and self._is_own(record) else None

    def leading_workloads(self, revision: str) -> dict[Role, WorkloadState]:
        """The workload of each role in a revision; for instances on several nodes, that of the first node."""
        return {
            record.workload.role: record.workload
            for record in self.owned()
            if record.workload is not None
            and record.workload.node_rank == 0
            and (record.workload.revision == revision or record.workload.role is Role.ROUTER)
        }

    def scaler(self, role: Role) -> ScalerState | None:
        """The scale target of a role; None if it does not exist."""
        record = self.own(self.role_key(SCALER.name, role))
        return record.scaler if record is not None else None

    def autoscaler(self, role: Role) -> AutoscalerState | None:
        """The autoscaler of a role: its HPA, or its ScaledObject with KEDA's HPA; None if neither exists."""
        for kind in (AUTOSCALER.name, SCALED_OBJECT.name):
            record = self.own(self.role_key(kind, role))
            if record is None or record.autoscaler is None:
                continue
            key = self.role_key(AUTOSCALER.name, role)._replace(name=names.keda_autoscaler(self.owner.name, role))
            made = self.children.get(key) if kind == SCALED_OBJECT.name else None
            hpa = made.autoscaler if made is not None and made.owner_uid == record.uid else None
            return record.autoscaler if hpa is None else record.autoscaler.with_hpa(hpa)
        return None

    @property
    def has_service(self) -> bool:
        """Whether the Service for clients exists."""
        return self.own(ChildKey(SERVICE.name, self.owner.namespace, names.router_service(self.owner.name))) is not None

    @property
    def route(self) -> tuple[RouteParent, ...] | None:
        """The parents of the HTTPRoute, none of them while it does not exist; None if the spec has no route."""
        key = ChildKey(HTTP_ROUTE.name, self.owner.namespace, names.router_service(self.owner.name))
        if key not in self.desired.fingerprints:
            return None
        record = self.own(key)
        return record.route if record is not None else ()

    def role_key(self, kind: str, role: Role) -> ChildKey:
        """Key of a role's object that outlives revisions."""
        return ChildKey(kind, self.owner.namespace, names.role_object(self.owner.name, role))

    @property
    def model(self) -> ModelView | None:
        """The Job for the model; None if the spec needs none."""
        wanted = self.desired.model
        if wanted is None:
            return None
        record = self.children.get(ChildKey(JOB.name, self.owner.namespace, wanted.job))
        job = record.job if record is not None and self._is_own(record) else None
        return ModelView(wanted.source, wanted.what, wanted.awaited, job, wanted.placed_as)

    @property
    def empty(self) -> bool:
        """Whether the roles of the target revision exist and have no replicas."""
        workloads = self.leading_workloads(self.desired.revision)
        return all(role in workloads and workloads[role].desired == 0 for role in self.desired.roles)

    def _is_own(self, record: ChildRecord) -> bool:
        return record.owner_uid == self.resource.uid
