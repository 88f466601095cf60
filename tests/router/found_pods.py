"""Pods, and what canaries have found of them, for tests of decisions."""

import math

from hypothesis import strategies as st

from pdinference.api.names import Role, Verification
from pdinference.planning.transfer_measurements import FAULTS
from pdinference.router.canary_outcome import CanaryOutcome
from pdinference.router.findings import Result
from pdinference.router.pod import Admission, Observed, Pod

NOW = 100_000.0
GOOD = [Verification.VERIFIED, Verification.NOT_APPLICABLE]
ENDED = [*GOOD, *FAULTS]


class Client:
    """A request of a client."""

    began_at = 0.0
    reads_from = None
    placed = True
    place = 0
    overtaken = False
    stream = False

    def abort(self, reason: str) -> None: ...


def pod(name: str, admission: Admission = Admission.HELD, *, group: str = "", busy: bool = False) -> Pod:
    """A ready pod; those whose names begin with p are P, the others D."""
    role = Role.PARAMETER if name.startswith("p") else Role.DECODE
    found = Pod(Observed(name, name, role, "a:1", ready=True, group=group), admission=admission)
    if busy:
        found.under_way.add(Client())
    return found


def result(
    state: Verification,
    decode: str = "d",
    *,
    by_parameter: bool = False,
    ended_at: float = NOW,
    seconds: float = 1.0,
    faults: int | None = None,
) -> Result:
    """A result of the canary to a D pod."""
    if faults is None:
        faults = int(state in FAULTS)
    outcome = CanaryOutcome(state, "by the test", by_parameter=by_parameter)
    return Result(outcome, "p", decode, seconds, ended_at, faults)


@st.composite
def results(draw: st.DrawFn, decode: str = "d") -> Result:
    """Any result of the canary to a D pod."""
    state = draw(st.sampled_from(ENDED))
    return result(
        state,
        decode,
        by_parameter=state is Verification.FAILED and draw(st.booleans()),
        ended_at=NOW - draw(st.floats(0, 50_000)),
        seconds=draw(st.floats(0, 500)),
        faults=draw(st.integers(1, 40)) if state in FAULTS else 0,
    )


@st.composite
def decode_pods(draw: st.DrawFn) -> list[Pod]:
    """Up to ten D pods of two groups."""
    number = draw(st.integers(0, 10))
    pods = [
        pod(
            f"d{one}",
            draw(st.sampled_from(Admission)),
            group=draw(st.sampled_from("ab")),
            busy=draw(st.integers(0, 4)) == 0,
        )
        for one in range(number)
    ]
    for one in pods:
        one.turn = draw(st.integers(0, 20))
    return pods


AGES = st.one_of(st.floats(0, 5000), st.just(math.inf))
"""Seconds since something; infinite if it never was."""
