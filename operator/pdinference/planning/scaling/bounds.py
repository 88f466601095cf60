"""Between how many pods each role's HPA may choose, so that the two together keep a P:D ratio and a GPU budget.

Two HPAs know nothing of each other, and act at any moment. So what they may do together has to be safe in every
combination: the budget is divided between them, and a share is given to one only when the other can no longer use it.
The ratio works upwards: a role that grows pulls the other along by its minimum. Downwards both go when the load of both
allows: a role without work stays as long as the other needs it.

Ratios hold to the next whole pod.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from pdinference.planning.scaling.ratio import Ratio

_UNLIMITED: Final = 1_000_000
"""Pods without GPUs that fit into any budget."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a role stands.

    Attributes:
        live: Pods that there are.
        minimum: The user's minReplicas.
        maximum: The user's maxReplicas.
        gpus: GPUs of one instance.
        allowed: The maximum that its HPA has now; 0 when it has no HPA yet.
        granted: The highest maximum by which the HPA may still act: that which it has now, and each that it had lately.
        wanted: Pods that its own load asks for, whatever its bounds. None when that is not known; it is then taken to
            be content.
    """

    live: int
    minimum: int
    maximum: int
    gpus: int = 1
    allowed: int = 0
    granted: int = 0
    wanted: int | None = None

    @property
    def reachable(self) -> int:
        """So many pods there may be before the HPA has seen anything new."""
        return max(self.live, self.granted)

    @property
    def content(self) -> int:
        """So many pods the role would have by itself."""
        return min(self.maximum, max(self.minimum, self.live if self.wanted is None else self.wanted))

    def fitting(self, gpus: int) -> int:
        """How many pods so many GPUs are enough for."""
        return gpus // self.gpus if self.gpus else _UNLIMITED


class Cause(StrEnum):
    """What keeps a role below the user's maximum; also the reason that the status gives."""

    RATIO = "Ratio"
    GPU_BUDGET = "GpuBudget"


@dataclass(frozen=True, slots=True)
class Range:
    """`minReplicas` and `maxReplicas` of an HPA.

    Attributes:
        cause: Why the maximum is not the user's; None when it is.
        pulled: Whether the other role raises the minimum.
    """

    minimum: int
    maximum: int
    cause: Cause | None = field(default=None, compare=False)
    pulled: bool = field(default=False, compare=False)


class BudgetTooSmallError(ValueError):
    """The user's minimums alone need more GPUs than the budget has."""


def bounds(p: Standing, d: Standing, *, ratio: Ratio | None = None, budget: int | None = None) -> tuple[Range, Range]:
    """What the HPAs of P and D are to be given now. To be asked again whenever something of it changes.

    Raises:
        BudgetTooSmallError: No bounds keep the budget.
    """
    if budget is not None and p.gpus * p.minimum + d.gpus * d.minimum > budget:
        raise BudgetTooSmallError
    band = ratio or Ratio()
    by_ratio = _most(p, d, band.d_for, None), _most(d, p, band.p_for, None)
    most_p = _most(p, d, band.d_for, budget)
    most_d = _most(d, p, band.p_for, budget)
    p, d, user = replace(p, maximum=most_p), replace(d, maximum=most_d), (p.maximum, d.maximum)
    pull_p, pull_d = _pulls(p, d, band)
    if budget is not None:
        share_p, share_d = _kept(p, d, pull_p, pull_d, budget) or _shares(p, d, pull_p, pull_d, budget)
        most_p, most_d = _handed_over(p, d, share_p, share_d, budget)
    cause_p, cause_d = _cause(most_p, by_ratio[0], user[0]), _cause(most_d, by_ratio[1], user[1])
    least_p, least_d = min(pull_p, most_p), min(pull_d, most_d)
    return (
        Range(least_p, most_p, cause_p, pulled=least_p > p.minimum),
        Range(least_d, most_d, cause_d, pulled=least_d > d.minimum),
    )


def fitted(p: Standing, d: Standing, budget: int) -> tuple[int, int]:
    """As many pods as there are, or are needed, less what does not fit: from the role with more above its minimum."""
    return _fitting(p, d, p.live, d.live, budget)


def _cause(most: int, by_ratio: int, user: int) -> Cause | None:
    if most >= user:
        return None
    return Cause.RATIO if most >= by_ratio else Cause.GPU_BUDGET


def _most(role: Standing, other: Standing, needs: Callable[[int], int], budget: int | None) -> int:
    """How far a role may grow, so that the other can have the pods that this needs."""
    for count in range(role.maximum, role.minimum, -1):
        along = max(other.minimum, needs(count))
        if along <= other.maximum and (budget is None or role.gpus * count + other.gpus * along <= budget):
            return count
    return role.minimum


def _pulls(p: Standing, d: Standing, ratio: Ratio) -> tuple[int, int]:
    """The pods that each role needs for the sake of the other's, as far as the load of both justifies those."""

    def for_d(count: int) -> int:
        return min(p.maximum, max(p.minimum, ratio.p_for(count)))

    def for_p(count: int) -> int:
        return min(d.maximum, max(d.minimum, ratio.d_for(count)))

    # What the load of both comes to, when each pulls the other: both functions grow, so this ends.
    just_p, just_d = p.content, d.content
    while (just_p, just_d) != (both := (max(just_p, for_d(just_d)), max(just_d, for_p(just_p)))):
        just_p, just_d = both
    return for_d(min(d.live, just_d)), for_p(min(p.live, just_p))


def _kept(p: Standing, d: Standing, pull_p: int, pull_d: int, budget: int) -> tuple[int, int] | None:
    """The division as it is, if it leaves nothing over and nobody needs more: loads change all the time."""
    free = budget - p.gpus * p.allowed - d.gpus * d.allowed
    both = ((p, pull_p), (d, pull_d))
    good = free >= 0 and all(max(r.content, r.live, pull) <= r.allowed <= r.maximum for r, pull in both)
    used_up = all(r.allowed == r.maximum or r.fitting(free) == 0 for r in (p, d))
    return (p.allowed, d.allowed) if good and used_up else None


def _shares(p: Standing, d: Standing, pull_p: int, pull_d: int, budget: int) -> tuple[int, int]:
    """How the budget is best divided: what each has or needs, and of the rest half to each, or all to who wants it."""
    have_p, have_d = _fitting(p, d, max(p.live, pull_p), max(d.live, pull_d), budget)
    free = budget - p.gpus * have_p - d.gpus * have_d
    more_p, more_d = p.content > have_p, d.content > have_d
    first = free // 2 if more_p == more_d else free * more_p
    share_p = min(p.maximum, have_p + p.fitting(first))
    share_d = min(d.maximum, d.fitting(budget - p.gpus * share_p))
    if more_p or not more_d:
        share_p = min(p.maximum, p.fitting(budget - d.gpus * share_d))
    return share_p, share_d


def _fitting(p: Standing, d: Standing, want_p: int, want_d: int, budget: int) -> tuple[int, int]:
    """So many pods as far as they fit; the minimums where not even those do."""
    want_p, want_d = max(p.minimum, min(want_p, p.maximum)), max(d.minimum, min(want_d, d.maximum))
    while p.gpus * want_p + d.gpus * want_d > budget:
        spare_p, spare_d = (want_p - p.minimum) * p.gpus, (want_d - d.minimum) * d.gpus
        if spare_p > spare_d:
            want_p -= 1
        elif spare_d > 0:
            want_d -= 1
        else:
            break
    return want_p, want_d


def _handed_over(p: Standing, d: Standing, share_p: int, share_d: int, budget: int) -> tuple[int, int]:
    """Less is given at once; more only as far as the other role cannot use it any longer.

    Where pods that leave take away from the budget, that may be less than either could use until now. An HPA has to be
    allowed one pod; where there is none, it does nothing.
    """
    most_p = min(share_p, max(p.live, p.fitting(budget - d.gpus * d.reachable)))
    most_p = max(min(1, p.maximum), most_p)
    most_d = min(share_d, max(d.live, d.fitting(budget - p.gpus * max(p.reachable, most_p))))
    return most_p, max(min(1, d.maximum), most_d)
