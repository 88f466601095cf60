"""Limitations of an explanation, and the triggers of the next decision.

Tests: tests/cli/test_explain.py, tests/cli/test_explain_files.py
"""

from collections.abc import Iterator, Sequence

from pdinference.cli.explain.live_objects import ObjectCache
from pdinference.cli.explain.moment import Moment
from pdinference.cli.installed import Installed
from pdinference.cluster.kinds import CHILDREN, SCALED_OBJECT, Kind
from pdinference.cluster.verdict import Verdict
from pdinference.planning.status import due

_SETTINGS = "Manifests and the target revision depend on the operator's settings."
_HANDLED = "The operator has handled this generation already. If it runs and is at rest, there is another cause:"


def unknown(moment: Moment, cache: ObjectCache, found: Installed, *, from_file: bool) -> list[str]:
    """Facts that the explanation does not have.

    Args:
        moment: The decision with its inputs.
        cache: The objects that were read.
        found: The operator's settings.
        from_file: Whether the objects come from a file.
    """
    return list(_unknown(moment, cache, found, from_file=from_file))


def _unknown(moment: Moment, cache: ObjectCache, found: Installed, *, from_file: bool) -> Iterator[str]:
    snapshot = moment.snapshot
    if from_file:
        yield "An object that the file lacks counts as absent."
    for kind, number in sorted(cache.left_out.items()):
        yield f"{number} {kind} cannot be read and count as absent."
    yield from _refused(cache.refused)
    if snapshot.desired.sleeps_after is not None:
        state = "asleep" if moment.plan.asleep else "awake"
        yield (
            f"The requests in router pods are not read. So the resource counts as {state}; whether it falls asleep or "
            "wakes is not decided here."
        )
    if snapshot.desired.autoscaled:
        yield "Load metrics are not read. The recommended counts are those that were written to the PDScalers last."
    if _differs(moment):
        yield f"{_SETTINGS} {found.source}"
        if snapshot.previous.observed_generation == snapshot.resource.generation and not snapshot.spec.invalid:
            yield f"{_HANDLED} {found.differences}"
    yield "Changes of the status, and Events, are not shown."


def _refused(kinds: Sequence[Kind]) -> Iterator[str]:
    for assumed, how in ((True, "up to date"), (False, "absent")):
        found = [kind.plural for kind in kinds if (kind in CHILDREN or kind is SCALED_OBJECT) is assumed]
        if found:
            yield f"You may not list {', '.join(found)}. They count as {how}."


def _differs(moment: Moment) -> bool:
    """Whether a write may be due to different settings of the operator."""
    reported = moment.snapshot.previous.revision
    other = reported not in {"", moment.snapshot.desired.revision}
    return other or Verdict.APPLY in moment.plan.apply.values()


def look_again(moment: Moment, *, writes: bool) -> list[str]:
    """Triggers of the next decision.

    Args:
        moment: The decision with its inputs.
        writes: Whether the operator would write now.
    """
    return list(_look_again(moment, writes=writes))


def _look_again(moment: Moment, *, writes: bool) -> Iterator[str]:
    snapshot = moment.snapshot
    if writes:
        yield "right after these writes; what follows from them is not shown"
    if {Verdict.WAIT, Verdict.FOREIGN} & set(moment.plan.apply.values()):
        yield "again and again while an object is in the place of another, with delays from 0.5 s to 5 min"
    deadline = due(snapshot.previous, snapshot.desired.progress_deadline)
    if deadline is not None and deadline > snapshot.now:
        yield f"at {deadline:%Y-%m-%dT%H:%M:%SZ}, when the roll-out's progress deadline passes"
    if snapshot.desired.sleeps_after is not None and not moment.plan.asleep:
        yield f"when no request came for {snapshot.desired.sleeps_after} s (spec.autoscaling.scaleToZero)"
    yield "when one of these objects changes, and after each complete list (pdinference run --resync-seconds)"
