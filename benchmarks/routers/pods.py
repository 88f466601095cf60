"""Takes a pod from a router that runs, and gives it another one, by the way that the router has without Kubernetes."""

import json
import urllib.parse
import urllib.request
from collections.abc import Sequence

from benchmarks.processes import HOST
from benchmarks.routers import llm_d
from benchmarks.routers.launch import LLM_D, SGLANG, VLLM, Router


def replace(router: Router, ports: Sequence[int]) -> None:
    """Take the first pod away, and add the last one. Our router has no such way: it watches pods in Kubernetes."""
    old, new = (f"http://{HOST}:{port}" for port in (ports[0], ports[-1]))
    if router.name == LLM_D:
        llm_d.set_pods(router.folder, ports[1:])
    elif router.name == VLLM:
        for path, url in (("add_worker", new), ("remove_worker", old)):
            _ask("POST", router.port, f"/{path}?{urllib.parse.urlencode({'url': url})}")
    elif router.name == SGLANG:
        _ask("POST", router.port, "/workers", {"url": new})
        workers = _ask("GET", router.port, "/workers")["workers"]
        _ask("DELETE", router.port, f"/workers/{next(one['id'] for one in workers if one['url'] == old)}")


def _ask(method: str, port: int, path: str, body: object = None) -> dict[str, list[dict[str, str]]]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://{HOST}:{port}{path}", data, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - ours
        text = answer.read()
    return json.loads(text) if text.startswith(b"{") else {}
