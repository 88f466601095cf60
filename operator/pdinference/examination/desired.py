"""The desired state of a stored resource: examined and rendered, or the errors of its spec.

Tests: tests/inference/test_reconcile.py, tests/inference/test_kv_transfer.py, tests/examination/test_effective_spec.py
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pdinference.api import names
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import PDInference, Spec, defaults
from pdinference.api.validation import validated
from pdinference.checks import examine
from pdinference.cluster.child import Child
from pdinference.cluster.kinds import WORKLOADS, ChildKey
from pdinference.cluster.state.records import ResourceRecord, digest
from pdinference.engine.batch import ServiceAccess
from pdinference.engine.vllm import served_model_name
from pdinference.manifests import Rendered, RenderSettings, render
from pdinference.memory import NO_VERDICT, MemoryVerdict
from pdinference.memory.moved import Moved
from pdinference.planning.desired_state import DesiredState
from pdinference.planning.exposure import clients_authenticated
from pdinference.planning.objectives import StatedObjectives
from pdinference.planning.pinning import pinned
from pdinference.planning.scaling.scale_spec import ScaleSpec
from pdinference.planning.transfer_measurements import Path

_COMMIT, _SHORT_COMMIT = 40, 7


class InvalidSpecError(Exception):
    """The stored spec is invalid; the message names each field and what to do.

    Attributes:
        memory: Whether the model fits; that may be the error.
    """

    fault = "The stored resource is not valid"

    def __init__(self, message: str, memory: MemoryVerdict = NO_VERDICT) -> None:
        super().__init__(message)
        self.memory = memory

    @classmethod
    def from_problems(cls, problems: Iterable[object], memory: MemoryVerdict = NO_VERDICT) -> "InvalidSpecError":
        """The error for a resource with these problems."""
        return cls(f"Correct it: {'; '.join(map(str, problems))}", memory)

    def with_consequence(self, consequence: str) -> str:
        """The message of a condition: the problem, its consequence, and what to do."""
        return f"{self.fault}, so {consequence}. {self}"


@dataclass(frozen=True, slots=True)
class DesiredModel:
    """The Job that downloads or inspects the model.

    Attributes:
        source: Identity of the model's source.
        what: Name of the model in messages.
        awaited: Whether P and D start only when the Job is done.
        placed_as: The role on whose nodes its pods run.
    """

    job: str
    source: str
    what: str
    awaited: bool
    placed_as: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired(DesiredState):
    """The desired state for one generation of a resource, without manifests, which are rendered again when needed.

    Attributes:
        spec: Digest of the spec.
        facts: The known facts of the model; when they change, the memory verdict may change.
        service: How clients inside the cluster reach it.
        fingerprints: Hash of each child's manifest; its keys are all desired children.
        engines: The role of each workload of P and D, worker nodes included.
        model: The Job for the model; None without one.
        ignored: Fields of a CRD of another version.
    """

    uid: str
    generation: int
    spec: bytes
    facts: str
    service: ServiceAccess
    fingerprints: Mapping[ChildKey, str]
    engines: Mapping[ChildKey, Role]
    model: DesiredModel | None = None
    ignored: tuple[str, ...] = ()

    def is_of(self, record: ResourceRecord) -> bool:
        """Whether this is the desired state of this version of the resource."""
        return (self.uid, self.generation, self.spec, self.facts) == spec_identity(record)


@dataclass(frozen=True, slots=True)
class EffectiveSpec:
    """The spec in effect of a resource, examined.

    Attributes:
        record: The resource with this spec.
        desired: The desired state that follows from it.
        children: The children, if this reconcile made the examination, and otherwise empty: they are too large to keep.
        invalid: The error of the stored spec; empty while that is in effect.
        withheld: Whether the stored spec is not in effect because the resource is paused.
        examine_again_after: Seconds until the stored spec is examined again; None if only after a change.
    """

    record: ResourceRecord
    desired: Desired
    children: tuple[Child, ...] = ()
    invalid: str = ""
    withheld: bool = False
    examine_again_after: float | None = None


def model_of(record: ResourceRecord) -> Mapping[str, Any]:
    """The model in the status."""
    return json.loads(record.status).get("model") or {}


SpecIdentity = tuple[str, int, bytes, str]


def spec_identity(record: ResourceRecord) -> SpecIdentity:
    """Identity of all inputs of an examination of the resource; its spec may be the last valid one."""
    return record.uid, record.generation, digest(record.spec), _facts(model_of(record))


def _facts(model: Mapping[str, Any]) -> str:
    return json.dumps(model.get("facts"), sort_keys=True)


def compile_desired(record: ResourceRecord, settings: RenderSettings) -> tuple[Desired, tuple[Child, ...]]:
    """Examine and render.

    Raises:
        InvalidSpecError: The spec is invalid, although the API server accepted it.
    """
    model = model_of(record)
    examination = examine(record.body(), settings, lambda _: model, admitted=True)
    resource, rendered = examination.resource, examination.rendered
    if resource is None or rendered is None:
        raise InvalidSpecError.from_problems(examination.problems, examination.memory)
    children = tuple(map(Child.of, rendered.objects))
    spec = resource.spec
    desired = Desired(
        uid=record.uid,
        generation=record.generation,
        spec=digest(record.spec),
        revision=rendered.revision,
        roles=spec.workload_roles,
        replicas={role: spec.of(role).replicas for role in spec.workload_roles} | {Role.ROUTER: spec.router.replicas},
        service=_service(resource),
        fingerprints={child.key: child.fingerprint for child in children},
        memory=examination.memory,
        pinned=pinned(spec),
        clients_authenticated=clients_authenticated(spec),
        facts=_facts(model),
        engines={child.key: role for child in children if (role := _engine_role(child)) is not None},
        scale=ScaleSpec.from_spec(spec),
        model=_model(spec, rendered),
        verifies_model=spec.model.on_volume,
        progress_deadline=timedelta(seconds=defaults.progress_deadline_seconds(spec)),
        sleeps_after=spec.scale_to_zero.after_seconds if spec.scale_to_zero else None,
        decode_computes_prompts=spec.router.when_no_prefill == "Serve",
        transfer_path=_path(spec, examination.memory.moved),
        repairs=spec.transfer.repair == "Restart",
        objectives=StatedObjectives.of(spec.objectives),
        ignored=examination.ignored,
    )
    return desired, children


def render_again(record: ResourceRecord, settings: RenderSettings) -> tuple[Child, ...]:
    """Render the children of a spec that was found valid before, without the checks."""
    return tuple(map(Child.of, render(validated(record.body(), admitted=True), settings).objects))


def _engine_role(child: Child) -> Role | None:
    """The role of a workload of P or D; None for any other object."""
    if child.key.kind not in WORKLOADS:
        return None
    node = names.node_of(child.manifest["metadata"]["labels"])
    return node[0] if node is not None and node[0] in ENGINE_ROLES else None


def _service(resource: PDInference) -> ServiceAccess:
    """How clients inside the cluster reach this PDInference."""
    router = resource.spec.router
    overlay = router.pod_template.get("spec") or {}
    return ServiceAccess(
        url=router.url(resource.metadata.namespace, resource.metadata.name),
        model=served_model_name(resource),
        tls_secret=router.tls.secret_name if router.tls else "",
        keys_secret=router.api_keys.secret_name if router.api_keys else "",
        pull_secrets=tuple(secret["name"] for secret in overlay.get("imagePullSecrets") or ()),
    )


def _path(spec: Spec, moved: Sequence[Moved]) -> Path | None:
    """How the KV cache goes from P to D; None if it does not."""
    if not spec.transfers_kv:
        return None
    as_it_is, in_fp8 = (*(each.token_bytes.value for each in moved), None, None)[:2]
    return Path(
        gpus="CPU" not in {spec.parameter.accelerator.type, spec.decode.accelerator.type},
        rdma=spec.transfer.rdma.count if spec.transfer.rdma else 0,
        ranks=spec.decode.parallelism.tensor,
        parameter_data=spec.parameter.parallelism.data,
        decode_data=spec.decode.parallelism.data,
        reason=spec.transfer.path_reason,
        decode_instances=1 if spec.host_local is None else spec.host_local.decode,
        parameter_instances=0 if spec.host_local is None else spec.host_local.parameter,
        token_bytes=int(as_it_is) if as_it_is else None,
        fp8_token_bytes=int(in_fp8) if in_fp8 else None,
    )


def _model(spec: Spec, rendered: Rendered) -> DesiredModel | None:
    if not rendered.model_job:
        return None
    hub, bucket = spec.model.source.hub, spec.model.source.bucket
    what = f"{hub.repository} revision {_short(hub.revision)}" if hub else bucket.uri if bucket else "The model"
    return DesiredModel(
        rendered.model_job, spec.model.source.identity(), what, rendered.downloads_first, spec.prefill_pods
    )


def _short(revision: str) -> str:
    """The short form of a commit; anything else unchanged."""
    return revision[:_SHORT_COMMIT] if len(revision) == _COMMIT else revision
