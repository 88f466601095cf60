"""The four resources that are upgraded, each small enough for a laptop."""

import copy
from typing import Any, Final

from e2e.install import ImageReferences, example
from e2e.nodes import HOSTNAME
from pdinference.api.names import LABEL_NAME, LABEL_ROLE, Role

SCALED: Final = "scaled"
ASLEEP: Final = "asleep"
ROLLING: Final = "rolling"
WIDE: Final = "wide"
SERVING: Final = (SCALED, ROLLING, WIDE)
"""The resources that get requests during the upgrade."""

Document = dict[str, Any]

_DRAIN_SECONDS = 40
_BLOCKS = 64
"""KV blocks of each pod, 8,192 tokens: ten vLLM pods have to fit into the memory of one machine."""
_STEADY_SECONDS = 600
"""No scale-down during the upgrade, however short the pauses of the load are."""
_QUICK_SECONDS = 15


def tiny(images: ImageReferences, name: str, **spec: Any) -> Document:
    """The tiny example under another name.

    Args:
        images: Its engine image.
        name: Of the resource.
        spec: Fields that are merged into those of the example.
    """
    document = copy.deepcopy(example(images))
    document["metadata"]["name"] = name
    document["spec"]["rollout"] = {"drainSeconds": _DRAIN_SECONDS}
    document["spec"]["engine"]["args"] = {"num-gpu-blocks-override": _BLOCKS}
    for role in ("parameter", "decode"):
        document["spec"][role]["resources"]["requests"] = {"cpu": "50m", "memory": "1Gi"}
    for field, value in spec.items():
        document["spec"].setdefault(field, {}).update(value)
    return document


def scaled(images: ImageReferences, *, kv_demand: str = "1m", least: int = 1, quick: bool = False) -> Document:
    """Both roles are autoscaled: P by its queue, D by the share of its KV cache that requests need.

    Args:
        images: Its engine image.
        kv_demand: The target for D. With `1m` each load needs two D pods, with `1` none of those here does.
        least: The fewest P pods.
        quick: Whether a pod that is not needed goes soon.
    """
    seconds = _QUICK_SECONDS if quick else _STEADY_SECONDS
    down = {"stabilizationWindowSeconds": seconds, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}
    scaling = {"maxReplicas": 2, "behavior": {"scaleDown": down}}
    parameter = {**scaling, "minReplicas": least, "targets": {"queuedPromptTokens": 1_000_000}}
    decode = {**scaling, "metrics": _on_kv_demand(kv_demand)}
    return tiny(images, SCALED, parameter={"autoscaling": parameter}, decode={"autoscaling": decode})


def asleep(images: ImageReferences) -> Document:
    """No requests for ten seconds put it to sleep."""
    sleep = {"scaleToZero": {"afterSeconds": 10, "maxWaitSeconds": 300}}
    one = {"autoscaling": {"maxReplicas": 1}}
    return tiny(images, ASLEEP, autoscaling=sleep, parameter=one, decode=one)


def rolling(images: ImageReferences, variable: str = "", image: str | None = None) -> Document:
    """D is autoscaled and stays at one pod. Another variable or another image rolls out another revision."""
    one = {"autoscaling": {"maxReplicas": 2, "targets": {"kvUsage": 90}}}
    document = tiny(images, ROLLING, decode=one)
    engine = document["spec"]["engine"]
    engine["env"] |= {"UPGRADE_VARIABLE": variable} if variable else {}
    engine["image"] = image or engine["image"]
    return document


def wide(images: ImageReferences, hosts: list[str]) -> Document:
    """Each of two nodes holds one tensor rank of the P instance."""
    pools = [{"nodeSelector": {HOSTNAME: host}} for host in hosts]
    parameter = {"parallelism": {"tensor": 2, "nodes": 2}, "nodePools": pools}
    document = tiny(images, WIDE, parameter=parameter, decode={"parallelism": {"tensor": 2}})
    # With several ranks, vLLM compiles a part of the model even if eager, and the image has no compiler.
    document["spec"]["engine"]["env"]["TORCHDYNAMO_DISABLE"] = "1"
    return document


def _on_kv_demand(amount: str) -> list[dict[str, Any]]:
    selector = {"matchLabels": {LABEL_NAME: SCALED, LABEL_ROLE: Role.DECODE.value}}
    external = {
        "metric": {"name": "pdinference_kv_demand", "selector": selector},
        "target": {"type": "AverageValue", "averageValue": amount},
    }
    return [{"type": "External", "external": external}]
