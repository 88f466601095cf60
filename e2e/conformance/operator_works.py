"""`robust_controller`: the operator is installed, its webhook refuses, and its resources are reconciled."""

import copy
from typing import Any, Final

from e2e.conformance.bench import CHART_NAME, Bench
from e2e.conformance.notes import Notes
from e2e.kubectl import KubectlError
from e2e.waiting import wait_ready, wait_until
from pdinference.api.crd import definitions
from pdinference.api.names import LABEL_NAME, MANAGED_SELECTOR

_CHILDREN: Final = "statefulsets,deployments,services,networkpolicies,serviceaccounts,controllerrevisions"
_INVALID: Final = "nonsense"
"""An option that vLLM does not have. The schema permits any name, so that the webhook alone can refuse it."""


def robust_controller(bench: Bench, notes: Notes) -> None:
    """The test plan of KAR-0063, and a child that is deleted."""
    _installed(bench, notes)
    _refuses(bench, notes)
    _reconciles(bench, notes)
    _repairs(bench, notes)


def _installed(bench: Bench, notes: Notes) -> None:
    if bench.installed:
        notes.did(bench.installed)
    for kind in definitions():
        established = notes.run(
            "get", "crd", kind, "-o", "jsonpath={.status.conditions[?(@.type=='Established')].status}"
        )
        notes.saw(f"the API server serves {kind}", established == "True", f"Established={established or 'absent'}")
    pods = notes.get("pods", "-A", "-l", f"app.kubernetes.io/name={CHART_NAME}", keep="operator-pods")["items"]
    ready = [pod for pod in pods if _is_ready(pod)]
    restarts = sum(one["restartCount"] for pod in pods for one in pod["status"].get("containerStatuses", []))
    names = ", ".join(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in ready)
    notes.saw(
        "the operator's pods run", bool(pods) and len(ready) == len(pods), f"ready: {names}; restarts: {restarts}"
    )


def _is_ready(pod: dict[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))


def _refuses(bench: Bench, notes: Notes) -> None:
    document = copy.deepcopy(bench.document)
    document["metadata"]["name"] = "invalid"
    document["spec"]["engine"].setdefault("args", {})[_INVALID] = 1
    try:
        notes.apply(document, keep="invalid")
    except KubectlError as error:
        words = str(error)
        by_webhook = "admission webhook" in words and f"spec.engine.args.{_INVALID}" in words
        notes.saw("the webhook refuses an invalid resource", by_webhook, words)
    else:
        notes.run("delete", "pdi", "invalid", "--wait=false")
        notes.saw("the webhook refuses an invalid resource", False, "it was accepted")


def _reconciles(bench: Bench, notes: Notes) -> None:
    notes.apply(bench.document, keep="resource")
    wait_ready(bench.kubectl, bench.name)
    resource = notes.get("pdi", bench.name, keep="resource-ready")
    ready = next(one for one in resource["status"]["conditions"] if one["type"] == "Ready")
    notes.saw(f"{bench.name} becomes Ready", ready["status"] == "True", f"{ready['reason']}: {ready['message']}")
    children = notes.get(_CHILDREN, "-l", f"{LABEL_NAME}={bench.name},{MANAGED_SELECTOR}", keep="children")["items"]
    names = ", ".join(f"{child['kind']} {child['metadata']['name']}" for child in children)
    notes.saw("its children exist", bool(children), names)
    events = notes.run("get", "events", f"--field-selector=involvedObject.name={bench.name}")
    notes.keep("events.txt", events)


def _repairs(bench: Bench, notes: Notes) -> None:
    def uid() -> str:
        found = bench.kubectl.get("services", "-l", f"{LABEL_NAME}={bench.name}")["items"]
        return next((str(one["metadata"]["uid"]) for one in found if one["metadata"]["name"] == bench.name), "")

    before = uid()
    notes.run("delete", "service", bench.name)
    after = wait_until("the deleted Service to be back", lambda: uid().replace(before, ""), timeout=60)
    notes.saw("a child that is deleted comes back", after != before, f"Service {bench.name}: {before}, then {after}")
