"""How soon the path of the KV cache heals by itself, and what requests notice: one fault after another, under load.

    uv run python -m benchmarks.healing                      # all faults, 20 restarts of P and 20 of D: an hour
    uv run python -m benchmarks.healing --times=3 --fault=D

A local cluster of two nodes with one P, one D and a router serves the tiny model on CPUs. A fault has healed when four
answers in a row had their KV cache from P, and no transfer failed meanwhile. The time counts from the end of a fault of
the network, and from the death of a pod. A request is lost when it failed before its answer began.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final

import click
import httpx

from e2e import faults
from e2e.cluster import Cluster
from e2e.conftest import NAME, Serving, started
from e2e.faults import Direction, Ports, restarts
from e2e.install import local_references
from e2e.kubectl import KubectlError
from e2e.load import Load, Shape, load
from e2e.local import cluster_with_images
from e2e.transfer import BLOCK, Transfer, transfer
from e2e.waiting import WaitTimeoutError, conditions, wait_until
from pdinference.api.names import LABEL_NAME, LABEL_ROLE, Role

CLUSTER: Final = "healing"
SHAPE: Final = Shape(clients=2, words=(130,), pause=0.5)
ANSWERS: Final = 4
CUT_S: Final = 30.0
HEALED_S: Final = 1200.0
"""An engine that hangs is proven to after five minutes or more."""
KILLS: Final = 3
"""The kubelet waits longer before each new start of a container; with more, its pause is what would be measured."""


@dataclass(frozen=True)
class Row:
    """What came of a fault that was caused several times.

    Attributes:
        fault: Its name.
        seconds: Until each had healed.
        lost: The requests that failed before their answer began.
        begun: Number of streams that ended with an error event after they had begun.
        restarted: Number of pods that the operator restarted.
    """

    fault: str
    seconds: list[float]
    lost: list[str]
    begun: int
    restarted: int

    def __str__(self) -> str:
        return (
            f"{self.fault:<36} {len(self.seconds):>3} times, healed after {median(self.seconds):5.0f} s "
            f"(at most {max(self.seconds):3.0f} s), {len(self.lost)} requests lost, {self.begun} begun streams ended, "
            f"{self.restarted} pods restarted by the operator"
        )


def pod_of(serving: Serving, role: Role) -> dict[str, Any] | None:
    """The pod of a role that is to stay, if it is there and ready."""
    found = serving.kubectl.get("pods", "-l", f"{LABEL_NAME}={NAME},{LABEL_ROLE}={role}")["items"]
    pods = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
    ready = [pod for pod in pods if conditions(pod).get("Ready", {}).get("status") == "True"]
    return ready[0] if len(pods) == len(ready) == 1 else None


def present(serving: Serving, role: Role) -> dict[str, Any]:
    """The pod of a role, once it is ready."""
    return wait_until(f"a ready {role} pod", partial(pod_of, serving, role), timeout=HEALED_S)


def deleted(serving: Serving, role: Role) -> None:
    """Delete the pod of a role with a second's notice."""
    name = present(serving, role)["metadata"]["name"]
    serving.kubectl.run("delete", "pod", name, "--grace-period=1", "--wait=false")


def killed(serving: Serving, role: Role) -> None:
    """Kill the containers of the pod of a role."""
    pod = present(serving, role)
    faults.kill(serving.cluster, pod)

    def noticed() -> bool:
        found = pod_of(serving, role)
        return found is None or restarts(found) > restarts(pod)

    wait_until("the kubelet to notice", noticed, timeout=60)


def hung(serving: Serving, role: Role) -> None:
    """Stop the engine of a role for good. Its server answers `/health`, so the operator has to find it."""
    faults.hang(serving.cluster, present(serving, role))


def cut(serving: Serving, ports: Ports, direction: Direction) -> None:
    """Drop packets between P and D for a while."""
    parameter, decode = present(serving, Role.PARAMETER), present(serving, Role.DECODE)
    with faults.dropping(serving.cluster, parameter, decode, ports, direction):
        time.sleep(CUT_S)  # the length of the fault


def torn(serving: Serving) -> None:
    """Reset every connection between P and D: both agents live, and what each knows of the other is of no use."""
    parameter, decode = present(serving, Role.PARAMETER), present(serving, Role.DECODE)
    with faults.cut_off(serving.cluster, decode, parameter, packets=faults.Packets.REJECT):
        time.sleep(CUT_S / 3)


FAULTS: Final[Mapping[str, tuple[Callable[[Serving], None], int]]] = {
    "P deleted": (partial(deleted, role=Role.PARAMETER), 0),
    "D deleted": (partial(deleted, role=Role.DECODE), 0),
    "P killed": (partial(killed, role=Role.PARAMETER), KILLS),
    "D killed": (partial(killed, role=Role.DECODE), KILLS),
    **{
        f"{ports}, {direction}": (partial(cut, ports=ports, direction=direction), 1)
        for ports in Ports
        for direction in Direction
    },
    "connections reset": (torn, 1),
    "P hangs": (partial(hung, role=Role.PARAMETER), 1),
    "D hangs": (partial(hung, role=Role.DECODE), 1),
}
"""What is done, and how often; 0 is as often as the command says."""


def moves(serving: Serving, client: Load) -> bool:
    """Whether the next answers have their KV cache from P."""
    try:
        before, known = counted(serving), client.report()
        client.wait_for(more=ANSWERS)
        after, seen = counted(serving), client.report()
    except (httpx.HTTPError, KubectlError, WaitTimeoutError):  # no answer comes while the only D hangs
        return False
    if before is None or after is None or before[0] != after[0]:
        return False
    moved = after[1] - before[1]
    prompts = seen.began - known.began + len(known.open)
    return (
        seen.prefilled_by_decode == known.prefilled_by_decode
        and moved.failed == 0
        and moved.moved_to_decode > 0
        and moved.computed_on_decode < BLOCK * prompts
    )


def counted(serving: Serving) -> tuple[list[tuple[str, int]], Transfer] | None:
    """The lives of P and D, and what they counted in them; None while one is away."""
    pods = [pod_of(serving, role) for role in (Role.PARAMETER, Role.DECODE)]
    lives = [(pod["metadata"]["uid"], restarts(pod)) for pod in pods if pod is not None]
    return (lives, transfer(serving.kubectl, NAME)) if len(lives) == len(pods) else None


def restarted(serving: Serving) -> int:
    """Restarts by the operator so far."""
    events = serving.kubectl.get("events", "--field-selector=reason=KVTransferRepair")["items"]
    return sum(event.get("series", {}).get("count") or event.get("count") or 1 for event in events)


def measure(serving: Serving, name: str, times: int) -> Row:
    """Cause a fault several times under one load."""
    cause, own_times = FAULTS[name]
    seconds = list[float]()
    before = restarted(serving)
    with load(serving.kubectl, serving.url, NAME, serving.images.operator, shape=SHAPE) as client:
        wait_until("KV cache to move", lambda: moves(serving, client), timeout=HEALED_S)
        for _ in range(own_times or times):
            # A pod's time counts from its death, that of a fault of the network from its end.
            start = time.monotonic()
            cause(serving)
            begin = start if name.endswith(("deleted", "killed", "hangs")) else time.monotonic()
            wait_until(f"{name} to heal", lambda: moves(serving, client), timeout=HEALED_S)
            seconds.append(time.monotonic() - begin)
            click.echo(f"{name}: {seconds[-1]:.0f} s")
        failures = client.unanswered()
    lost = [failure for failure in failures if ": error_event after" not in failure]
    return Row(name, seconds, lost, len(failures) - len(lost), restarted(serving) - before)


@click.command()
@click.option("--times", default=20, show_default=True, help="Deaths of P, and of D.")
@click.option("--fault", "prefixes", multiple=True, help="Only the faults whose names begin so; may be repeated.")
def main(times: int, prefixes: tuple[str, ...]) -> None:
    """Print a line for each fault."""
    names = [name for name in FAULTS if not prefixes or name.startswith(prefixes)]
    if not names:
        raise click.UsageError(f"No fault begins so. There are: {', '.join(FAULTS)}.")
    Cluster.discard(CLUSTER)
    try:
        cluster, built = cluster_with_images(CLUSTER)
        serving = started(cluster, local_references(built))
        rows = []
        for name in names:
            rows.append(measure(serving, name, times))
            click.echo(str(rows[-1]))
    finally:
        Cluster.discard(CLUSTER)
    click.echo("\n".join(["", *map(str, rows), *(lost for row in rows for lost in row.lost)]))


if __name__ == "__main__":
    main()
