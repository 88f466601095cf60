"""The reconcile of a PDBatch: wait for the PDInference, create the Job once, and report its progress.

A Job's pod template is immutable, and an upgrade of the operator need not change the pod. So the Job is rendered and
applied once; later only the mutable fields of its spec are updated.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from pydantic import ValidationError

from pdinference.api import names
from pdinference.api.v1alpha1 import BatchStatus, PDBatch
from pdinference.api.v1alpha1.conditions import READY
from pdinference.batch.output import ensure_output
from pdinference.cluster.apply import Applier, Parent
from pdinference.cluster.cache import Cache
from pdinference.cluster.child import Child
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import JOB, ChildKey, Owner
from pdinference.cluster.outcome import Outcome
from pdinference.cluster.state.records import ResourceRecord
from pdinference.controller.metrics import Metrics
from pdinference.controller.results import Result, count_writes
from pdinference.controller.status_writer import Reporter, status_of
from pdinference.engine.batch import ServiceAccess
from pdinference.examination.client import AGAIN_AFTER_S, ExaminationEndedError, Examinations
from pdinference.examination.desired import InvalidSpecError
from pdinference.examination.effective_spec import EffectiveSpecs
from pdinference.isolation.calls import BusyError
from pdinference.manifests import RenderSettings
from pdinference.manifests.batch import job_settings, render_batch, render_output
from pdinference.planning.batch import (
    BatchStatusInputs,
    Progress,
    batch_transitions,
    build_batch_status,
    running_pod,
)
from pdinference.planning.observed import JobState

_LOOK_S = 5.0
"""Interval of reconciles of an unfinished batch, to check whether the PDInference is Ready. The check reads only the
cache. Changed counts of the runner trigger a reconcile of their own."""
_LEFT_ALONE = "its Job is not changed"


class BatchReconciler:
    """Brings the Job and the status of a PDBatch to its spec."""

    def __init__(
        self,
        *,
        api: ApiServer,
        cache: Cache,
        applier: Applier,
        reporter: Reporter,
        metrics: Metrics,
        settings: RenderSettings,
        examinations: Examinations,
        specs: EffectiveSpecs,
        progress: Callable[[str], Progress | None] = lambda uid: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._cache = cache
        self._applier = applier
        self._reporter = reporter
        self._metrics = metrics
        self._settings = settings
        self._examinations = examinations
        self._specs = specs
        self._progress = progress
        self._now = now

    async def reconcile(self, owner: Owner) -> Result:
        """Reconcile one batch."""
        resource = self._cache.resources.get(owner)
        if resource is None or resource.deleting:
            self._examinations.forget(owner)
            return Result()
        previous = _status_of(resource)
        begun = previous.finished or self._job(resource) is not None
        try:
            batch = await self._examinations.batch(resource, begun=begun)
            service, unready = await self._service(batch, begun=begun)
        except InvalidSpecError as error:
            return await self._leave_alone(resource, previous, error)
        except BusyError:
            return Result(retry=True)
        outcome = await self._bring(resource, batch, service, previous)
        count_writes(self._metrics, outcome)
        inputs = self._observe(resource, unready, outcome)
        status = build_batch_status(inputs, previous=previous, now=self._now())
        written = await self._publish(resource, previous, status)
        if status.finished:
            self._examinations.forget(owner)
        return Result(
            retry=bool(outcome.failures or outcome.waiting or not written),
            retry_after=outcome.retry_after or 0.0,
            requeue_after=None if status.finished or status.phase == "Suspended" else _LOOK_S,
        )

    async def _leave_alone(self, resource: ResourceRecord, previous: BatchStatus, error: InvalidSpecError) -> Result:
        """Change nothing but the status, which still follows the Job."""
        inputs = replace(self._observe(resource, "", Outcome()), invalid=error.with_consequence(_LEFT_ALONE))
        status = build_batch_status(inputs, previous=previous, now=self._now())
        return Result(
            retry=not await self._publish(resource, previous, status),
            requeue_after=AGAIN_AFTER_S if isinstance(error, ExaminationEndedError) else None,
        )

    async def _service(self, batch: PDBatch, *, begun: bool) -> tuple[ServiceAccess | None, str]:
        """The service for a batch without a Job, and why the service cannot take requests; empty if it can.

        The service follows from the spec in effect and not from the status, because others may write that: they must
        not choose where prompts and keys go.
        """
        name, namespace = batch.spec.inference_ref.name, batch.metadata.namespace
        found = self._cache.resources.get(Owner(namespace, name))
        if found is None or found.deleting:
            return None, (
                f"PDInference {name} of spec.inferenceRef.name does not exist in namespace {namespace}. Create it, or "
                "correct the name."
            )
        ready = next((c for c in status_of(found).conditions if c.type == READY), None)
        if ready is None or ready.status != "True":
            because = f" {ready.message}" if ready is not None else ""
            return None, f"PDInference {name} is not Ready.{because}"
        if begun:
            return None, ""
        try:
            return (await self._specs.find(found)).desired.service, ""
        except InvalidSpecError as error:
            return None, f"PDInference {name} has no valid spec. {error}"
        except ApiError as error:
            return None, f"The last valid spec of PDInference {name} cannot be read: {error.message}"

    async def _bring(
        self, resource: ResourceRecord, batch: PDBatch, service: ServiceAccess | None, status: BatchStatus
    ) -> Outcome:
        job = self._job(resource)
        if job is not None:
            return await self._adjust(resource, batch, job)
        if service is None or status.finished:
            return Outcome()
        parent = Parent(resource.owner, resource.uid)
        # The runner gets permission to write to it only after its owner was verified.
        outcome = await ensure_output(self._api, render_output(batch), parent)
        if outcome.settled:
            *others, job_last = (Child.of(m) for m in render_batch(batch, service, self._settings))
            # Last, because `_adjust` expects the other objects of a batch whose Job exists.
            outcome.add(await self._applier.apply([*others, replace(job_last, last=True)], parent))
        return outcome

    async def _adjust(self, resource: ResourceRecord, batch: PDBatch, job: JobState) -> Outcome:
        """Update the mutable fields of the Job."""
        outcome = Outcome()
        wanted = job_settings(batch)
        if job.outcome is not None:
            del wanted["suspend"]  # it has no effect on a Job that has ended
        changed = {member: value for member, value in wanted.items() if job.settings.get(member) != value}
        if not changed:
            return outcome
        key = _job_key(resource)
        try:
            patch = {"metadata": {"uid": job.uid}, "spec": changed}
            live = await self._api.merge(JOB.path(key.namespace, key.name), patch)
        except ApiError as error:
            if error.gone_or_changed:
                outcome.waiting.append(key)
            else:
                outcome.failed(key, error)
            return outcome
        self._cache.applied(JOB.name, live)
        outcome.applied.append(key)
        return outcome

    def _observe(self, resource: ResourceRecord, unready: str, outcome: Outcome) -> BatchStatusInputs:
        job = self._job(resource)
        # By the uid: the runner of an earlier batch of this name may not have ended yet.
        pods = tuple(pod for pod in self._cache.pods_of(resource.owner) if job is not None and pod.job == job.uid)
        running = running_pod(pods)
        return BatchStatusInputs(
            namespace=resource.owner.namespace,
            generation=resource.generation,
            unready=unready,
            job=job,
            pods=pods,
            seen=self._progress(running.uid) if running is not None else None,
            failures=tuple(outcome.failures),
        )

    def _job(self, resource: ResourceRecord) -> JobState | None:
        record = self._cache.children.get(_job_key(resource))
        if record is None or record.owner_uid != resource.uid or record.deleting:
            return None
        return record.job

    async def _publish(self, resource: ResourceRecord, previous: BatchStatus, status: BatchStatus) -> bool:
        return await self._reporter.publish(resource, status, batch_transitions(previous, status))


def _job_key(resource: ResourceRecord) -> ChildKey:
    return ChildKey(JOB.name, resource.owner.namespace, names.batch_object(resource.owner.name))


def _status_of(resource: ResourceRecord) -> BatchStatus:
    """The stored status. If another version wrote it and it does not parse, only whether the batch ended."""
    stored = json.loads(resource.status)
    try:
        return BatchStatus.model_validate(stored, extra="ignore")  # a newer operator may have written more
    except ValidationError:
        phase = str(stored.get("phase"))
        return BatchStatus.model_validate({"phase": phase}) if phase in {"Complete", "Failed"} else BatchStatus()
