"""The PDInference of an arrangement: the user's file with other engines.

Tests: tests/advise/advice/test_layouts.py, tests/advise/advice/test_advice.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pdinference_advise.advice.layouts import EngineGroup, Layout
from pdinference_advise.advice.ways import Transport

Json = Mapping[str, Any]

_VARIED: Final = frozenset({"replicas", "autoscaling", "parallelism", "accelerator", "nodePools"})
"""Members of a role that an arrangement decides."""
_VENDORS: Final = {
    "AMD": {"resourceName": "amd.com/gpu", "productLabel": "amd.com/gpu.product-name"},
    "NVIDIA": {},
}
_RDMA: Final = {"resourceName": "rdma/ib"}


@dataclass(frozen=True, slots=True)
class Scaling:
    """Range of the replicas of a role."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of both roles; None: the count is fixed.

    Attributes:
        parameter: Of P, if it has pods of its own.
        decode: Of D, or of the pods that P and D share.
        gpus: Most GPUs of both roles.
    """

    parameter: Scaling | None = None
    decode: Scaling | None = None
    gpus: int = 0


FIXED: Final = Ranges()


def document_of(base: Json, layout: Layout, ranges: Ranges = FIXED, *, memory: int | None = None) -> dict[str, Any]:
    """The document of an arrangement.

    Args:
        base: The user's document, which is valid.
        layout: The arrangement.
        ranges: Ranges of the replica counts.
        memory: Bytes of a device, if the user states them.
    """
    spec = dict(base["spec"])
    for member in ("parameter", "transfer", "autoscaling", "mode"):
        spec.pop(member, None)
    if layout.parameter is None:
        spec.pop("colocation", None)
        spec["mode"] = "Aggregated"
    else:
        spec["mode"] = "Disaggregated"
        spec["parameter"] = _role(base, "parameter", layout.parameter, ranges.parameter, memory)
        if layout.host_local:
            spec["parameter"].pop("replicas")
        spec["transfer"] = _transfer(base, layout)
    spec["decode"] = _role(base, "decode", layout.decode, ranges.decode, memory)
    if layout.step_tokens:
        spec["decode"]["maxNumBatchedTokens"] = layout.step_tokens
    if layout.host_local:
        spec["decode"]["replicas"] = layout.pods
        for role in ("parameter", "decode"):
            spec[role].pop("kvTiers", None)
    if pair := _pair_autoscaling(base, ranges):
        spec["autoscaling"] = pair
    if layout.adaptive:
        spec["router"] = _with(spec.get("router"), disaggregation="Adaptive")
    if layout.fp8:
        spec["engine"] = _with(spec.get("engine"), kvCache=_with(_member(spec, "engine").get("kvCache"), dtype="fp8"))
    metadata = {key: value for key, value in base["metadata"].items() if key in {"name", "namespace", "labels"}}
    return {"apiVersion": base["apiVersion"], "kind": base["kind"], "metadata": metadata, "spec": _ordered(spec)}


_ORDER: Final = ("model", "engine", "mode", "parameter", "decode", "transfer", "autoscaling")


def _ordered(spec: dict[str, Any]) -> dict[str, Any]:
    first = {member: spec[member] for member in _ORDER if member in spec}
    return first | spec


def _role(base: Json, name: str, group: EngineGroup, scaling: Scaling | None, memory: int | None) -> dict[str, Any]:
    own = _member(base["spec"], name)
    role: dict[str, Any] = {"replicas": group.number}
    if scaling is not None:
        role["autoscaling"] = _scaled(_member(own, "autoscaling"), scaling)
    role["parallelism"] = {"tensor": group.tensor}
    if _member(own, "parallelism").get("expert"):
        role["parallelism"]["expert"] = True
    role["accelerator"] = {**_vendor(group.product), "products": [group.product]}
    if memory is not None:
        role["accelerator"]["memory"] = str(memory)
    kept = {key: value for key, value in own.items() if key not in _VARIED}
    if "domain" in _member(kept, "placement"):  # of instances on several nodes
        kept["placement"] = {key: value for key, value in kept["placement"].items() if key != "domain"}
    return role | kept


def _scaled(own: Json, scaling: Scaling) -> dict[str, Any]:
    return {**own, "minReplicas": scaling.least, "maxReplicas": scaling.most}


def _vendor(product: str) -> dict[str, str]:
    return _VENDORS.get(product.partition("-")[0].upper(), {})


def _transfer(base: Json, layout: Layout) -> dict[str, Any]:
    own = _member(base["spec"], "transfer")
    kept = {key: value for key, value in own.items() if key not in {"path", "hostLocal", "rdma"}}
    if layout.host_local and layout.parameter is not None:
        pods = layout.pods
        in_a_pod = {"parameter": layout.parameter.number // pods, "decode": layout.decode.number // pods}
        return {**kept, "path": "HostLocal", "hostLocal": in_a_pod}
    rdma = {"rdma": own.get("rdma", _RDMA)} if _is_rdma(layout.transport) else {}
    return {**kept, "path": "Network", **rdma}


def _is_rdma(transport: Transport | None) -> bool:
    return transport is not None and transport.name == "rdma"


def _pair_autoscaling(base: Json, ranges: Ranges) -> dict[str, Any]:
    """Without a range there is nothing to scale; the ratio of the file is for its own counts."""
    if ranges.decode is None:
        return {}
    kept = {key: value for key, value in _member(base["spec"], "autoscaling").items() if key == "source"}
    both = ranges.parameter is not None
    return {**kept, **({"gpuBudget": ranges.gpus} if both and ranges.gpus else {})}


def _member(holder: Json, name: str) -> Json:
    value = holder.get(name)
    return value if isinstance(value, Mapping) else {}


def _with(value: object, **members: Any) -> dict[str, Any]:
    return {**(value if isinstance(value, Mapping) else {}), **members}
