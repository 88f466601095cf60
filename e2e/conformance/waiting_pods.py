"""A PDInference whose P and D pods wait, because no node has the devices that they request."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import yaml

from e2e.conformance.bench import Bench
from e2e.conformance.notes import Notes
from e2e.install import TINY_EXAMPLE, remove_at_once
from e2e.waiting import wait_until
from pdinference.api.names import API_VERSION, ENGINE_ROLES, KIND, LABEL_NAME

RESOURCE: Final = "gpu.example.com/device"
"""Of no vendor, so that the pods wait on every cluster, and take no GPU of anybody."""
DEVICE_CLASS: Final = "gpu.example.com"
_SECONDS: Final = 120


@contextmanager
def waiting_pods(bench: Bench, notes: Notes, name: str, accelerator: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """P and D pods that the scheduler could not place, for the time of a block."""
    try:
        notes.apply(document(name, accelerator), keep=name)
        wait_until(f"the scheduler to look at the pods of {name}", lambda: _unschedulable(bench, name), _SECONDS)
        notes.get("pods", "-l", f"{LABEL_NAME}={name}", keep="pods")
        yield bench.engines(name)
    finally:
        remove_at_once(bench.kubectl, name)


def document(name: str, accelerator: dict[str, Any]) -> dict[str, Any]:
    """The model of the tiny example, on devices."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {
            "model": yaml.safe_load(TINY_EXAMPLE.read_text(encoding="utf-8"))["spec"]["model"],
            **{role.value: {"accelerator": accelerator} for role in ENGINE_ROLES},
        },
    }


def unplaced(pod: dict[str, Any]) -> str:
    """What the scheduler says of a pod that it could not place; empty if it has not, or could."""
    conditions = pod["status"].get("conditions", [])
    return next((str(one.get("message", "")) for one in conditions if one.get("reason") == "Unschedulable"), "")


def _unschedulable(bench: Bench, name: str) -> bool:
    pods = bench.engines(name)
    return len(pods) == len(ENGINE_ROLES) and all(unplaced(pod) for pod in pods)
