"""The condition DecodeComputesPrompts: whether D computes prompts in place of P.

Tests: tests/planning/test_status.py
"""

from pdinference.api.v1alpha1 import Status
from pdinference.api.v1alpha1.conditions import DECODE_COMPUTES_PROMPTS
from pdinference.planning.condition_changes import ConditionResult, find
from pdinference.planning.status.inputs import StatusInputs


def decode_computes_prompts(inputs: StatusInputs, previous: Status) -> ConditionResult | None:
    """True while D has recently computed prompts in place of P; None otherwise."""
    if inputs.observations.fell_back is None:  # as last written, for example after a restart of the operator
        last = find(previous.conditions, DECODE_COMPUTES_PROMPTS)
        return None if last is None else ConditionResult(last.status, last.reason, last.message)
    if not inputs.observations.fell_back:
        return None
    return ConditionResult(
        "True",
        "PrefillFallback",
        "In the last minutes, D computed prompts that P pods did not. Such requests take longer, and delay others on "
        "D. The logs of the router pods and the metric pdinference_router_prefill_fallbacks_total have the reasons.",
    )
