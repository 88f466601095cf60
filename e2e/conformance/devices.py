"""`dra_support`, `cluster_autoscaling` and `secure_accelerator_access`: how pods request devices."""

from typing import Any, Final

from e2e.conformance.bench import Bench, devices
from e2e.conformance.evidence import Verdict
from e2e.conformance.notes import Notes
from e2e.conformance.waiting_pods import DEVICE_CLASS, RESOURCE, unplaced, waiting_pods
from pdinference.api.names import Role

_RESOURCES_OF_DRA: Final = ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"


def dra_support(bench: Bench, notes: Notes) -> None:
    """The test plan of KAR-0051, and the claims of P and D."""
    served = notes.run("api-resources", "--api-group=resource.k8s.io", "-o", "name").split()
    group = notes.run("get", "--raw", "/apis/resource.k8s.io")
    notes.keep("group.json", group)
    complete = {f"{one}.resource.k8s.io" for one in _RESOURCES_OF_DRA} <= {*served}
    stable = '"resource.k8s.io/v1"' in group
    notes.saw("the API server serves resource.k8s.io/v1", complete and stable, ", ".join(served))
    with waiting_pods(bench, notes, "claims", {"devices": {"deviceClassName": DEVICE_CLASS}}) as pods:
        claims = notes.get("resourceclaims", keep="resourceclaims")["items"]
        requests = [request for one in claims for request in one["spec"]["devices"]["requests"]]
        classes = {str(request["exactly"]["deviceClassName"]) for request in requests}
        count = f"{len(claims)} claims of {', '.join(classes)} for {len(pods)} pods"
        notes.saw("each pod of P and D has a claim", len(claims) == len(pods) and classes == {DEVICE_CLASS}, count)
        notes.saw("pods without their devices do not start", all(map(unplaced, pods)), unplaced(pods[0]))


def cluster_autoscaling(bench: Bench, notes: Notes) -> None:
    """What a cluster autoscaler acts on: pods that wait for an extended resource."""
    with waiting_pods(bench, notes, "pending", {"resourceName": RESOURCE}) as pods:
        words = unplaced(pods[0])
        notes.saw("P and D wait for their devices", all(RESOURCE in unplaced(pod) for pod in pods), words)
    notes.lacks(Verdict.NEEDS_ACCELERATOR, "No node group with accelerators is there to grow.")


def secure_accelerator_access(bench: Bench, notes: Notes) -> None:
    """What pods say of devices; whether the container runtime keeps to it needs a device."""
    labels = notes.get("namespace", bench.kubectl.namespace, keep="namespace")["metadata"]["labels"]
    notes.saw(
        "the namespace admits only restricted pods",
        labels.get(_ENFORCE) == "restricted",
        f"{_ENFORCE}={labels.get(_ENFORCE)}",
    )
    with waiting_pods(bench, notes, "devices", {"resourceName": RESOURCE}) as pods:
        asked = {pod["metadata"]["name"]: devices(pod) for pod in pods}
        expected = all(found == [f"{RESOURCE}: 1"] for found in asked.values())
        seen = "; ".join(f"{name}: {', '.join(found)}" for name, found in asked.items())
        notes.saw("P and D request devices from Kubernetes", expected, seen)
        routers = bench.pods("devices", Role.ROUTER)
        open_ways = [way for pod in (*pods, *routers) for way in _ways_round(pod)]
        notes.saw(
            "no pod has another way to a device", not open_ways, ", ".join(open_ways) or "no hostPath, no privileges"
        )
        notes.saw("the router requests no device", not any(map(devices, routers)), f"{len(routers)} router pods")
    notes.lacks(Verdict.NEEDS_ACCELERATOR, "This run enters no pod that holds an accelerator, to look for another one.")


def _ways_round(pod: dict[str, Any]) -> list[str]:
    """Host paths and privileges of a pod."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    paths = [f"{name}: hostPath {one['hostPath']['path']}" for one in spec.get("volumes", []) if "hostPath" in one]
    containers = [*spec["containers"], *spec.get("initContainers", [])]
    privileged = [one["name"] for one in containers if one.get("securityContext", {}).get("privileged")]
    return [*paths, *(f"{name}: privileged container {one}" for one in privileged)]
