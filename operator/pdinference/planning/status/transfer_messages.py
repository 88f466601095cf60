"""The reasons of the condition KVTransfer, and their messages.

Messages have only numbers of `status.transfer`, so that they change with these alone.

Tests: tests/planning/test_transfer_measurements.py
"""

from collections.abc import Callable, Mapping
from typing import Final

from pdinference.api.names import Verification
from pdinference.api.v1alpha1.conditions import Truth
from pdinference.api.v1alpha1.status import RepairStatus, TransferStatus, VerificationStatus
from pdinference.memory.link_speeds import TCP_TEXT
from pdinference.planning.condition_changes import ConditionResult
from pdinference.planning.router_window import WINDOW_S
from pdinference.planning.transfer_measurements import Path

NO_REQUESTS: Final = "NoRequestsYet"
TRANSFERRING: Final = "Transferring"
VERIFIED: Final = "Verified"
SATURATED: Final = "Saturated"
SLOW: Final = "Slow"
COMPUTED_BY_DECODE: Final = "ComputedByDecode"
FAILING: Final = "Failing"
WRONG_ANSWERS: Final = "WrongAnswers"


_WITHIN: Final = f" in the last {WINDOW_S / 60:g} minutes with requests"
_HELD: Final = (
    ". It is sent again. With transfer.verification: Required, a D pod that has passed none gets no requests "
    "while others have"
)
"""What follows from a canary that passed neither at first nor later."""


def condition(reason: str, numbers: TransferStatus, path: Path) -> ConditionResult:
    """The condition with a reason.

    Args:
        reason: One of those above.
        numbers: What is written beside it.
        path: How the KV cache goes.
    """
    status, message = _CONDITIONS[reason]
    return ConditionResult(status, reason, message(numbers, path) + _repair(numbers.repair))


def _no_requests(numbers: TransferStatus, _path: Path) -> str:
    return f"No KV transfer of revision {numbers.revision} was measured yet{_state(numbers)}."


def _transferring(numbers: TransferStatus, _path: Path) -> str:
    return f"KV cache comes from P. Whether it is right was not verified{_state(numbers)}."


def _verified(numbers: TransferStatus, _path: Path) -> str:
    ended = numbers.verification.completion_time
    last = f" It ended at {ended:%Y-%m-%dT%H:%M:%SZ}, and later ones found no fault." if ended else ""
    return f"A canary{_way(numbers)} got the answer of P alone{_compared(numbers)}.{last}"


def _saturated(numbers: TransferStatus, path: Path) -> str:
    return (
        f"KV transfers are under way {_number(numbers.busy_percent)} % of the time, "
        f"{_number(numbers.concurrent_transfers)} at a time on each way from P to D. In all they "
        f"carry {_number(numbers.carried_gigabytes_per_second)} GB/s{_asked(numbers)}. Each one has "
        f"{_number(numbers.gigabytes_per_transfer)} GB. Requests wait for them before their first token."
        f"{_transport(numbers)} {_ways_out(path)} {_see('saturated')}"
    )


def _slow(numbers: TransferStatus, path: Path) -> str:
    expected = f"{'NVLink' if path.host_local else 'RDMA'} should give more than {path.least_speed:g}. "
    return (
        f"KV cache moves at {_number(numbers.gigabytes_per_second)} GB/s on each way from P to D. "
        f"{expected if path.direct else ''}TCP between two pods with GPUs gave {TCP_TEXT}."
        f"{_transport(numbers)}{_fewer_bytes(path)} {_see('slow')}"
    )


def _computed_by_decode(numbers: TransferStatus, _path: Path) -> str:
    found = (
        f"D computed the prompt of a canary{_way(numbers)}{_HELD}"
        if numbers.verification.state == Verification.COMPUTED_BY_DECODE
        else f"D computed {_number(numbers.by_decode_percent)} % of its prompt tokens itself{_WITHIN}"
    )
    return f"{found}. Such requests take longer, and delay others on D. {_see('computed-by-decode')}"


def _failing(numbers: TransferStatus, _path: Path) -> str:
    if pod := numbers.verification.parameter_pod:
        return (
            f"P pod {pod} gave a canary an error or no answer, so nothing is known of the transfer. It is sent again. "
            f"Check whether P pod {pod} is overloaded, and its log. {_see('failing')}"
        )
    found = (
        f"A canary{_way(numbers)} got an error or no answer{_HELD}"
        if numbers.verification.state == Verification.FAILED
        else f"{_number(numbers.failed_percent)} % of KV transfers failed, and {_number(numbers.expired_percent)} % "
        f"expired{_WITHIN}: P released the KV cache before D had read it"
    )
    return f"{found}. Check the network between P and D, and the logs of D. {_see('failing')}"


def _wrong_answers(numbers: TransferStatus, _path: Path) -> str:
    return (
        f"A canary{_way(numbers)} did not get the answer of P alone{_compared(numbers)}, so "
        f"KV cache arrives wrong, or P and D load different weights. Make options and weights of P and D equal, or use "
        f"another connector or version of vLLM. {_see('wrong-answers')}"
    )


_CONDITIONS: Final[Mapping[str, tuple[Truth, Callable[[TransferStatus, Path], str]]]] = {
    NO_REQUESTS: ("Unknown", _no_requests),
    TRANSFERRING: ("True", _transferring),
    VERIFIED: ("True", _verified),
    SATURATED: ("False", _saturated),
    SLOW: ("False", _slow),
    COMPUTED_BY_DECODE: ("False", _computed_by_decode),
    FAILING: ("False", _failing),
    WRONG_ANSWERS: ("False", _wrong_answers),
}
"""Status and message of the condition for each reason."""


def _repair(repair: RepairStatus | None) -> str:
    """What was done about it, and is not over."""
    if repair is None or repair.outcome == "Repaired":
        return ""
    words = ""
    if repair.outcome == "Pending" and repair.restart_time is not None:
        words += f" Pod {repair.pods[-1]} was restarted at {repair.restart_time:%H:%M:%SZ}: {repair.proof}."
    if repair.outcome == "GaveUp":
        pods = ", ".join(repair.pods)
        words += f" {len(repair.pods)} restarts did not help, so no pod is restarted any more: {pods}."
    if repair.withheld:
        words += f" A pod is proven broken and not restarted: {repair.withheld}."
    return words


def _state(numbers: TransferStatus) -> str:
    state = numbers.verification.state
    return f" (transfer.verification: {state.replace('_', ' ')})" if state else ""


def _way(numbers: TransferStatus) -> str:
    """What a canary went through."""
    found = numbers.verification
    pod = f"D pod {found.decode_pod}" if found.decode_pod else "D"
    return f" through P and {pod}{f' of revision {found.revision}' if found.revision else ''}"


def _compared(numbers: TransferStatus) -> str:
    """What was compared, in brackets; empty if unknown."""
    test: VerificationStatus = numbers.verification
    if test.prompt_tokens is None or test.distance is None or test.limit is None:
        return ""
    return f" ({test.prompt_tokens} prompt tokens; distance {test.distance:g}, limit {test.limit:g})"


def _transport(numbers: TransferStatus) -> str:
    return f" The speed suggests {numbers.inferred_transport}." if numbers.inferred_transport else ""


def _asked(numbers: TransferStatus) -> str:
    """What P had ready, if it is more than what was carried."""
    asked, carried = numbers.asked_gigabytes_per_second, numbers.carried_gigabytes_per_second
    return f"; {asked:g} GB/s are asked" if asked is not None and carried is not None and asked > carried else ""


def _ways_out(path: Path) -> str:
    """Fields that help, without those that the resource has."""
    faster = ["transfer.hostLocal (P and D on one host)", "transfer.rdma"] if path.gpus and not path.direct else []
    more = ["more decode.replicas"] if path.host_local else []
    fields = ", ".join([*faster, *_fp8(path), *more])
    return f"Set {fields}{' or ' if fields else ''}mode: Aggregated."


def _fewer_bytes(path: Path) -> str:
    """What FP8 would move; empty if it is in use, or unknown."""
    return "".join(f" Fewer bytes: {fp8}." for fp8 in _fp8(path))


def _fp8(path: Path) -> list[str]:
    """FP8 with its bytes; empty if it is in use, or unknown."""
    if path.token_bytes is None or path.fp8_token_bytes is None:
        return []
    return [f"engine.kvCache.dtype: fp8 ({path.fp8_token_bytes:,} bytes a prompt token, not {path.token_bytes:,})"]


def _number(number: float | None) -> str:
    return "?" if number is None else f"{number:g}"


def _see(section: str) -> str:
    return f"See docs/runbooks.md#{section}."
