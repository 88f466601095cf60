"""The tiny example with instances on two nodes, and what its answers say of the KV cache that was handed over."""

import contextlib
import copy
from collections.abc import Iterable, Iterator
from typing import Any

from e2e.conftest import NAME, Serving
from e2e.install import apply
from e2e.requests import Answer, complete
from e2e.transfer import BLOCK, Transfer, transfer
from e2e.waiting import wait_ready, wait_until
from pdinference.api.names import LABEL_APP_COMPONENT, LABEL_NAME, LABEL_NODE_RANK, LABEL_ROLE, Role

HOSTNAME = "kubernetes.io/hostname"


def hosts(serving: Serving) -> list[str]:
    """The nodes of the cluster that pods may run on."""
    nodes = serving.kubectl.get("nodes")["items"]
    return [node["metadata"]["labels"][HOSTNAME] for node in nodes if not node["spec"].get("taints")]


@contextlib.contextmanager
def served(
    serving: Serving,
    name: str,
    parallelism: dict[str, Any],
    *,
    tensor: int = 1,
    decode: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    **parameter: Any,
) -> Iterator[Serving]:
    """The tiny example under another name, with P on both nodes, until it is removed at the end.

    Args:
        serving: The cluster.
        name: Its name.
        parallelism: How an instance of P is split.
        tensor: Tensor ranks of D.
        decode: Further settings of D.
        model: Settings of the model that differ from the tiny one's.
        parameter: Further settings of P.
    """
    document = copy.deepcopy(serving.example)
    document["metadata"]["name"] = name
    document["spec"]["model"] |= model or {}
    pools = [{"nodeSelector": {HOSTNAME: host}} for host in hosts(serving)]
    document["spec"]["parameter"] |= {"parallelism": parallelism, "nodePools": pools, **parameter}
    document["spec"]["decode"] |= {"parallelism": {"tensor": tensor}, **(decode or {})}
    # They share two nodes with the tiny pair, and what other tests have left to end.
    for role in ("parameter", "decode"):
        document["spec"][role]["resources"]["requests"]["cpu"] = "100m"
    # With several ranks, vLLM compiles a part of the model even if eager, and the image has no compiler.
    document["spec"]["engine"]["env"]["TORCHDYNAMO_DISABLE"] = "1"
    apply(serving.kubectl, document)
    try:
        wait_ready(serving.kubectl, name)
        yield serving
    finally:
        serving.kubectl.run("delete", "pdi", name, "--timeout=300s", timeout=310)
        wait_until("its pods to be gone", lambda: not _pods(serving, f"{LABEL_NAME}={name}"), timeout=240)


def pods(serving: Serving, name: str, role: Role = Role.PARAMETER) -> list[dict[str, Any]]:
    """The pods of the instance of a role by node rank."""
    found = _pods(serving, f"{LABEL_NAME}={name},{LABEL_APP_COMPONENT}={role},{LABEL_NODE_RANK}")
    return sorted(found, key=lambda pod: str(pod["metadata"]["labels"][LABEL_NODE_RANK]))


def _pods(serving: Serving, selector: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = serving.kubectl.get("pods", "-l", selector)["items"]
    return found


def ask(serving: Serving, name: str, prompt: str) -> tuple[Answer, Transfer]:
    """Send a prompt through the router; what of its KV cache D had, and from where."""
    before = transfer(serving.kubectl, name)
    with serving.kubectl.port_forward(f"service/{name}", 80) as url:
        answer = complete(url, name, prompt, max_tokens=16, ignore_eos=True)
    return answer, transfer(serving.kubectl, name) - before


def ask_until_connected(serving: Serving, name: str, prompts: Iterable[str]) -> tuple[str, Answer, Transfer]:
    """Send one prompt after another until no transfer failed, and tell of the last one.

    D greets P before it first asks for KV cache, and gives P five seconds to answer (vLLM's NIXL connector, not to be
    set). Five vLLMs that start on two cores may take longer; D computes such a prompt itself, and greets P again.
    """
    for prompt in prompts:
        answer, moved = ask(serving, name, prompt)
        if moved.failed == 0:
            break
    return prompt, answer, moved


def alone(serving: Serving, prompt: str, max_tokens: int = 16) -> str:
    """The answer of the same model on one node."""
    with serving.kubectl.port_forward(f"service/{NAME}", 80) as url:
        return complete(url, NAME, prompt, max_tokens, ignore_eos=True).text


def handed_over(moved: Transfer, prompt: str) -> bool:
    """Whether D got the whole KV cache of a prompt from P; at most it computed what does not fill a block."""
    return (
        moved.failed == 0
        and moved.computed_on_parameter == len(prompt)
        and moved.moved_to_decode == moved.queried_on_decode > 0
        and moved.computed_on_decode < BLOCK
    )


def errors_of_decode(serving: Serving, name: str) -> str:
    """What D's log says of a transfer that failed."""
    said = serving.kubectl.run("logs", "-l", f"{LABEL_NAME}={name},{LABEL_ROLE}={Role.DECODE}", "--tail=-1")
    return "\n".join(line for line in said.splitlines() if "ERROR" in line)
