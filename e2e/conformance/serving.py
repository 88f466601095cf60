"""`disaggregated_inference` and `ai_service_metrics`: requests, where their KV cache went, and what pods count."""

import json
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

from prometheus_client.samples import Sample

from e2e.conformance.bench import Bench, served
from e2e.conformance.evidence import Verdict
from e2e.conformance.notes import Notes
from e2e.demo import LONG_PROMPT
from e2e.requests import Answer, complete
from e2e.transfer import metrics_of, settled
from e2e.waiting import conditions, wait_until
from pdinference.api.engines import engines_of
from pdinference.api.names import ENGINE_ROLES, LABEL_NAME, LABEL_ROLE, ROUTER_STATE_PORT, Role

_REQUESTS: Final = 3
_TOKENS: Final = 64
_FINISHED: Final = "vllm:request_success_total"
_ROUTED: Final = "pdinference_router_requests_total"


def disaggregated_inference(bench: Bench, notes: Notes) -> None:
    """The test plan of KAR-0041. The router's Service gets the request, in place of a Gateway."""
    selector = f"{LABEL_NAME}={bench.name}"
    notes.get("pods", "-l", selector, keep="pods")
    parameter, decode = (bench.pods(bench.name, role) for role in ENGINE_ROLES)
    places = [f"{pod['metadata']['name']} on {pod['spec']['nodeName']}" for pod in (*parameter, *decode)]
    notes.saw("prefill and decode run in pods of their own", bool(parameter and decode), ", ".join(places))

    before = settled(bench.kubectl, bench.name)
    request = f"conformance-{uuid4()}"
    notes.did(f"POST /v1/completions to service/{bench.name}, X-Request-Id: {request}")
    answer = _send(bench, request)
    told = f"{answer.prompt_tokens} prompt tokens, {answer.completion_tokens} generated, in {answer.seconds:.2f} s"
    notes.saw("a request is answered", answer.completion_tokens > 0, told)

    line = wait_until("the router to log the request", lambda: _logged(bench, request), timeout=60)
    notes.keep("router-log.json", json.dumps(line, indent=2))
    names = {pod["metadata"]["name"] for pod in parameter}, {pod["metadata"]["name"] for pod in decode}
    both = line["prefill"] in names[0] and line["decode"] in names[1]
    notes.saw("P and D both had this request", both, f"prefill {line['prefill']}, decode {line['decode']}")

    moved = settled(bench.kubectl, bench.name) - before
    notes.did(f"GET /metrics of the pods {', '.join(sorted(names[0] | names[1]))}, before and after")
    notes.keep("vllm-counters.json", json.dumps(asdict(moved), indent=2))
    seen = f"{moved.bytes / 2**20:.2f} MiB in {moved.transfers:.0f} transfers; D got {moved.moved_to_decode:.0f} tokens"
    notes.saw("KV cache moved from P to D, as vLLM counts it", bool(moved.bytes and moved.moved_to_decode), seen)
    notes.saw("no transfer failed", moved.failed == 0, f"{moved.failed:.0f} failed")

    resource = notes.get("pdi", bench.name, keep="resource")
    verified = conditions(resource).get("KVTransfer", {})
    notes.saw("the operator reports no fault of it", verified.get("status") != "False", str(verified.get("message")))
    workloads = notes.get("statefulsets,deployments", "-l", f"{selector},{LABEL_ROLE}!=router", keep="workloads")
    roles = [one["metadata"]["labels"][LABEL_ROLE] for one in workloads["items"]]
    apart = set(roles) >= set(ENGINE_ROLES) and len(roles) == len(set(roles))
    scaled = ", ".join(f"{one['kind']} {one['metadata']['name']}" for one in workloads["items"])
    notes.saw("P and D have workloads of their own, which scale apart", apart, scaled)


def ai_service_metrics(bench: Bench, notes: Notes) -> None:
    """The half of KAR-0061 that is the workload's: metrics in Prometheus' format, which follow the requests."""
    before = {role: _count(bench, notes, role) for role in (*ENGINE_ROLES, Role.ROUTER)}
    notes.did(f"{_REQUESTS} times POST /v1/completions to service/{bench.name}")
    for _ in range(_REQUESTS):
        _send(bench)
    for role, earlier in before.items():
        metric = _ROUTED if role is Role.ROUTER else _FINISHED

        def more(role: Role = role, earlier: float = earlier) -> float | None:
            grown = _count(bench, notes, role) - earlier
            return grown if grown >= _REQUESTS else None

        grown = wait_until(f"{metric} of {role} to count the requests", more, timeout=60)
        notes.saw(
            f"{role} counts the requests", grown >= _REQUESTS, f"{metric} rose by {grown:.0f} (canaries included)"
        )
    if served(bench.kubectl, "podmonitors.monitoring.coreos.com"):
        why = "This run asks no monitoring system whether it has collected the metrics."
    else:
        why = "The cluster has no Prometheus operator, so that no monitoring system collects the metrics."
    notes.lacks(Verdict.NOT_SHOWN, why)


def _send(bench: Bench, request_id: str | None = None) -> Answer:
    """A request with a prompt that no pod has KV cache of."""
    url = bench.kubectl.get("pdi", bench.name)["status"]["url"]
    prompt = f"{uuid4()}: {LONG_PROMPT}"
    with bench.kubectl.port_forward(f"service/{bench.name}", urlsplit(url).port or 80) as local:
        return complete(local, bench.model, prompt, max_tokens=_TOKENS, request_id=request_id)


def _logged(bench: Bench, request: str) -> dict[str, Any] | None:
    """The line of the router's log about a request."""
    words = ("-l", f"{LABEL_NAME}={bench.name},{LABEL_ROLE}={Role.ROUTER}", "--tail=-1")
    line = next((line for line in bench.kubectl.run("logs", *words).splitlines() if request in line), None)
    found: dict[str, Any] | None = json.loads(line) if line is not None and line.startswith("{") else None
    return found


def _count(bench: Bench, notes: Notes, role: Role) -> float:
    """Requests that the pods of a role have counted; what they answered is kept."""
    metric = _ROUTED if role is Role.ROUTER else _FINISHED
    samples = [sample for pod in bench.pods(bench.name, role) for sample in _samples(bench, notes, role, pod)]
    return sum(sample.value for sample in samples if sample.name == metric)


def _samples(bench: Bench, notes: Notes, role: Role, pod: dict[str, Any]) -> list[Sample]:
    name = pod["metadata"]["name"]
    ports = [ROUTER_STATE_PORT] if role is Role.ROUTER else [one.port for one in engines_of(pod) if one.role is role]
    notes.did(f"GET /metrics of {name}, port {', '.join(map(str, ports))}")
    found = [sample for port in ports for sample in metrics_of(bench.kubectl, name, port)]
    lines = sorted(f"{one.name} {one.labels} {one.value}" for one in found if not one.name.endswith("_bucket"))
    notes.keep(f"metrics-{role}.txt", "\n".join([*lines, ""]))
    return found
