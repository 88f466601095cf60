"""How long pods took to start, phase by phase: pure.

Tests: tests/cli/test_status_startup.py
"""

import itertools
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pdinference.api.engines import PodEngine
from pdinference.api.names import ENGINE_ROLES, METRIC_ADMISSION_TIME, MODEL_CONTAINER, Role
from pdinference.engine.start_log import COMPILE_CACHE_LINE, PHASES, phase_seconds
from pdinference.loadmetrics.scraping.http_answer import LONGEST_LINE
from pdinference.loadmetrics.scraping.text_format import name_of, sample

Json = Mapping[str, Any]
Log = Sequence[bytes]
"""Lines of a container, each after the time at which it was written."""

_BEFORE_VLLM: Final = ("scheduling", "image, volumes", "model", "container")
_AFTER_VLLM: Final = "readiness"
_CANARY: Final = "canary"
ORDER: Final = (*_BEFORE_VLLM, *PHASES, _AFTER_VLLM, _CANARY)
"""All phases, in their order."""
_ADMISSION: Final = METRIC_ADMISSION_TIME.encode()
_DECODE: Final = str(Role.DECODE).encode()
_MOST_ADMISSIONS: Final = 1000
_LONGEST_READINESS_SECONDS: Final = 600.0
_LONG_SECONDS: Final = 60.0
_COMPILED_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Start:
    """The last start of one engine.

    Attributes:
        pod: Its pod.
        engine: Its name in a pod with several; else empty.
        role: Its role.
        began: When its pod was created, or its container was started again.
        seconds: Of each phase that has ended, by name.
        total: Seconds until it was ready, and had passed its canary if that is known; None if it is not ready.
        again: Whether its container was started again. There is no phase before that.
        from_cache: Whether it found compiled code (`spec.engine.compileCache`).
    """

    pod: str
    engine: str
    role: Role
    began: datetime
    seconds: Mapping[str, float] = field(default_factory=dict)
    total: float | None = None
    again: bool = False
    from_cache: bool = False

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        rounded = {phase: round(seconds, 3) for phase, seconds in self.seconds.items()}
        return {
            "pod": self.pod,
            **({"engine": self.engine} if self.engine else {}),
            "role": str(self.role),
            "containerStartedAgain": self.again,
            "compiledCodeFound": self.from_cache,
            "seconds": rounded,
            "totalSeconds": None if self.total is None else round(self.total, 3),
        }


def admissions(page: bytes, now: datetime) -> dict[str, datetime]:
    """When requests first went to each D pod, from the metrics of a router.

    Args:
        page: The metrics.
        now: The present time. What is later has not happened.

    Raises:
        UnreadableError: The page is malformed.
    """
    lines = (line for line in page.split(b"\n") if len(line) <= LONGEST_LINE and name_of(line) == _ADMISSION)
    samples = map(sample, itertools.islice(lines, _MOST_ADMISSIONS))
    return {
        one.labels.get(_DECODE, b"").decode(errors="replace"): datetime.fromtimestamp(one.value, UTC)
        for one in samples
        if 0 <= one.value <= now.timestamp()
    }


def start_of(pod: Json, engine: PodEngine, log: Log, admitted: Collection[Mapping[str, datetime]]) -> Start | None:
    """The last start of an engine; None before its pod is scheduled.

    Args:
        pod: Its pod.
        engine: The engine.
        log: The beginning of its container's log.
        admitted: Of each router: when requests first went to pods, engines and ranks of D.
    """
    created, status = _time(pod["metadata"].get("creationTimestamp")), pod.get("status") or {}
    if created is None:
        return None
    container = _state(status.get("containerStatuses"), engine.container)
    launched = _time(((container.get("state") or {}).get("running") or {}).get("startedAt"))
    again = engine.restarts > 0 and launched is not None
    seconds = {} if again else dict(_before_vllm(created, launched, status))
    began = launched if again and launched else created
    lines = list(_lines(log, engine.port_name if engine.shares_pod else ""))
    if launched is not None:
        seconds |= phase_seconds(lines, launched)
    ready = _condition(status, "Ready") if engine.ready else None
    total = None
    if ready is not None and launched is not None:
        in_vllm = sum(each for phase, each in seconds.items() if phase in PHASES)
        after = max(0.0, (ready - launched).total_seconds() - in_vllm)
        if not in_vllm or after < _LONGEST_READINESS_SECONDS:  # else it became ready once more since then
            seconds[_AFTER_VLLM] = after
            proven = [at for at in _admitted(pod, engine, admitted) if began <= at]
            end = max([ready, *proven])
            seconds |= {_CANARY: (end - ready).total_seconds()} if proven else {}
            total = max(0.0, (end - began).total_seconds())
    return Start(
        pod=pod["metadata"]["name"],
        engine=engine.port_name if engine.shares_pod else "",
        role=engine.role,
        began=began,
        seconds=seconds,
        total=total,
        again=again,
        from_cache=any(COMPILE_CACHE_LINE in text for _, text in lines),
    )


def _admitted(pod: Json, engine: PodEngine, admitted: Iterable[Mapping[str, datetime]]) -> Iterator[datetime]:
    """When requests first went to an engine, or to each of its ranks, by all routers."""
    name = f"{pod['metadata']['name']}/{engine.port_name}" if engine.shares_pod else pod["metadata"]["name"]
    for by_name in admitted:
        yield from (at for one, at in by_name.items() if one == name or one.startswith(f"{name}/"))


def _before_vllm(created: datetime, launched: datetime | None, status: Json) -> Iterator[tuple[str, float]]:
    """Phases of the pod. Kubernetes notes whole seconds."""
    before = created
    scheduled = _condition(status, "PodScheduled")
    init = [_ended_run(each) for each in status.get("initContainerStatuses") or ()]
    model = _ended_run(_state(status.get("initContainerStatuses"), MODEL_CONTAINER))
    first = min((begin for begin, _ in filter(None, init)), default=launched)
    ends = [
        ("scheduling", scheduled),
        ("image, volumes", first),
        ("model", model[1] if model else None),
        ("container", launched if init else None),
    ]
    for phase, end in ends:
        if end is not None:
            yield phase, max(0.0, (end - before).total_seconds())
            before = end


def _ended_run(status: Json) -> tuple[datetime, datetime] | None:
    ended = (status.get("state") or {}).get("terminated") or {}
    begin, end = _time(ended.get("startedAt")), _time(ended.get("finishedAt"))
    return (begin, end) if begin and end else None


def _lines(log: Log, engine: str) -> Iterator[tuple[datetime, str]]:
    """Lines with their time; of a launcher's log, those of one engine."""
    prefix = f"{engine}: " if engine else ""
    several = any(f" {prefix}".encode() in line for line in log) if prefix else False
    for line in log:
        stamp, _, text = line.decode(errors="replace").partition(" ")
        if (at := _time(stamp)) is not None and (not several or text.startswith(prefix)):
            yield at, text


def _condition(status: Json, name: str) -> datetime | None:
    """When a condition became true."""
    for one in status.get("conditions") or ():
        if one.get("type") == name and one.get("status") == "True":
            return _time(one.get("lastTransitionTime"))
    return None


def _state(statuses: Iterable[Json] | None, name: str) -> Json:
    return next((one for one in statuses or () if one.get("name") == name), {})


def _time(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else None


@dataclass(frozen=True, slots=True)
class RoleStarts:
    """The starts of one role.

    Attributes:
        last: The one that began last.
        typical: Medians of the phases, over all.
        total: Median of their totals; None if none is ready.
        count: How many.
    """

    last: Start
    typical: Mapping[str, float]
    total: float | None
    count: int


def by_role(starts: Iterable[Start]) -> dict[Role, RoleStarts]:
    """The starts of P and of D. A container that was started again is typical of no pod."""
    found = {}
    every = list(starts)
    for role in ENGINE_ROLES:
        own = [start for start in every if start.role is role]
        if not own:
            continue
        whole = [start for start in own if not start.again] or own
        totals = [start.total for start in whole if start.total is not None]
        medians = {
            phase: statistics.median(start.seconds[phase] for start in whole if phase in start.seconds)
            for phase in ORDER
            if any(phase in start.seconds for start in whole)
        }
        last = max(own, key=lambda start: start.began)
        found[role] = RoleStarts(last, medians, statistics.median(totals) if totals else None, len(own))
    return found


def advice(found: Mapping[Role, RoleStarts], spec: Json) -> list[str]:
    """What would shorten the starts, as sentences."""
    typical = {phase: max((one.typical.get(phase, 0.0) for one in found.values()), default=0.0) for phase in ORDER}
    compiled = typical["compilation"] + typical["warm-up"]
    rules = [
        (
            typical["scheduling"] > _LONG_SECONDS,
            f"Pods wait {typical['scheduling']:.0f} s for a node. `kubectl describe pod` says for what.",
        ),
        (
            typical["image, volumes"] > _LONG_SECONDS,
            f"Images and volumes take {typical['image, volumes']:.0f} s. Pull the image to the nodes beforehand.",
        ),
        (
            typical["model"] > _LONG_SECONDS and not (spec.get("model") or {}).get("cache"),
            f"The model takes {typical['model']:.0f} s. spec.model.cache downloads it once.",
        ),
        (
            compiled > _COMPILED_SECONDS and not (spec.get("engine") or {}).get("compileCache"),
            f"Compilation and warm-up take {compiled:.0f} s. spec.engine.compileCache keeps their results.",
        ),
        (
            typical["weights"] > _LONG_SECONDS,
            f"Weights take {typical['weights']:.0f} s. A volume that is on the node is faster than one of the network.",
        ),
    ]
    return [sentence for holds, sentence in rules if holds]
