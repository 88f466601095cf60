"""Warnings about risks of a valid spec, which `kubectl apply` prints."""

import re
from collections.abc import Iterator

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Spec, defaults
from pdinference.api.v1alpha1.base import broken_rules
from pdinference.api.v1alpha1.connector_rules import may_span_nodes
from pdinference.api.v1alpha1.connectors import LIMITS
from pdinference.api.v1alpha1.engine import OWNED_ENVIRONMENT
from pdinference.api.v1alpha1.roles.accelerator import WHOLE_GPUS
from pdinference.api.v1alpha1.roles.parameter import ParameterSpec
from pdinference.api.v1alpha1.roles.role import MOST_NODES, Parallelism
from pdinference.api.v1alpha1.transfer import HostLocal, Transfer
from pdinference.api.validation import Problem
from pdinference.checks.options import is_official
from pdinference.checks.secret_values import may_hold_secret
from pdinference.memory.gpus import gpu_memory
from pdinference.memory.link_speeds import TCP_TEXT
from pdinference.memory.product_names import meant_by
from pdinference.memory.split import GPUS_OF_A_HOST, fewest_nodes
from pdinference.planning.exposure import NO_API_KEYS, exposed_by
from pdinference.planning.pinning import not_pinned

_COMMIT = re.compile("^[0-9a-f]{40}$")

_FP8 = (
    " engine.kvCache.dtype: fp8 halves the bytes; where TCP was overloaded, that cut the time to the first token from "
    "4.3 to 0.56 s."
)


def risks(spec: Spec) -> Iterator[Problem]:
    """Warnings about a valid spec."""
    yield from _secrets(spec)
    yield from _image_without_cpu(spec)
    yield from _exposure(spec)
    yield from _without_effect(spec)
    yield from _of_shared_pods(spec)
    yield from _either_way(spec)
    yield from _larger_than_a_host(spec)
    hub = spec.model.source.hugging_face or spec.model.source.model_scope
    pinned = hub is None or _COMMIT.match(hub.revision) is not None
    if spec.model.trust_remote_code:
        when = "between pod starts" if spec.model.cache is None else "before the download"
        yield Problem(
            "spec.model.trustRemoteCode",
            "The pods run Python code from the model's repository."
            + ("" if pinned else f" Pin the revision to a commit that you have reviewed: the code may change {when}."),
        )


def path_risks(spec: Spec) -> Iterator[Problem]:
    """A warning if GPUs of P and D meet over TCP only, and the spec does not say that they shall."""
    gpus = all(spec.of(role).accelerator.type == "GPU" for role in ENGINE_ROLES)
    direct, chosen = LIMITS[spec.transfer.connector].direct, spec.transfer.path != "Auto"
    if spec.transfers_kv and gpus and direct and not chosen and spec.host_local is None and spec.rdma is None:
        fp8 = "" if spec.engine.kv_cache.dtype.startswith("fp8") else _FP8
        shared = (
            "transfer.hostLocal (P and D in one pod, by NVLink if the GPUs have it) or " if _may_share(spec) else ""
        )
        yield Problem(
            "spec.transfer.path",
            f"KV cache moves from P to D over TCP, at {TCP_TEXT} in all (docs/tuning.md). Faster: {shared}"
            f"transfer.rdma.{fp8} For TCP without this warning, set transfer.path: Network.",
        )


def _may_share(spec: Spec) -> bool:
    """Whether P and D of this spec may share pods."""
    transfer = spec.transfer.model_copy(update={"host_local": HostLocal()})
    shared = spec.model_copy(update={"transfer": transfer})
    return not any(broken_rules(shared))


def pinning_risks(spec: Spec) -> Iterator[Problem]:
    """A warning if P may run on any product."""
    if (problem := not_pinned(spec)) is not None:
        yield Problem("spec.parameter.accelerator.products", problem)


def product_risks(spec: Spec) -> Iterator[Problem]:
    """Warnings about products that may be misspelt, because their pods would stay Pending."""
    for role in spec.engine_roles:
        own = spec.parameter.accelerator if role is Role.PARAMETER else spec.decode.accelerator
        for product in own.products if own.memory is None else ():
            known, meant = gpu_memory(product).known, meant_by(product)
            if known and (meant is None or meant.lower() != product.lower()):
                continue  # as a vendor's labeller writes it, such as MI300X
            yield Problem(
                f"spec.{role}.accelerator.products",
                f"Pods need a node whose label {own.product_label} is exactly {product}."
                f"{f' Did you mean {meant}?' if meant else ''} `kubectl get nodes -L {own.product_label}` shows the "
                "values."
                f"{'' if known else ' Its memory is not known here: if the name is right, state accelerator.memory.'}",
            )


def _image_without_cpu(spec: Spec) -> Iterator[Problem]:
    roles = [role for role in spec.engine_roles if spec.of(role).accelerator.type == "CPU"]
    if roles and is_official(spec.engine.image):
        yield Problem(
            "spec.engine.image",
            f"{spec.engine.image} has vLLM for GPUs, but spec.{roles[0]}.accelerator.type is CPU: these pods fail at "
            "start. Use an image with vLLM for CPU, for example one built from images/vllm-cpu.",
        )


def _without_effect(spec: Spec) -> Iterator[Problem]:
    """Fields of P and of the KV transfer, which may stay while there are no P pods."""
    if spec.transfers_kv:
        return
    found = {
        "spec.parameter": spec.parameter != ParameterSpec(),
        "spec.transfer": spec.transfer != Transfer(),
        "spec.colocation": spec.colocation is not None,
        "spec.autoscaling.ratio": spec.autoscaling is not None and spec.autoscaling.ratio is not None,
        "spec.router.whenNoPrefill": spec.router.when_no_prefill != "Serve",
        "spec.router.disaggregation": spec.router.is_adaptive,
    }
    if fields := [field for field, is_set in found.items() if is_set]:
        yield Problem(
            "spec.mode",
            f"With Aggregated there are no P pods, so these fields have no effect: {', '.join(fields)}. They apply "
            "again with Disaggregated. D still inherits the products of P.",
        )


def _of_shared_pods(spec: Spec) -> Iterator[Problem]:
    """Fields of P's own pods, which may stay while P runs in the pods of D."""
    if spec.host_local is None:
        return
    own, default = spec.parameter, ParameterSpec()
    found = {
        "spec.parameter.replicas": own.replicas != default.replicas,
        "spec.parameter.autoscaling": own.autoscaling is not None,
        "spec.parameter.placement": own.placement not in (default.placement, spec.decode.placement),
        "spec.colocation": spec.colocation is not None,
        "spec.autoscaling.ratio": spec.autoscaling is not None and spec.autoscaling.ratio is not None,
    }
    if fields := [field for field, is_set in found.items() if is_set]:
        yield Problem(
            "spec.transfer.path",
            f"With HostLocal, P runs in the pods of D, so these fields have no effect: {', '.join(fields)}. "
            "decode.replicas counts pods, and transfer.hostLocal the instances in each.",
        )


def _either_way(spec: Spec) -> Iterator[Problem]:
    """Options that do not suit pods that compute prompts and answer them."""
    if not spec.router.is_adaptive or not spec.transfers_kv:
        return
    different = sorted(name for name, value in spec.decode.args.items() if spec.parameter.args.get(name) != value)
    if different:
        yield Problem(
            "spec.router.disaggregation",
            f"P pods answer some requests with parameter.args, where these options of decode.args are missing or "
            f"different: {', '.join(different)}. Set those that change answers, such as parsers of tool calls, in "
            "engine.args.",
        )
    eager = {
        f"spec.{role.value if spec.of(role).enforce_eager else 'engine'}.enforceEager"
        for role in ENGINE_ROLES
        if defaults.enforces_eager(spec, role) and spec.of(role).accelerator.type == "GPU"
    }
    for field in sorted(eager):
        yield Problem(
            field,
            "With disaggregation: Adaptive, P and D compute prompts beside answers in steps of few tokens, which take "
            "twice as long without CUDA graphs. Remove enforceEager or spec.router.disaggregation.",
        )


def _larger_than_a_host(spec: Spec) -> Iterator[Problem]:
    """Pods that need more whole GPUs than a host has. Slices of GPUs and devices of claims may be more."""
    for role in spec.workload_roles:
        needed, own = spec.devices_per_pod(role), spec.of(role)
        whole = own.accelerator.resource_name == WHOLE_GPUS and own.accelerator.devices is None
        if needed <= GPUS_OF_A_HOST or not own.gpus or not whole:
            continue
        field, remedy = f"spec.{role.value}.parallelism", "Lower it"
        if spec.host_local is not None:
            field, remedy = "spec.transfer.hostLocal", "Lower the numbers of instances"
        elif may_span_nodes(spec, role):
            remedy = _more_nodes(role, own.parallelism)
        yield Problem(
            field,
            f"A pod needs {needed} GPUs of one host, and few hosts have more than {GPUS_OF_A_HOST}: elsewhere it stays "
            f"Pending. {remedy}.",
        )


def _more_nodes(role: Role, parallelism: Parallelism) -> str:
    """How to spread an instance over nodes with few enough GPUs, if that is possible."""
    if role is Role.DECODE and parallelism.data == 1:
        return "Lower it"
    copies, ranks = parallelism.data, parallelism.tensor * parallelism.pipeline
    parts = copies if copies > 1 else ranks
    if (nodes := fewest_nodes(parts, parallelism.devices, least=2, most=MOST_NODES)) is None:
        return "Lower it"
    if copies > 1 and not parallelism.expert:
        return f"Lower data and raise replicas; for a mixture of experts, set expert: true and nodes: {nodes}"
    return f"Set nodes: {nodes}"


def _exposure(spec: Spec) -> Iterator[Problem]:
    """Clients outside the cluster without API keys, or with keys that others can read on the way."""
    router = spec.router
    if (field := exposed_by(spec)) is not None and router.api_keys is None:
        yield Problem(field, NO_API_KEYS)
    if router.service.type != "ClusterIP" and router.api_keys is not None and router.tls is None:
        yield Problem(
            "spec.router.tls",
            f"Clients send their API keys unencrypted to a Service of type {router.service.type}. Set "
            "spec.router.tls to a Secret with a certificate, unless the load balancer terminates TLS.",
        )


def _secrets(spec: Spec) -> Iterator[Problem]:
    for name, options in (("engine", spec.engine), ("parameter", spec.parameter), ("decode", spec.decode)):
        for variable in options.env:
            if may_hold_secret(variable, options.env[variable]) and variable not in OWNED_ENVIRONMENT:
                # Those of OWNED_ENVIRONMENT are refused, with other advice.
                yield Problem(
                    f"spec.{name}.env.{variable}",
                    "This variable may hold a secret, which everyone who can read the resource can read. Use a Secret "
                    "through podTemplate (env.valueFrom.secretKeyRef); the chart value policy.secrets must allow it.",
                )
