"""Number of GPUs of a P or D pod, from the pod itself, because the PDInference may have changed since."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pdinference.api import names

Json = Mapping[str, Any]

_RANKS: Final = re.compile(r"^--(tensor|pipeline|data)-parallel-size=([0-9]{1,6})$")
_NODES: Final = re.compile(r"^--nnodes=([0-9]{1,6})$")


def gpus_of(pod_spec: Json) -> int:
    """GPUs of one pod; 0 on CPU. With device claims, the number of vLLM ranks, because pods do not list the devices."""
    containers: Iterable[Json] = pod_spec.get("containers") or ()
    engine: Json = next((container for container in containers if container.get("name") == names.ENGINE_CONTAINER), {})
    resources = engine.get("resources") or {}
    # Extended resources have a domain in their name. The operator requests no other such resources without GPUs.
    if not resources.get("claims") and not any("/" in name for name in resources.get("limits") or ()):
        return 0
    arguments = [str(argument) for argument in engine.get("args") or ()]
    sizes = [int(match[2]) for argument in arguments if (match := _RANKS.match(argument))]
    nodes = [int(match[1]) for argument in arguments if (match := _NODES.match(argument))]
    return math.prod(sizes) // max([1, *nodes])
