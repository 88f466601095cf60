"""The reasons of the condition ObjectivesMet, and their messages.

Messages have only numbers of `status.objectives`, so that they change with these alone.

Tests: tests/planning/test_objectives.py
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1.conditions import Truth
from pdinference.api.v1alpha1.status import AttainmentStatus, ObjectivesStatus, RoleUseStatus
from pdinference.planning.condition_changes import ROLE_WORDS, ConditionResult
from pdinference.planning.objectives import StatedObjectives
from pdinference.planning.status.inputs import StatusInputs

NO_REQUESTS_YET: Final = "NoRequestsYet"
NO_REQUESTS: Final = "NoRequests"
MET: Final = "Met"
MISSED: Final = "Missed"

_STATUS: Final[Mapping[str, Truth]] = {
    NO_REQUESTS_YET: "Unknown",
    NO_REQUESTS: "Unknown",
    MET: "True",
    MISSED: "False",
}
_LIMITS: Final[Mapping[str, str]] = {
    "NoPods": "Pods limit: requests wait because no pod of a role is ready.",
    "Parameter": "P limits: requests wait for their prefill. More P pods, or a larger share of P, would help.",
    "ParameterSpeed": "P limits, but is not full: the prompts are too long for one P instance. More P pods would not "
    "help; more tensor-parallel ranks would.",
    "Transfer": "The KV transfer limits: it takes most of the time to first token. A faster path (transfer.hostLocal, "
    "transfer.rdma) or an FP8 KV cache would help.",
    "KVCache": "D limits: its KV cache is full, so requests wait. More D pods or an FP8 KV cache would help.",
    "Decode": "D limits: it has too much work at a time. More D pods would help.",
    "DecodeSpeed": "D limits: even an idle D pod takes about as long for a token. More D pods would not help; more "
    "tensor-parallel ranks, a quantized model or faster GPUs would.",
}


def condition(
    reason: str, numbers: ObjectivesStatus, stated: StatedObjectives, inputs: StatusInputs
) -> ConditionResult:
    """The condition with a reason.

    Args:
        reason: One of those above.
        numbers: What is written beside it.
        stated: The objectives.
        inputs: Name and namespace of the resource.
    """
    return ConditionResult(_STATUS[reason], reason, " ".join(_sentences(reason, numbers, stated, inputs)))


def _sentences(reason: str, numbers: ObjectivesStatus, stated: StatedObjectives, inputs: StatusInputs) -> Iterator[str]:
    if reason == NO_REQUESTS_YET:
        yield f"Too few streamed answers to judge the objectives ({stated.stated})."
        return
    if reason == NO_REQUESTS:
        yield "No streamed answers in the last 5 minutes. The last ones missed the objectives:"
    yield f"{_kept(numbers, stated)}. The objective is {stated.percentile:g} %."
    if reason == MISSED and numbers.limit:
        yield f"Missed for more than 10 minutes. {_LIMITS[numbers.limit]}"
        # The command needs the resource as a file, and the GPUs that there are.
        save = f"kubectl get pdi {inputs.name} -n {inputs.namespace} -o yaml"
        yield f"To compare arrangements: {save} | pdinference advise -f - --live --gpus NxPRODUCT."
        yield "See docs/runbooks.md#objectives-missed."
    yield from _use(numbers)


def _kept(numbers: ObjectivesStatus, stated: StatedObjectives) -> str:
    """How far each objective was kept."""
    parts = []
    percentile = f"p{stated.percentile:g}"
    if stated.ttft is not None and numbers.ttft is not None:
        measured = _milliseconds(numbers.ttft, percentile)
        parts.append(f"{numbers.ttft.kept_percent:g} % had the first token within {1000 * stated.ttft:g} ms{measured}")
    if stated.tpot is not None and numbers.tpot is not None:
        measured = _milliseconds(numbers.tpot, percentile)
        parts.append(f"{numbers.tpot.kept_percent:g} % took at most {1000 * stated.tpot:g} ms per token{measured}")
    return f"Of {numbers.requests:,} streamed answers {' and '.join(parts)}"


def _milliseconds(found: AttainmentStatus, percentile: str) -> str:
    return "" if found.milliseconds is None else f" ({percentile}: {found.milliseconds:g} ms)"


def _use(numbers: ObjectivesStatus) -> Iterator[str]:
    """Use of the roles, and cost."""
    roles = {Role.PARAMETER: numbers.parameter, Role.DECODE: numbers.decode}
    parts = [text for role, use in roles.items() if use is not None and (text := _role(ROLE_WORDS[role], use))]
    if parts:
        yield f"{'; '.join(parts)}."
    if numbers.cost_per_million_tokens is not None:
        yield f"A million tokens cost {numbers.cost_per_million_tokens:g} in the last hour."


def _role(name: str, use: RoleUseStatus) -> str:
    tokens = "" if use.tokens_per_second_per_gpu is None else f"{use.tokens_per_second_per_gpu:g} tokens/s a GPU"
    if use.busy_percent is None:
        return f"{name}: {tokens}" if tokens else ""
    return f"{name} is {use.busy_percent} % busy{f' ({tokens})' if tokens else ''}"
