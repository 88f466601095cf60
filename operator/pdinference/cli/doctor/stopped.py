"""Why containers of the resource stopped, from their logs, with the rights of the user.

The kubelet keeps the last 2 KiB of a log for the status. vLLM's engine process prints the cause before the API server
prints its own traceback, which may fill these. The operator has no right to read logs; the user may have it.
"""

import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from pdinference.api import names
from pdinference.api.plain_text import plain
from pdinference.api.pod_owner import is_of_workload
from pdinference.cli.doctor.finding import Finding, problem, unknown
from pdinference.cli.listing import listing
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import POD
from pdinference.cluster.state.last_words import last_words
from pdinference.planning.pod_diagnosis import is_pointer

_MOST: Final = 5
"""Logs that are read at most. Pods of a role stop for the same reason."""
_LINES: Final = 1000
_BYTES: Final = 2**20
"""Of the lines, so many bytes are read at most, and the last ones of them are kept."""
_KEPT: Final = 2**18
_SHOWN: Final = 253
_FROM_OUTSIDE: Final = frozenset({128 + signal.SIGKILL, 128 + signal.SIGTERM})
"""Exit codes after signals that leave no line in the log. What stands there is about something else."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A container that stopped by itself.

    Attributes:
        previous: Whether it was started again since, so that its log is that of the run before.
        code: Its exit code.
        reason: Why it ended, in the kubelet's word.
    """

    pod: str
    container: str
    previous: bool
    code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """What the end of a log says.

    Attributes:
        words: Why the container stopped, in one line; empty if the log does not say.
        unreadable: Why the log could not be read; empty if it was.
    """

    words: str = ""
    unreadable: str = ""


async def read_stopped(api: ApiServer, namespace: str, name: str) -> list[Finding]:
    """Findings about the containers that stopped and whose pods are not ready; none if there are no such.

    Raises:
        ApiError: The API server does not answer.
    """
    pods = await listing(api, POD.path(namespace), labelSelector=f"{names.LABEL_NAME}={name}")
    if pods.unreadable:
        return [unknown("containers that stopped", pods.unreadable)]
    own = [pod for pod in pods.items if is_of_workload(pod)]
    return [
        finding(namespace, one, await _log_end(api, namespace, one)) for one in sorted_by_role(stopped(own))[:_MOST]
    ]


def stopped(pods: Sequence[Json]) -> Iterator[Stopped]:
    """The containers of pods that are not ready, and that ended with an error or were started again after one."""
    for pod in pods:
        status = pod.get("status") or {}
        conditions = status.get("conditions") or ()
        if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
            continue
        for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            now = (container.get("state") or {}).get("terminated") or {}
            before = (container.get("lastState") or {}).get("terminated") or {}
            ended = now or before
            if ended.get("exitCode"):
                pod_name, reason = pod["metadata"]["name"], str(ended.get("reason") or "")
                yield Stopped(pod_name, container["name"], not now, int(ended["exitCode"]), plain(reason, _SHOWN))


def sorted_by_role(found: Iterable[Stopped]) -> list[Stopped]:
    """One container of each kind first: pods whose names differ in their end alone stop for the same reason.

    The further nodes of an instance end because another one did, so they come last.
    """
    ordered = sorted(found, key=lambda one: (one.code == names.GROUP_BROKEN_EXIT, one.pod, one.container))
    firsts: dict[tuple[str, str], Stopped] = {}
    for one in ordered:
        firsts.setdefault((one.pod.rpartition("-")[0], one.container), one)
    return [*firsts.values(), *(one for one in ordered if one not in firsts.values())]


def finding(namespace: str, one: Stopped, log: LogEnd) -> Finding:
    """What a log says of a container, and where to read more."""
    ended = f"Container {one.container} ended with exit code {one.code}"
    ended += f" ({one.reason})." if one.reason not in {"", "Error"} else "."
    subject = f"pod {one.pod}"
    if one.code in _FROM_OUTSIDE:
        events = f"`kubectl describe -n {namespace} pod {one.pod}`"
        return problem(subject, f"{ended} It was ended from outside, so its log does not say why.", f"See {events}.")
    if log.unreadable:
        return unknown(subject, f"{ended} {log.unreadable}")
    said = f"Its log says: «{log.words}»." if log.words else f"The last {_LINES} lines of its log do not say why."
    if is_pointer(log.words):
        said += f" The cause is not in the last {_LINES} lines."
    previous = " --previous" if one.previous else ""
    return problem(
        subject,
        f"{ended} {said}",
        f"Correct the cause. The log: `kubectl logs -n {namespace} {one.pod} -c {one.container}{previous}`.",
    )


async def _log_end(api: ApiServer, namespace: str, one: Stopped) -> LogEnd:
    """Read the end of a log, and find what it says."""
    if one.code in _FROM_OUTSIDE:
        return LogEnd()
    query = {"container": one.container, "tailLines": str(_LINES), "limitBytes": str(_BYTES)}
    if one.previous:
        query["previous"] = "true"
    kept = b""
    try:
        async for chunk in api.chunks(f"{POD.path(namespace, one.pod)}/log", **query):
            kept = (kept + chunk)[-_KEPT:]
    except ApiError as error:
        right = "You may not read logs (`get pods/log`): " if error.status == HTTPStatus.FORBIDDEN else ""
        return LogEnd(unreadable=f"Its log cannot be read. {right}{plain(error.message, 300)}")
    return LogEnd(last_words(kept.decode(errors="replace")))
