"""`ai_inference`: the HTTPRoute that the operator writes for a Gateway."""

from typing import Final

from e2e.conformance.bench import Bench, served
from e2e.conformance.evidence import Verdict
from e2e.conformance.notes import Notes
from e2e.install import apply
from e2e.waiting import conditions, wait_until
from pdinference.api.names import GATEWAY_GROUP

_ROUTES: Final = f"httproutes.{GATEWAY_GROUP}"
_GATEWAY: Final = "conformance"
_HOST: Final = "llm.example.com"


def ai_inference(bench: Bench, notes: Notes) -> None:
    """Without a Gateway that takes it, the route alone is shown."""
    if not served(bench.kubectl, _ROUTES):
        notes.lacks(Verdict.NOT_SHOWN, "The cluster has no Gateway API.")
        return
    route = {"parentRefs": [{"name": _GATEWAY}], "hostnames": [_HOST]}
    notes.apply(bench.edited(router={"route": route}), keep="resource")
    try:
        wait_until("the HTTPRoute", lambda: bench.kubectl.get("httproutes")["items"], timeout=60)
        (found,) = notes.get("httproutes", keep="httproute")["items"]
        backends = [one["name"] for rule in found["spec"]["rules"] for one in rule["backendRefs"]]
        notes.saw(
            "the operator writes an HTTPRoute to its router", backends == [bench.name], f"backend {', '.join(backends)}"
        )
        told = wait_until(
            "the condition of the route",
            lambda: conditions(bench.kubectl.get("pdi", bench.name)).get("RouteAccepted"),
            timeout=60,
        )
        notes.saw(
            "the operator says that no Gateway serves it",
            told["status"] != "True",
            f"{told['reason']}: {told['message']}",
        )
    finally:
        apply(bench.kubectl, bench.document)
    notes.lacks(
        Verdict.NOT_SHOWN, "This run sends no request through a Gateway: the one that the route names does not exist."
    )
