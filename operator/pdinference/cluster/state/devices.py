"""Number of GPUs of a P or D pod, from the pod itself, because the PDInference may have changed since.

Tests: tests/cluster/test_devices.py
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pdinference.api.engines import runs_engines

Json = Mapping[str, Any]

_RANKS: Final = re.compile(r"^--(tensor|pipeline|data)-parallel-size=([0-9]{1,6})$")
_NODES: Final = re.compile(r"^--nnodes=([0-9]{1,6})$")


def gpus_of(pod_spec: Json) -> int:
    """GPUs of one pod; 0 on CPU. With device claims, the number of vLLM ranks, because pods do not list the devices."""
    containers: Iterable[Json] = pod_spec.get("containers") or ()
    return sum(_gpus(container) for container in containers if runs_engines(container.get("name", "")))


def _gpus(engines: Json) -> int:
    """GPUs of a container, which has one engine, or several with tensor-parallel ranks only."""
    resources = engines.get("resources") or {}
    # Extended resources have a domain in their name. The operator requests no other such resources without GPUs.
    if not resources.get("claims") and not any("/" in name for name in resources.get("limits") or ()):
        return 0
    arguments = [str(argument) for argument in engines.get("args") or ()]
    sizes = [(match[1], int(match[2])) for argument in arguments if (match := _RANKS.match(argument))]
    tensor = sum(size for kind, size in sizes if kind == "tensor") or 1
    nodes = [int(match[1]) for argument in arguments if (match := _NODES.match(argument))]
    return math.prod([tensor, *(size for kind, size in sizes if kind != "tensor")]) // max([1, *nodes])
