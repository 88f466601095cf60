"""Draws how a broken pair of P and D is found and repaired: `make recording`, after the demo.

    uv run python -m e2e.repair_recording docs/images/repair.svg

One of two P pods loses its network to the only D pod. Everything is real: pods, vLLM on CPU, canaries, eviction. The
picture plays minutes in one, so each frame says when it was.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import httpx
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from e2e.animation import Frame, save_animation
from e2e.cluster import Cluster
from e2e.console import headline, say
from e2e.demo import NAME as DEMO
from e2e.demo import NAMESPACE, name_option
from e2e.faults import Packets, cut_off
from e2e.install import ImageReferences, apply, example
from e2e.kubectl import Kubectl, KubectlError
from e2e.load import Load, Shape, load
from e2e.transfer import samples
from e2e.waiting import conditions, wait_ready, wait_until
from pdinference.api.names import ENGINE_PORT, LABEL_NAME, LABEL_ROLE, Role

NAME: Final = "tiny-repair"
_SHAPE: Final = Shape(clients=2, words=(20, 120), pause=1.0)
"""Leaves cores for the pod that starts."""
_STEP_SECONDS: Final = "0.02"
_EVENTS: Final = ("KVTransferRepair", "KVTransferRepaired", "KVTransferNotRepaired")
_LOOK_S: Final = 2.0
_QUIET_S: Final = 15.0
"""In which nothing but numbers changes, until there is a frame."""
_NEW: Final = 4
"""How many times as long a frame with something new is shown."""
_PLAYED_S: Final = 60.0
_LONGEST_S: Final = 900.0


@dataclass(frozen=True)
class PodRow:
    """A pod.

    Attributes:
        name: Its name.
        ready: Its condition Ready.
        address: Its IP address.
        prompt_tokens: Those that vLLM has computed since it started; None without an answer.
    """

    name: str
    ready: str
    address: str
    prompt_tokens: float | None


@dataclass(frozen=True)
class Look:
    """What a person sees at a moment.

    Attributes:
        seconds: Since the fault.
        title: What happens at this moment.
        pods: Those of P and D.
        condition: KVTransfer, as the resource has it.
        events: Those of the repair, oldest first.
        requests: What became of those of the clients, in words.
    """

    seconds: float
    title: str
    pods: tuple[PodRow, ...]
    condition: dict[str, Any]
    events: tuple[str, ...]
    requests: str

    @property
    def story(self) -> tuple[object, ...]:
        """All that is not a number that always grows."""
        pods = tuple((pod.name, pod.ready, pod.address) for pod in self.pods)
        return self.title, pods, self.condition.get("status"), self.condition.get("message"), self.events


@click.command()
@click.argument("picture", type=click.Path(dir_okay=False, path_type=Path))
@name_option
def main(picture: Path, name: str) -> None:
    """Break a pair under load, and draw what a person sees until it is repaired."""
    cluster = Cluster.find(name)
    kubectl = Kubectl(cluster.kubeconfig, NAMESPACE)
    with _model(kubectl):
        looks = list(_looks(cluster, kubectl))
    save_animation(frames(looks), picture, "pods, KVTransfer and Events while a pair of P and D is broken and repaired")


@contextmanager
def _model(kubectl: Kubectl) -> Iterator[None]:
    headline("A model with two P pods and one D pod")
    document = example(ImageReferences(operator="", vllm=kubectl.get("pdi", DEMO)["spec"]["engine"]["image"]))
    document["metadata"]["name"] = NAME
    document["spec"]["engine"]["env"]["VLLM_CPU_STEP_SECONDS"] = _STEP_SECONDS
    document["spec"]["parameter"]["replicas"] = 2
    apply(kubectl, document)
    try:
        wait_ready(kubectl, NAME)
        yield
    finally:
        kubectl.run("delete", "pdi", NAME, "--wait=false")


def _looks(cluster: Cluster, kubectl: Kubectl) -> Iterator[Look]:
    """Look until KV cache gets through again."""
    (decode,), (broken, _), (router,) = (_pods(kubectl, role) for role in (Role.DECODE, Role.PARAMETER, Role.ROUTER))
    image = router["spec"]["containers"][0]["image"]
    name = broken["metadata"]["name"]
    with load(kubectl, f"http://{NAME}.{NAMESPACE}.svc", NAME, image, shape=_SHAPE) as clients:
        wait_until("KVTransfer to be True", lambda: _condition(kubectl).get("status") == "True")
        yield _look(kubectl, clients, 0, "Before the fault")
        say(f"{decode['metadata']['name']} gets no packet of {name} at {broken['status']['podIP']}")
        start = time.monotonic()
        fault = f"D gets no packet of {broken['status']['podIP']}"
        with cut_off(cluster, decode, broken, packets=Packets.DROP):
            while not _is_over(kubectl):
                if (passed := time.monotonic() - start) > _LONGEST_S:
                    raise click.ClickException("The pair was not repaired.")
                yield _look(kubectl, clients, passed, fault)
                time.sleep(_LOOK_S)
            yield _look(kubectl, clients, time.monotonic() - start, f"Repaired, although {fault}")


def _look(kubectl: Kubectl, clients: Load, seconds: float, title: str) -> Look:
    found = clients.report()
    pods = (pod for role in (Role.PARAMETER, Role.DECODE) for pod in _pods(kubectl, role))
    events = [event for event in kubectl.get("events")["items"] if _tells(event)]
    events.sort(key=lambda event: str(event["metadata"]["creationTimestamp"]))
    return Look(
        seconds,
        title,
        tuple(_row(kubectl, pod) for pod in pods),
        _condition(kubectl),
        tuple(f"{event['reason']}: {event['message']}" for event in events),
        f"{found.answered} requests answered, {len(found.failures)} failed",
    )


def _row(kubectl: Kubectl, pod: dict[str, Any]) -> PodRow:
    name, status = pod["metadata"]["name"], pod["status"]
    tokens = None
    with suppress(KubectlError, httpx.HTTPError):  # while it starts or ends
        tokens = dict(samples(kubectl, name, ENGINE_PORT)).get("vllm:prompt_tokens_total")
    ready = conditions(pod).get("Ready", {}).get("status", "")
    return PodRow(name, ready, status.get("podIP", ""), tokens)


def _tells(event: dict[str, Any]) -> bool:
    return event["reason"] in _EVENTS and event["involvedObject"]["name"] == NAME


def _pods(kubectl: Kubectl, role: Role) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kubectl.get("pods", "-l", f"{LABEL_NAME}={NAME},{LABEL_ROLE}={role}")["items"]
    return found


def _condition(kubectl: Kubectl) -> dict[str, Any]:
    return conditions(kubectl.get("pdi", NAME)).get("KVTransfer", {})


def _is_over(kubectl: Kubectl) -> bool:
    """Whether a pod was restarted, that helped, and KV cache gets through."""
    repair = (kubectl.get("pdi", NAME)["status"].get("transfer") or {}).get("repair") or {}
    return repair.get("outcome") == "Repaired" and _condition(kubectl).get("status") == "True"


def frames(looks: Sequence[Look]) -> list[Frame]:
    """A frame for each look that tells something new, shown for longer, and some of those between."""
    shown = [(looks[0], _NEW)]
    for look in looks[1:]:
        last, _ = shown[-1]
        if look.story != last.story:
            shown.append((look, _NEW))
        elif look.seconds - last.seconds >= _QUIET_S:
            shown.append((look, 1))
    a_part = _PLAYED_S / sum(parts for _, parts in shown)
    return [Frame(drawn(look), a_part * parts) for look, parts in shown]


def drawn(look: Look) -> RenderableType:
    """What the terminal shows."""
    pods = Table(box=None, pad_edge=False)
    for column in ("POD", "READY", "ADDRESS", "PROMPT TOKENS"):
        pods.add_column(column, justify="right" if column == "PROMPT TOKENS" else "left", no_wrap=True)
    for pod in look.pods:
        tokens = "" if pod.prompt_tokens is None else f"{pod.prompt_tokens:,.0f}"
        pods.add_row(pod.name, pod.ready, pod.address, tokens)
    state = f"KVTransfer {look.condition.get('status', '')}, {look.condition.get('reason', '')}"
    return Group(
        Text(f"{look.seconds:3.0f} s  {look.title}", style="bold"),
        Text(f"       Clients: {look.requests}"),
        Text(),
        pods,
        Text(),
        Text(state, style="bold"),
        Text(look.condition.get("message", "")),
        Text(),
        Text("Events of the repair", style="bold"),
        *(Text(event) for event in look.events),
    )


if __name__ == "__main__":
    main()
