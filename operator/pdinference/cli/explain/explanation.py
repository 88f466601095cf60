"""The result of `pdinference explain`, for text and JSON output.

Tests: tests/cli/test_explain.py, tests/cli/test_pause.py
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pdinference.api.plain_text import plain
from pdinference.cli.explain.caveats import look_again, unknown
from pdinference.cli.explain.facts import RoleCount, attained, gpus, role_counts, traffic_switch
from pdinference.cli.explain.live_objects import ObjectCache
from pdinference.cli.explain.moment import Moment
from pdinference.cli.explain.steps import Step, held_back, writes
from pdinference.cli.installed import Installed
from pdinference.cluster.state.records import ResourceRecord
from pdinference.controller.status_writer import status_of
from pdinference.inference.snapshot import Snapshot
from pdinference.planning.pause import pause_message

_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class Explanation:
    """The next actions of the operator for a resource.

    Attributes:
        generation: Generation of the stored spec.
        handled: Generation that the operator has observed last.
        target: Target revision of the spec in effect; empty without a valid spec.
        serving: Serving revision; empty if there is none.
        problem: Why the operator does nothing, or why an earlier spec is or stays in effect; empty otherwise.
        rollout: State of the roll-out, and conditions of the traffic switch.
        roles: Replica counts of each role and revision.
        gpus: GPUs of P and D, and the budget.
        objectives: What the operator last reported of spec.objectives; empty without any.
        writes: Writes in the order of execution.
        held_back: Changes that are blocked for now.
        unknown: Facts that this command does not have.
        look_again: Triggers of the next decision.
    """

    name: str
    namespace: str
    generation: int
    handled: int
    target: str = ""
    serving: str = ""
    problem: str = ""
    rollout: Sequence[str] = ()
    roles: Sequence[RoleCount] = ()
    gpus: str = ""
    objectives: str = ""
    writes: Sequence[Step] = ()
    held_back: Sequence[Step] = ()
    unknown: Sequence[str] = ()
    look_again: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def explanation(moment: Moment, cache: ObjectCache, found: Installed, *, from_file: bool) -> Explanation:
    """The explanation of a resource with a spec in effect.

    Args:
        moment: The decision with its inputs.
        cache: The objects that were read.
        found: The operator's settings.
        from_file: Whether the objects come from a file.
    """
    snapshot, plan = moment.snapshot, moment.plan
    steps = writes(moment)
    return _of(
        snapshot.resource,
        target=snapshot.desired.revision,
        serving=plain(plan.rollout.serving, 63),
        problem=snapshot.spec.invalid or _pause(snapshot),
        rollout=traffic_switch(moment),
        roles=role_counts(moment),
        gpus=gpus(moment),
        objectives=attained(moment),
        writes=steps,
        held_back=held_back(moment),
        unknown=unknown(moment, cache, found, from_file=from_file),
        look_again=look_again(moment, writes=bool(steps)),
    )


def _pause(snapshot: Snapshot) -> str:
    owner = snapshot.owner
    paused = snapshot.resource.paused
    return pause_message(owner.namespace, owner.name, withheld=snapshot.spec.withheld) if paused else ""


def left_alone(resource: ResourceRecord, problem: str) -> Explanation:
    """The explanation of a resource for which the operator does nothing.

    Args:
        resource: The resource.
        problem: The reason.
    """
    return _of(resource, serving=plain(status_of(resource).serving_revision, 63), problem=problem)


def _of(resource: ResourceRecord, *, problem: str, **rest: Any) -> Explanation:
    owner = resource.owner
    return Explanation(
        name=plain(owner.name, 253),
        namespace=plain(owner.namespace, 63),
        generation=resource.generation,
        handled=status_of(resource).observed_generation,
        problem=plain(problem, _LONGEST),
        **rest,
    )
