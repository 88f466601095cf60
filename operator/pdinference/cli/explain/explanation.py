"""Everything that `pdinference explain` says about a resource, for a person or a program."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pdinference.api.plain_text import plain
from pdinference.cli.explain.caveats import look_again, unknown
from pdinference.cli.explain.facts import RoleCount, gpus, role_counts, traffic_switch
from pdinference.cli.explain.moment import Moment
from pdinference.cli.explain.steps import Step, held_back, writes
from pdinference.cluster.state.records import ResourceRecord
from pdinference.controller.status_writer import status_of

_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the operator would do next about a resource.

    Attributes:
        generation: Of the stored spec.
        handled: Generation that the operator has acted on last.
        target: The revision that the spec in effect asks for; empty when none is valid.
        serving: The revision that requests go to; empty while none does.
        problem: Why nothing is done, or why an earlier spec is in effect; empty otherwise.
        rollout: Whether a roll-out is under way, and what the traffic switch waits for.
        roles: The replica counts of each role and revision.
        gpus: GPUs that P and D use, and of how many.
        writes: In the order of execution.
        held_back: What stays as it is for now.
        unknown: What this command does not know.
        look_again: When the operator decides again.
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
    writes: Sequence[Step] = ()
    held_back: Sequence[Step] = ()
    unknown: Sequence[str] = ()
    look_again: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def explanation(moment: Moment, left_out: Mapping[str, int], *, from_file: bool) -> Explanation:
    """What the operator would do next, of a resource with a spec in effect.

    Args:
        moment: The decision, and what it was made on.
        left_out: How many objects of each kind could not be read.
        from_file: Whether the objects come from a file.
    """
    snapshot, plan = moment.snapshot, moment.plan
    steps = writes(moment)
    return _of(
        snapshot.resource,
        target=snapshot.desired.revision,
        serving=plain(plan.rollout.serving, 63),
        problem=snapshot.invalid,
        rollout=traffic_switch(moment),
        roles=role_counts(moment),
        gpus=gpus(moment),
        writes=steps,
        held_back=held_back(moment),
        unknown=unknown(moment, left_out, from_file=from_file),
        look_again=look_again(moment, writes=bool(steps)),
    )


def left_alone(resource: ResourceRecord, problem: str) -> Explanation:
    """A resource that the operator does nothing about.

    Args:
        resource: The resource.
        problem: Why.
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
