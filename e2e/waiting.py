"""Waiting for a condition of a resource, saying what is waited for."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from e2e.console import say
from e2e.kubectl import Kubectl, KubectlError

POLL_SECONDS = 1.0
"""Each look starts kubectl, which takes a tenth of a second of a core from what is waited for."""

Found = TypeVar("Found")


class WaitTimeoutError(TimeoutError):
    """What was waited for did not come true; the text says what was seen last."""


def wait_until(what: str, probe: Callable[[], Found | None], timeout: float = 300) -> Found:
    """Poll until `probe` gives something true; an API server that does not answer for a moment is asked again.

    Raises:
        WaitTimeoutError: It did not in time.
    """
    deadline = time.monotonic() + timeout
    trouble = ""
    while True:
        try:
            if seen := probe():
                return seen
            trouble = ""
        except KubectlError as error:
            trouble = f" The last attempt failed: {error}"
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"Waited {timeout:.0f} s for {what}.{trouble}")
        time.sleep(POLL_SECONDS)


def wait_ready(kubectl: Kubectl, name: str, timeout: float = 420) -> dict[str, Any]:
    """Wait until a PDInference is Ready, telling how its roll-out goes.

    Returns:
        The resource.
    """
    told = ""

    def ready() -> dict[str, Any] | None:
        nonlocal told
        resource: dict[str, Any] = kubectl.get("pdi", name)
        found = conditions(resource)
        message = found.get("Progressing", {}).get("message", "The operator has not seen it yet.")
        if message != told:
            told = message
            say(message)
        current = found.get("Ready", {})
        up_to_date = current.get("observedGeneration") == resource["metadata"]["generation"]
        return resource if up_to_date and current.get("status") == "True" else None

    try:
        return wait_until(f"{name} to be Ready", ready, timeout)
    except WaitTimeoutError as error:
        raise WaitTimeoutError(f"{error} Last seen: {told}") from None


def conditions(resource: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The conditions of a resource by type."""
    return {condition["type"]: condition for condition in resource.get("status", {}).get("conditions", [])}
